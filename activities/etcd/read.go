package etcd

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

const getsInFlight = 16

// Revision is the store's current revision, read linearizably.
func (s *Store) Revision(ctx context.Context) (int64, error) {
	response, err := s.client.Get(ctx, revisionKey, clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("read revision: %w", translate(err))
	}
	return response.Header.Revision, nil
}

// Read streams every entry but the LogicalCluster at a pinned revision: families by name, in each by key.
func (s *Store) Read(ctx context.Context, request activities.ReadRequest) activities.Batches {
	return func(yield func([]activities.Entry, error) bool) {
		if request.Revision <= 0 {
			yield(nil, fmt.Errorf("read logical cluster %s: no revision given", request.LogicalCluster))
			return
		}
		families, err := s.discover(ctx, request.LogicalCluster, request.Revision)
		if err != nil {
			yield(nil, err)
			return
		}
		streams, stop := s.readAhead(ctx, request, families)
		defer stop()
		for _, stream := range streams {
			for read := range stream {
				if !yield(read.entries, read.err) || read.err != nil {
					return
				}
			}
			if err := ctx.Err(); err != nil { // a family that was cut short must not look complete
				yield(nil, err)
				return
			}
		}
	}
}

// read is a batch, or why there are no more.
type read struct {
	entries []activities.Entry
	err     error
}

// readAhead reads some families at once, each as far as a batch ahead of its turn: most have few entries, and cost little but the
// way to etcd and back. stop ends what still runs.
func (s *Store) readAhead(
	ctx context.Context, request activities.ReadRequest, families []keyspace.Family,
) (streams []chan read, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	streams = make([]chan read, len(families))
	for i := range streams {
		streams[i] = make(chan read, 1)
	}
	var all sync.WaitGroup
	all.Go(func() {
		var readers errgroup.Group
		readers.SetLimit(familiesInFlight)
		for i, family := range families {
			readers.Go(func() error {
				defer close(streams[i])
				s.readInto(ctx, request, family, streams[i])
				return nil // it is in the stream
			})
		}
		_ = readers.Wait()
	})
	return streams, func() {
		cancel()
		all.Wait()
	}
}

func (s *Store) readInto(ctx context.Context, request activities.ReadRequest, family keyspace.Family, stream chan<- read) {
	keys, left := s.resume(request, family)
	if !left || ctx.Err() != nil {
		return
	}
	for entries, err := range s.readFamily(ctx, request, family, keys, s.newRemaining()) {
		select {
		case stream <- read{entries, err}:
		case <-ctx.Done():
			return
		}
	}
}

// resume gives what of a family is still to be read. False: an earlier stream has delivered all of it.
func (s *Store) resume(request activities.ReadRequest, family keyspace.Family) (span, bool) {
	keys := prefixSpan(s.layout.FamilyPrefix(family, request.LogicalCluster))
	if request.After == nil {
		return keys, true
	}
	switch order := compareFamilies(family, request.After.Family); {
	case order < 0:
		return span{}, false
	case order == 0:
		keys.from += request.After.Suffix + "\x00"
	}
	return keys, true
}

func (s *Store) readFamily(
	ctx context.Context, request activities.ReadRequest, family keyspace.Family, keys span, times *remaining,
) activities.Batches {
	return func(yield func([]activities.Entry, error) bool) {
		for window, err := range s.stream(ctx, keys, request.Revision) {
			var entries []activities.Entry
			if err == nil {
				entries, err = s.entries(ctx, request.LogicalCluster, family, window, times)
			}
			if err != nil {
				yield(nil, fmt.Errorf("read family %s of logical cluster %s at revision %d: %w",
					family, request.LogicalCluster, request.Revision, err))
				return
			}
			if len(entries) > 0 && !yield(entries, nil) {
				return
			}
		}
	}
}

