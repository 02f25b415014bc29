package main

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	shardPrefix = "/registry/"
	// tenantName lies in the middle of the neighbours'.
	tenantName = "m0m0m0m0m0m0m0m0"
	// pageKeys and answerBytes are kcp's.
	pageKeys    = 1000
	answerBytes = 2 << 20
	// maxMessageBytes lets pages of large values through, which clientv3 allows by default too.
	maxMessageBytes = 1 << 31
)

// reading is what one reading took.
type reading struct {
	FirstMilliseconds float64 `json:"firstMilliseconds"`
	Milliseconds      float64 `json:"milliseconds"`
	// Requests are those made, Messages those received.
	Requests int `json:"requests"`
	Messages int `json:"messages"`
	// Keys are those received, Kept those of the tenant.
	Keys int `json:"keys"`
	Kept int `json:"kept"`
	// ClientBytes and ServerBytes are peaks of resident memory, ServerMilliseconds processor time.
	ClientBytes        int64   `json:"clientBytes"`
	ServerBytes        int64   `json:"serverBytes"`
	ServerMilliseconds float64 `json:"serverMilliseconds"`
	Refusal            string  `json:"refusal,omitempty"`
}

// contenders are the ways to read, each with all that it has to do from its first request on.
var contenders = []struct {
	name, what string
	read       func(ctx context.Context, r *reader) error
}{
	{"kcp-dump", "dump: as kcp does it, answers of 1,000 entries or 2 MiB", func(ctx context.Context, r *reader) error {
		return r.kcpDump(ctx)
	}},
	{"shard-pages", "dump: whole shard in pages of 1,000", func(ctx context.Context, r *reader) error {
		return r.keep(r.pages(ctx, prefixSpan(shardPrefix)))
	}},
	{"shard-stream", "dump: whole shard, streamed", func(ctx context.Context, r *reader) error {
		return r.keep(r.stream(ctx, prefixSpan(shardPrefix)))
	}},
	{"prefix-pages", "dump: the tenant's prefixes in pages of 1,000", func(ctx context.Context, r *reader) error {
		return r.families(ctx, r.firstOfPage, r.pages)
	}},
	{"prefix-stream", "dump: the tenant's prefixes, streamed", func(ctx context.Context, r *reader) error {
		return r.families(ctx, r.firstOfStream, r.stream)
	}},
	{"keys-pages", "cleanup: whole shard's keys in pages of 1,000", func(ctx context.Context, r *reader) error {
		return r.keep(r.pages(ctx, prefixSpan(shardPrefix), clientv3.WithKeysOnly()))
	}},
	{"keys-stream", "cleanup: whole shard's keys, streamed", func(ctx context.Context, r *reader) error {
		return r.keep(r.stream(ctx, prefixSpan(shardPrefix), clientv3.WithKeysOnly()))
	}},
	{"seek-pages", "cleanup: seek families by Range, limit 1", func(ctx context.Context, r *reader) error {
		return r.families(ctx, r.firstOfPage, nil)
	}},
	{"seek-stream", "cleanup: seek families by broken-off streams", func(ctx context.Context, r *reader) error {
		return r.families(ctx, r.firstOfStream, nil)
	}},
}

// span is a half-open range of keys.
type span struct{ from, to string }

func prefixSpan(prefix string) span { return span{prefix, clientv3.GetPrefixRangeEnd(prefix)} }

type reader struct {
	etcd    *clientv3.Client
	began   time.Time
	reading reading
}

type chunks = iter.Seq2[[]*mvccpb.KeyValue, error]

// readOnce tells its parent what a reading took.
func readOnce(ctx context.Context, name, endpoint string) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, MaxCallRecvMsgSize: maxMessageBytes - 1})
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.Get(ctx, "connected"); err != nil {
		return err
	}
	r := &reader{etcd: client, began: time.Now()}
	for _, contender := range contenders {
		if contender.name != name {
			continue
		}
		if err := contender.read(ctx, r); status.Code(err) == codes.Unimplemented {
			r.reading.Refusal = err.Error()
		} else if err != nil {
			return err
		}
	}
	r.reading.Milliseconds = milliseconds(time.Since(r.began))
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return err
	}
	r.reading.ClientBytes = usage.Maxrss << 10
	return json.NewEncoder(os.Stdout).Encode(r.reading)
}

func milliseconds(duration time.Duration) float64 { return float64(duration.Microseconds()) / 1000 }

// keep takes what is the tenant's, as kcp does, whose parser also splits every key.
func (r *reader) keep(read chunks) error {
	for chunk, err := range read {
		if err != nil {
			return err
		}
		for _, kv := range chunk {
			r.reading.Keys++
			if isTenants(kv) {
				r.note()
			}
		}
	}
	return nil
}

