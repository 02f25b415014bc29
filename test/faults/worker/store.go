package main

import (
	"context"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// watchedStore tells when an activity's first write has landed: that is its midst.
type watchedStore struct{ activities.Store }

// Write is in its midst when the first batch has been read and not yet been written.
func (s watchedStore) Write(ctx context.Context, guard activities.Guard, batches activities.Batches, acknowledged func(activities.Written)) error {
	return s.Store.Write(ctx, guard, func(yield func([]activities.Entry, error) bool) {
		for batch, err := range batches {
			inMidst(ctx)
			if !yield(batch, err) {
				return
			}
		}
	}, acknowledged)
}

func (s watchedStore) Repair(ctx context.Context, guard activities.Guard, enclosedAt int64, puts []activities.Entry, deletes []activities.Ref) error {
	defer inMidst(ctx)
	return s.Store.Repair(ctx, guard, enclosedAt, puts, deletes)
}

func (s watchedStore) DeleteVerified(ctx context.Context, guard activities.Guard, verifiedRevision, cut int64) (int64, []activities.Straggler, error) {
	defer inMidst(ctx)
	return s.Store.DeleteVerified(ctx, guard, verifiedRevision, cut)
}

func (s watchedStore) DeleteAll(ctx context.Context, guard activities.Guard) (int64, error) {
	defer inMidst(ctx)
	return s.Store.DeleteAll(ctx, guard)
}

func (s watchedStore) Claim(ctx context.Context, guard activities.Guard, info activities.ClaimInfo) (activities.Claim, error) {
	defer inMidst(ctx)
	return s.Store.Claim(ctx, guard, info)
}

func (s watchedStore) RaiseToken(ctx context.Context, guard activities.Guard, to activities.Token) error {
	defer inMidst(ctx)
	return s.Store.RaiseToken(ctx, guard, to)
}

func (s watchedStore) Seal(ctx context.Context, guard activities.Guard, to activities.Token) error {
	defer inMidst(ctx)
	return s.Store.Seal(ctx, guard, to)
}

func (s watchedStore) Release(ctx context.Context, guard activities.Guard) error {
	defer inMidst(ctx)
	return s.Store.Release(ctx, guard)
}

func (s watchedStore) EditLogicalCluster(ctx context.Context, guard activities.Guard, logicalCluster string, modRevision int64, value []byte) (int64, error) {
	defer inMidst(ctx)
	return s.Store.EditLogicalCluster(ctx, guard, logicalCluster, modRevision, value)
}

func (s watchedStore) EditCutting(ctx context.Context, guard activities.Guard, logicalCluster string, modRevision int64, value []byte) (int64, error) {
	defer inMidst(ctx)
	return s.Store.EditCutting(ctx, guard, logicalCluster, modRevision, value)
}

func (s watchedStore) DeleteLogicalCluster(ctx context.Context, guard activities.Guard, modRevision int64) error {
	defer inMidst(ctx)
	return s.Store.DeleteLogicalCluster(ctx, guard, modRevision)
}

func (s watchedStore) Commit(ctx context.Context, guard activities.Guard, modRevision int64, value []byte, raiseTo activities.Token, landing activities.Landing) (int64, error) {
	defer inMidst(ctx)
	return s.Store.Commit(ctx, guard, modRevision, value, raiseTo, landing)
}

func (s watchedStore) CreateBoundCRD(ctx context.Context, guard activities.Guard, schemaUID string, value []byte) (bool, error) {
	defer inMidst(ctx)
	return s.Store.CreateBoundCRD(ctx, guard, schemaUID, value)
}

func (s watchedStore) LiftRevision(ctx context.Context, guard activities.Guard, revision int64, perSecond int, progress func(revision int64)) (int64, error) {
	defer inMidst(ctx)
	return s.Store.LiftRevision(ctx, guard, revision, perSecond, progress)
}

func (s watchedStore) DropLogicalCluster(ctx context.Context, guard activities.Guard, modRevision int64) error {
	defer inMidst(ctx)
	return s.Store.DropLogicalCluster(ctx, guard, modRevision)
}
