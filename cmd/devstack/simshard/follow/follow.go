// Package follow keeps up with what stands below a prefix of an etcd, as an informer
// keeps up with an API: it lists, watches from there, and lists again when it lost the thread.
package follow

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// pageSize bounds one answer of etcd while listing.
	pageSize = 1000
	// retryPause keeps a follower whose etcd is away from spinning.
	retryPause = 100 * time.Millisecond
)

// Handler hears of every change below the prefix, one call at a time.
type Handler interface {
	// Put is called for every key that is new or written, at the revision of that write.
	Put(key string, value []byte, revision int64)
	// Delete is called for every key that is gone.
	Delete(key string)
	// Synced is called each time everything that stood at some revision was handed over.
	Synced()
}

// Follower follows one prefix. Its zero value is of no use; see New.
type Follower struct {
	client  *clientv3.Client
	prefix  string
	handler Handler
	// known are the keys that were put and not deleted: a new list may miss some of them.
	known map[string]int64
}

// New gives a follower of a prefix that reports to handler.
func New(client *clientv3.Client, prefix string, handler Handler) *Follower {
	return &Follower{client: client, prefix: prefix, handler: handler, known: map[string]int64{}}
}

// Run follows until ctx ends. Run again, it catches up with what it missed in between.
func (f *Follower) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := f.once(ctx); err != nil && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(retryPause):
			}
		}
	}
}

func (f *Follower) once(ctx context.Context) error {
	revision, err := f.list(ctx)
	if err != nil {
		return err
	}
	f.handler.Synced()
	return f.watch(ctx, revision+1)
}

func (f *Follower) list(ctx context.Context) (int64, error) {
	end := clientv3.GetPrefixRangeEnd(f.prefix)
	from, revision := f.prefix, int64(0)
	listed := map[string]int64{}
	for {
		page, err := f.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(pageSize), clientv3.WithRev(revision))
		if err != nil {
			return 0, fmt.Errorf("list %s: %w", f.prefix, err)
		}
		if revision == 0 {
			revision = page.Header.Revision
		}
		for _, kv := range page.Kvs {
			key := string(kv.Key)
			listed[key] = kv.ModRevision
			if f.known[key] != kv.ModRevision {
				f.handler.Put(key, kv.Value, kv.ModRevision)
			}
			from = key + "\x00"
		}
		if !page.More {
			break
		}
	}
	for key := range f.known {
		if _, stands := listed[key]; !stands {
			f.handler.Delete(key)
		}
	}
	f.known = listed
	return revision, nil
}

func (f *Follower) watch(ctx context.Context, revision int64) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for response := range f.client.Watch(ctx, f.prefix, clientv3.WithPrefix(), clientv3.WithRev(revision)) {
		if err := response.Err(); err != nil {
			return fmt.Errorf("watch %s: %w", f.prefix, err)
		}
		for _, event := range response.Events {
			key := string(event.Kv.Key)
			if event.Type == clientv3.EventTypeDelete {
				delete(f.known, key)
				f.handler.Delete(key)
				continue
			}
			f.known[key] = event.Kv.ModRevision
			f.handler.Put(key, event.Kv.Value, event.Kv.ModRevision)
		}
	}
	return ctx.Err()
}
