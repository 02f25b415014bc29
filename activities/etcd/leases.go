package etcd

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
)

const (
	// bucketWidth is how coarsely remaining times are rounded up, so that many entries share a lease.
	// kcp's Events live for an hour.
	bucketWidth = 10 * time.Second
	// bucketReuse leaves every entry of the shortest bucket time to be written before its lease ends.
	bucketReuse = bucketWidth / 2

	leaseReadsInFlight = 16
)

// remaining tells the remaining times of leases, each asked for once in its lifetime of one read.
type remaining struct {
	store *Store
	times map[int64]time.Duration
}

func (s *Store) newRemaining() *remaining {
	return &remaining{store: s, times: map[int64]time.Duration{}}
}

// learn asks for the leases of a window that are not known yet.
func (r *remaining) learn(ctx context.Context, window []*mvccpb.KeyValue) error {
	unknown := map[int64]*time.Duration{}
	for _, kv := range window {
		if _, known := r.times[kv.Lease]; !known && kv.Lease != 0 {
			unknown[kv.Lease] = new(time.Duration)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(leaseReadsInFlight)
	for lease, left := range unknown {
		group.Go(func() error {
			response, err := r.store.client.TimeToLive(ctx, clientv3.LeaseID(lease))
			if err != nil {
				return fmt.Errorf("read lease %x: %w", lease, translate(err))
			}
			*left = time.Duration(response.TTL) * time.Second
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for lease, left := range unknown {
		r.times[lease] = *left
	}
	return nil
}

// of gives the remaining time of a key's lease, 0 if it has none. False: the lease has ended and the
// key with it, although it is still there at the revision that is read (etcd answers -1).
func (r *remaining) of(kv *mvccpb.KeyValue) (time.Duration, bool) {
	if kv.Lease == 0 {
		return 0, true
	}
	left := r.times[kv.Lease]
	return left, left > 0
}

// buckets grants leases for one write: one for all entries that have about the same time left.
// They are never revoked, which would delete keys without looking at the token: they run out.
type buckets struct {
	store   *Store
	granted map[time.Duration]grantedLease
}

type grantedLease struct {
	id clientv3.LeaseID
	at time.Time
}

func (s *Store) newBuckets() *buckets {
	return &buckets{store: s, granted: map[time.Duration]grantedLease{}}
}

func (b *buckets) lease(ctx context.Context, left time.Duration) (clientv3.LeaseID, error) {
	if left <= 0 {
		return clientv3.NoLease, nil
	}
	bucket := (left + bucketWidth - 1).Truncate(bucketWidth)
	if granted, found := b.granted[bucket]; found && time.Since(granted.at) < bucketReuse {
		return granted.id, nil
	}
	response, err := b.store.client.Grant(ctx, int64(bucket.Seconds()))
	if err != nil {
		return clientv3.NoLease, fmt.Errorf("grant lease of %s: %w", bucket, translate(err))
	}
	b.granted[bucket] = grantedLease{id: response.ID, at: time.Now()}
	return response.ID, nil
}