// kcpDump begins every answer with a page of 1,000 keys, however few of them fit into the answer.
func (r *reader) kcpDump(ctx context.Context) error {
	keys := prefixSpan(shardPrefix)
	for {
		entries, size, full := 0, 0, false
		for page, err := range r.pages(ctx, keys) {
			if err != nil {
				return err
			}
			r.reading.Keys += len(page)
			for _, kv := range page {
				if !isTenants(kv) {
					continue
				}
				if full = entries == pageKeys || entries > 0 && size+len(kv.Value) > answerBytes; full {
					keys.from = string(kv.Key)
					break
				}
				r.note()
				entries, size = entries+1, size+len(kv.Value)
			}
			if full {
				break
			}
		}
		if !full {
			return nil
		}
	}
}

func isTenants(kv *mvccpb.KeyValue) bool {
	parts := strings.SplitN(strings.TrimPrefix(string(kv.Key), shardPrefix), "/", 4)
	return len(parts) == 4 && parts[2] == tenantName
}

// note counts an entry of the tenant.
func (r *reader) note() {
	if r.reading.Kept == 0 {
		r.reading.FirstMilliseconds = milliseconds(time.Since(r.began))
	}
	r.reading.Kept++
}

func (r *reader) pages(ctx context.Context, keys span, options ...clientv3.OpOption) chunks {
	return func(yield func([]*mvccpb.KeyValue, error) bool) {
		for {
			r.reading.Requests++
			page, err := r.etcd.Get(ctx, keys.from, append(options, clientv3.WithRange(keys.to), clientv3.WithLimit(pageKeys))...)
			if err != nil {
				yield(nil, err)
				return
			}
			r.reading.Messages++
			if !yield(page.Kvs, nil) || !page.More {
				return
			}
			keys.from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
		}
	}
}

func (r *reader) stream(ctx context.Context, keys span, options ...clientv3.OpOption) chunks {
	return func(yield func([]*mvccpb.KeyValue, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		r.reading.Requests++
		stream, err := r.etcd.GetStream(ctx, keys.from, append(options, clientv3.WithRange(keys.to))...)
		if err != nil {
			cancel()
			yield(nil, err)
			return
		}
		defer func() {
			for range stream { //nolint:revive // the client's sender waits for its reader
			}
		}()
		defer cancel()
		for chunk := range stream {
			if err := chunk.Err(); err != nil {
				yield(nil, err)
				return
			}
			r.reading.Messages++
			if !yield(chunk.Kvs, nil) {
				return
			}
		}
	}
}

// firstOfPage makes etcd 3.7 and older count the whole span.
func (r *reader) firstOfPage(ctx context.Context, keys span) (string, error) {
	r.reading.Requests++
	page, err := r.etcd.Get(ctx, keys.from, clientv3.WithRange(keys.to), clientv3.WithLimit(1), clientv3.WithKeysOnly())
	if err != nil || len(page.Kvs) == 0 {
		return "", err
	}
	r.reading.Messages++
	return string(page.Kvs[0].Key), nil
}

// firstOfStream breaks a stream off after its first chunk, of ten keys. A limit would make etcd count the rest.
func (r *reader) firstOfStream(ctx context.Context, keys span) (string, error) {
	for chunk, err := range r.stream(ctx, keys, clientv3.WithKeysOnly()) {
		if err != nil || len(chunk) == 0 {
			return "", err
		}
		return string(chunk[0].Key), nil
	}
	return "", nil
}

// families seeks from one resource to the next, and reads what the tenant has there.
func (r *reader) families(
	ctx context.Context, first func(context.Context, span) (string, error), read func(context.Context, span, ...clientv3.OpOption) chunks,
) error {
	shard := prefixSpan(shardPrefix)
	for {
		key, err := first(ctx, shard)
		if err != nil || key == "" {
			return err
		}
		parts := strings.SplitN(strings.TrimPrefix(key, shardPrefix), "/", 3)
		if len(parts) < 3 {
			return fmt.Errorf("seek families: %q is no resource's", key)
		}
		resource := shardPrefix + parts[0] + "/" + parts[1] + "/"
		tenant := prefixSpan(resource + tenantName + "/")
		key, err = first(ctx, tenant)
		if err != nil {
			return err
		}
		if key != "" && read != nil {
			err = r.keep(read(ctx, tenant))
		} else if key != "" {
			r.reading.Kept++
		}
		if err != nil {
			return err
		}
		shard.from = clientv3.GetPrefixRangeEnd(resource)
	}
}
