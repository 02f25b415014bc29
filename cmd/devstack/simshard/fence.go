package simshard

import (
	"context"
	"strings"
	"sync"
)

// wildcard is the cluster of requests that go across all of them.
const wildcard = "*"

// contexts holds one context for each logical cluster that was ever asked for, and one
// for all wildcard requests. A cancelled one stays cancelled until it is dropped: that is
// the whole of traps 1 and 2 (kcp: pkg/contextmanager, pkg/server/filters/perclustercontext.go).
type contexts struct {
	root    context.Context //nolint:containedctx // the process's own; the others derive from it
	mutex   sync.Mutex
	entries map[string]*contextEntry
}

type contextEntry struct {
	ctx     context.Context //nolint:containedctx // outlives each request that is bound to it
	cancel  context.CancelCauseFunc
	dropped chan struct{}
}

func newContexts(root context.Context) *contexts {
	return &contexts{root: root, entries: map[string]*contextEntry{}}
}

func (c *contexts) entry(cluster string) *contextEntry {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.entryLocked(cluster)
}

func (c *contexts) entryLocked(cluster string) *contextEntry {
	if stored, known := c.entries[cluster]; known {
		return stored
	}
	ctx, cancel := context.WithCancelCause(c.root)
	c.entries[cluster] = &contextEntry{ctx: ctx, cancel: cancel, dropped: make(chan struct{})}
	return c.entries[cluster]
}

// bind derives from parent a context that also ends with the cluster's.
func (c *contexts) bind(parent context.Context, cluster string) (context.Context, context.CancelFunc) {
	shared := c.entry(cluster).ctx
	ctx, cancel := context.WithCancelCause(parent)
	stop := context.AfterFunc(shared, func() { cancel(context.Cause(shared)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// cancel ends everything bound to the cluster, now and from now on.
func (c *contexts) cancel(cluster string, reason error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.entryLocked(cluster).cancel(reason)
}

// drop ends everything bound to the cluster and lets new requests in.
func (c *contexts) drop(cluster string, reason error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if stored, known := c.entries[cluster]; known {
		stored.cancel(reason)
		close(stored.dropped)
		delete(c.entries, cluster)
	}
}

// cancelled reports whether requests to the cluster die at once.
func (c *contexts) cancelled(cluster string) bool { return c.entry(cluster).ctx.Err() != nil }

// awaitLive returns once the cluster's context is not cancelled, or ctx ends.
func (c *contexts) awaitLive(ctx context.Context, cluster string) error {
	for {
		stored := c.entry(cluster)
		if stored.ctx.Err() == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-stored.dropped:
		}
	}
}

// whileLive runs work with a context that ends when the cluster's does, again each time it is live again.
// It is how kcp's informers live and die: by wildcard requests to their own server.
func (c *contexts) whileLive(ctx context.Context, cluster string, work func(context.Context)) {
	for c.awaitLive(ctx, cluster) == nil {
		bound, release := c.bind(ctx, cluster)
		work(bound)
		release()
	}
}

// unfenced are the paths that the fence and the contexts let through, for wildcard requests too
// (kcp: allowedPathPrefixes in inactivelogicalcluster.go, exemptPathPrefixes in perclustercontext.go).
func unfenced(path string) bool {
	return strings.HasPrefix(path, "/openapi") || strings.HasPrefix(path, "/apis/core.kcp.io/v1alpha1/logicalclusters")
}

// contextOf names the context that a request is bound to; empty is none. kcp gives its
// per-shard system clusters none.
func contextOf(target target) string {
	if unfenced(target.path) || strings.HasPrefix(target.cluster, "system:") {
		return ""
	}
	return target.cluster
}
