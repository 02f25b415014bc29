package dump

import (
	"context"
	"iter"

	migrationv1alpha1 "github.com/kcp-dev/sdk/apis/migration/v1alpha1"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

const (
	// What kcp takes where a request does not say.
	defaultEntries = 1000
	defaultBytes   = 2 << 20
	// maxEntries and maxBytes bound what a page holds in memory, which is four times that while it is encoded. One entry
	// may be larger by itself.
	maxEntries = 10_000
	maxBytes   = 4 << 20
)

// logicalClusterRef is the entry that leads a dump: it is fenced, so whoever writes a dump in its order has a fenced
// logical cluster before anything else of it.
var logicalClusterRef = activities.Ref{Family: keyspace.LogicalClusters, Suffix: keyspace.LogicalClusterName}

// reading is one logical cluster, from a position on.
type reading struct {
	source Source
	guard  activities.Guard
	// logicalCluster is the LogicalCluster, which a Source does not read with the rest.
	logicalCluster activities.Object
	from           position
	entries, bytes int64
}

// bound takes what a request asks for within what a server gives.
func bound(asked, otherwise, most int64) int64 {
	if asked <= 0 {
		return otherwise
	}
	return min(asked, most)
}

// pages cuts all entries; the last page alone has no continue token. Ends after the first error.
func (r *reading) pages(ctx context.Context) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		var page Status
		var size int64
		last := position{revision: r.from.revision}
		for entry, err := range r.all(ctx) {
			if err != nil {
				yield(Status{}, err)
				return
			}
			value := int64(len(entry.Value))
			if count := int64(len(page.Entries)); count >= r.entries || count > 0 && size+value > r.bytes {
				page.Continue = last.token(r.guard.LogicalCluster)
				if !yield(page, nil) {
					return
				}
				page, size = Status{}, 0
			}
			key := relativeKey(r.guard.LogicalCluster, entry.Ref)
			page.Entries = append(page.Entries, migrationv1alpha1.EtcdEntry{Key: key, Value: entry.Value})
			size += value
			last.after = &entry.Ref
		}
		// A Source that ends early because its context did must not look complete.
		yield(page, ctx.Err())
	}
}

// all gives the LogicalCluster and then what the Source reads, from the position on.
func (r *reading) all(ctx context.Context) iter.Seq2[activities.Entry, error] {
	return func(yield func(activities.Entry, error) bool) {
		request := activities.ReadRequest{LogicalCluster: r.guard.LogicalCluster, Revision: r.from.revision}
		switch after := r.from.after; {
		case after == nil:
			if !yield(activities.Entry{Ref: logicalClusterRef, Value: r.logicalCluster.Value}, nil) {
				return
			}
		case *after != logicalClusterRef:
			request.After = after
		}
		for batch, err := range r.source.Read(ctx, r.guard, request) {
			if err != nil {
				yield(activities.Entry{}, err)
				return
			}
			for _, entry := range batch {
				if !yield(entry, nil) {
					return
				}
			}
		}
	}
}
