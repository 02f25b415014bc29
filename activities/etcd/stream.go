package etcd

import (
	"context"
	"iter"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// A window is what is handed on, and held in memory, at a time. One entry may be larger by itself.
	windowEntries = 512
	windowBytes   = 1 << 20

	// firstPage is as small as RangeStream's first chunk: 10 of the largest values etcd takes are 15 MiB.
	firstPage = 10
	// A page of keys without values is as large as what one Txn may delete, and grows while etcd is quick with it: etcd reads the
	// values all the same, and serves nobody else while it compares or deletes them. A thousand of 500 kB took it seconds, and
	// gigabytes of memory; a thousand of 1 kB take it 4 ms.
	leastKeysPage = 64
	mostKeysPage  = 1000
	quickPage     = 10 * time.Millisecond
	slowPage      = 20 * time.Millisecond
)

// windows is a stream of keys and values in key order, some at a time; it ends after the first error.
type windows = iter.Seq2[[]*mvccpb.KeyValue, error]

// stream reads a range at a pinned revision: by RangeStream where the server has it (etcd 3.7 and later),
// else in pages. A server that refuses in the middle, as another member of a half-upgraded cluster may,
// is read on in pages from there.
func (s *Store) stream(ctx context.Context, keys span, revision int64) windows {
	return s.paced(ctx, func(yield func([]*mvccpb.KeyValue, error) bool) {
		if !s.pagesOnly.Load() {
			refused := false
			for window, err := range s.rangeStream(ctx, keys, revision) {
				if isUnimplemented(err) {
					refused = true
					break
				}
				if !yield(window, translate(err)) || err != nil {
					return
				}
				keys.from = after(window)
			}
			if !refused {
				return
			}
			s.pagesOnly.Store(true)
		}
		s.pages(ctx, keys, revision)(yield)
	})
}

// paced asks for the next window no sooner than the last one's share of time is over.
func (s *Store) paced(ctx context.Context, windows windows) windows {
	return func(yield func([]*mvccpb.KeyValue, error) bool) {
		defer s.pace.begin()()
		for window, err := range windows {
			if !yield(window, err) || err != nil {
				return
			}
			if err := s.pace.wait(ctx, len(window), bytesOf(window)); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// rangeStream cuts the server's chunks, which adapt to about its --max-request-bytes, into windows.
func (s *Store) rangeStream(ctx context.Context, keys span, revision int64) windows {
	return func(yield func([]*mvccpb.KeyValue, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		chunks, err := s.client.GetStream(ctx, keys.from, clientv3.WithRange(keys.to), clientv3.WithRev(revision))
		if err != nil {
			cancel()
			yield(nil, err)
			return
		}
		defer drain(chunks)
		defer cancel()
		for chunk := range chunks {
			if err := chunk.Err(); err != nil {
				yield(nil, err)
				return
			}
			for rest := chunk.Kvs; len(rest) > 0; {
				size := windowSize(rest)
				if !yield(rest[:size], nil) {
					return
				}
				rest = rest[size:]
			}
		}
	}
}

// drain lets the client's sender end: it waits for its reader and does not look at the context.
func drain(chunks clientv3.GetStreamChan) {
	for range chunks { //nolint:revive // nothing is left to do with what still comes
	}
}

// pages adapts the number of keys in a page to their size.
func (s *Store) pages(ctx context.Context, keys span, revision int64) windows {
	return func(yield func([]*mvccpb.KeyValue, error) bool) {
		limit := firstPage
		for {
			page, err := s.client.Get(ctx, keys.from, clientv3.WithRange(keys.to), clientv3.WithRev(revision),
				clientv3.WithLimit(int64(limit)))
			if err != nil {
				yield(nil, translate(err))
				return
			}
			if len(page.Kvs) > 0 && !yield(page.Kvs, nil) {
				return
			}
			if !page.More {
				return
			}
			keys.from = after(page.Kvs)
			limit = nextPage(page.Kvs, limit)
		}
	}
}

func nextPage(page []*mvccpb.KeyValue, limit int) int {
	switch size := bytesOf(page); {
	case size > windowBytes:
		return max(limit/2, 1)
	case size < windowBytes/2:
		return min(limit*2, windowEntries)
	default:
		return limit
	}
}

// keys lists a range without values, at a revision (0: now).
func (s *Store) keys(ctx context.Context, keys span, revision int64) windows {
	return s.paced(ctx, func(yield func([]*mvccpb.KeyValue, error) bool) {
		for limit := leastKeysPage; ; {
			start := time.Now()
			page, err := s.client.Get(ctx, keys.from, clientv3.WithRange(keys.to), clientv3.WithRev(revision),
				clientv3.WithLimit(int64(limit)), clientv3.WithKeysOnly())
			if err != nil {
				yield(nil, translate(err))
				return
			}
			limit = nextKeysPage(limit, time.Since(start))
			if len(page.Kvs) > 0 && !yield(page.Kvs, nil) {
				return
			}
			if !page.More {
				return
			}
			keys.from = after(page.Kvs)
		}
	})
}

// nextKeysPage goes by how long etcd took, for keys do not tell how large their values are.
func nextKeysPage(limit int, took time.Duration) int {
	switch {
	case took > slowPage:
		return max(limit/2, leastKeysPage)
	case took < quickPage:
		return min(limit*2, mostKeysPage)
	default:
		return limit
	}
}

// after is the smallest key behind a window.
func after(window []*mvccpb.KeyValue) string { return string(window[len(window)-1].Key) + "\x00" }

func bytesOf(window []*mvccpb.KeyValue) int {
	size := 0
	for _, kv := range window {
		size += len(kv.Key) + len(kv.Value)
	}
	return size
}

// windowSize is how many of these make one window: at least one.
func windowSize(kvs []*mvccpb.KeyValue) int {
	size := 0
	for i, kv := range kvs {
		size += len(kv.Key) + len(kv.Value)
		if i > 0 && (i == windowEntries || size > windowBytes) {
			return i
		}
	}
	return len(kvs)
}