// entries turns keys of one family into entries. The LogicalCluster and what ended with its lease are left out.
func (s *Store) entries(
	ctx context.Context, logicalCluster string, family keyspace.Family, window []*mvccpb.KeyValue, times *remaining,
) ([]activities.Entry, error) {
	if err := times.learn(ctx, window); err != nil {
		return nil, err
	}
	prefix := len(s.layout.FamilyPrefix(family, logicalCluster))
	logicalClusterKey := s.layout.LogicalClusterKey(logicalCluster)
	entries := make([]activities.Entry, 0, len(window))
	for _, kv := range window {
		left, alive := times.of(kv)
		if !alive || string(kv.Key) == logicalClusterKey {
			continue
		}
		plaintext, err := s.encryption.decrypt(ctx, family, string(kv.Key), kv.Value)
		if err != nil {
			return nil, err
		}
		entries = append(entries, activities.Entry{
			Ref:            activities.Ref{Family: family, Suffix: string(kv.Key[prefix:])},
			Value:          plaintext,
			ModRevision:    kv.ModRevision,
			CreateRevision: kv.CreateRevision,
			TTL:            left,
		})
	}
	return entries, nil
}

// List gives the entries of some families without their values, at a pinned revision, families by name, in each by key.
func (s *Store) List(
	ctx context.Context, logicalCluster string, families []keyspace.Family, revision int64,
) ([]activities.Listed, error) {
	request := activities.ReadRequest{LogicalCluster: logicalCluster, Revision: revision}
	times := s.newRemaining()
	var listed []activities.Listed
	for _, family := range slices.SortedFunc(slices.Values(families), compareFamilies) {
		keys, _ := s.resume(request, family)
		for entries, err := range s.readFamily(ctx, request, family, keys, times) {
			if err != nil {
				return nil, err
			}
			for _, entry := range entries {
				listed = append(listed, list(entry))
			}
		}
	}
	return listed, nil
}

func list(entry activities.Entry) activities.Listed {
	return activities.Listed{
		Ref:         entry.Ref,
		SHA256:      sha256.Sum256(entry.Value),
		Bytes:       int64(len(entry.Value)),
		ModRevision: entry.ModRevision,
		TTL:         entry.TTL,
	}
}

// Get gives those of refs that exist now, in the order of refs.
func (s *Store) Get(ctx context.Context, logicalCluster string, refs []activities.Ref) ([]activities.Entry, error) {
	found := make([][]activities.Entry, len(refs))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(getsInFlight)
	for i, ref := range refs {
		group.Go(func() (err error) {
			found[i], err = s.get(groupCtx, logicalCluster, ref)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return slices.Concat(found...), nil
}

func (s *Store) get(ctx context.Context, logicalCluster string, ref activities.Ref) ([]activities.Entry, error) {
	key, err := s.key(logicalCluster, ref)
	if err != nil {
		return nil, err
	}
	response, err := s.client.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("read %s of logical cluster %s: %w", ref, logicalCluster, translate(err))
	}
	entries, err := s.entries(ctx, logicalCluster, ref.Family, response.Kvs, s.newRemaining())
	if err != nil {
		return nil, fmt.Errorf("read %s of logical cluster %s: %w", ref, logicalCluster, err)
	}
	return entries, nil
}

// Keys lists at most limit keys of a logical cluster as they stand now, its LogicalCluster included.
func (s *Store) Keys(ctx context.Context, logicalCluster string, limit int) ([]string, error) {
	families, err := s.discover(ctx, logicalCluster, 0)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, family := range families {
		prefix := s.layout.FamilyPrefix(family, logicalCluster)
		if len(found) >= limit {
			break
		}
		response, err := s.client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
			clientv3.WithLimit(int64(limit-len(found))))
		if err != nil {
			return nil, fmt.Errorf("list keys of logical cluster %s: %w", logicalCluster, translate(err))
		}
		for _, kv := range response.Kvs {
			found = append(found, string(kv.Key))
		}
	}
	return found, nil
}
