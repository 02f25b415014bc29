package activities_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
	"github.com/kcp-migrate/kcp-migrate/test/etcdproxy"
)

const waitFor, tick = time.Minute, 10 * time.Millisecond

// smallQuota makes an etcd that is soon full.
func smallQuota(config *embed.Config) { config.QuotaBackendBytes = 4 << 20 }

// fatten gives the tenant entries of 100 kB.
func (p pair) fatten(t *testing.T, count int) {
	for i := range count {
		p.origin.put(t, fmt.Sprintf("/registry/core/configmaps/%s/fat/%04d", tenant, i), strings.Repeat("x", 100<<10))
	}
}

// fillUp writes beside the tenant until etcd takes no more.
func (s *shard) fillUp(t *testing.T) {
	require.Eventually(t, func() bool {
		_, err := s.client.Put(t.Context(), "/filling", strings.Repeat("x", 200<<10))
		return err != nil
	}, waitFor, time.Millisecond)
}

// makeRoom is what a person does about a full etcd.
func (s *shard) makeRoom(t *testing.T) {
	ctx := t.Context()
	deleted, err := s.client.Delete(ctx, "/filling")
	require.NoError(t, err)
	_, err = s.client.Compact(ctx, deleted.Header.Revision, clientv3.WithCompactPhysical())
	require.NoError(t, err)
	_, err = s.client.Defragment(ctx, s.client.Endpoints()[0])
	require.NoError(t, err)
	_, err = s.client.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	require.NoError(t, err)
}

// interrupted calls a function once, after the first batch of a read.
type interrupted struct {
	activities.Source
	once atomic.Bool
	call func()
}

func (i *interrupted) Read(ctx context.Context, guard activities.Guard, request activities.ReadRequest) activities.Batches {
	return func(yield func([]activities.Entry, error) bool) {
		for batch, err := range i.Source.Read(ctx, guard, request) {
			if !yield(batch, err) {
				return
			}
			if i.once.CompareAndSwap(false, true) {
				i.call()
			}
		}
	}
}

func TestCopyEntries_WhenItsRevisionIsCompacted_GoesOnAtANewerOne(t *testing.T) {
	p := newPair(t)
	p.fatten(t, 200)
	fence := p.fence(t)
	p.enclose(t)
	p.destination.Dialer = direct{&interrupted{Source: activities.NewOrigin(p.origin.store), call: func() {
		p.origin.put(t, "/elsewhere", "so that there is a newer revision")
		_, err := p.origin.client.Compact(t.Context(), p.revision(t))
		require.NoError(t, err)
	}}}
	copied := p.copy(t, fence.Revision)
	require.Greater(t, copied.Revision, fence.Revision)
	require.EqualValues(t, 203, copied.Entries, "no entry is counted twice")
	require.True(t, p.verify(t, first).Match)
}

func TestCopyEntries_WhenTheDestinationIsFull_IsTakenBackAndTheOriginOpens(t *testing.T) {
	p := newPairOf(t, newShard(t, "root"), newShard(t, "shard-1", smallQuota))
	p.fatten(t, 100)
	fence := p.fence(t)
	p.enclose(t)
	var err error
	require.Eventually(t, func() bool { // etcd looks at its quota only as its database grows, every 100 ms
		err = attempt(t, p.destination, p.destination.CopyEntries, activities.CopyInput{Guard: guard, Origin: p.ref, Revision: fence.Revision})
		return err != nil
	}, waitFor, time.Millisecond)
	requireRefused(t, activities.NoSpace, err)

	undo := activities.Guard{LogicalCluster: tenant, Token: first.Next()}
	sealed, err := perform[activities.SealResult](t, p.destination, p.destination.Seal, activities.RaiseInput{Guard: guard, To: undo.Token})
	require.NoError(t, err)
	require.False(t, sealed.Committed)
	require.NoError(t, attempt(t, p.destination, p.destination.SweepDestination, activities.GuardInput{Guard: undo}), "it has nothing to put")
	p.takeBack(t, undo)
	require.Empty(t, p.destination.export(t, "/registry/core/"))
	require.Empty(t, p.destination.export(t, "/kcp-migrate/migrations/"))
	require.Len(t, p.origin.export(t, "/registry/core/configmaps/"+tenant+"/"), 102)
	require.False(t, p.origin.logicalCluster(t, tenant).Inactive())
}

func TestMove_OfAnEntryThatIsTooLargeForTheDestination_IsRefusedOrLeavesIt(t *testing.T) {
	small := func(config *embed.Config) { config.MaxRequestBytes = 50 << 10 }
	p := newPairOf(t, newShard(t, "root"), newShard(t, "shard-1", small))
	p.fill(t)
	verified := p.verify(t, first)
	p.commit(t)
	p.fatten(t, 1)
	late := activities.Straggler{Ref: activities.Ref{Family: keyspace.Family{Group: "core", Resource: "configmaps"}, Suffix: "fat/0000"}}
	held := activities.Guard{LogicalCluster: tenant, Token: first.Next().Next()}
	carried, err := perform[activities.CarryResult](t, p.destination, p.destination.CarryStragglers, activities.CarryInput{
		Guard: held, Origin: p.ref, VerifiedRevision: verified.OriginRevision, Stragglers: []activities.Straggler{late},
	})
	require.NoError(t, err, "a cleanup only goes forward")
	require.False(t, carried.Stragglers[0].Carried)
	require.Contains(t, carried.Stragglers[0].Reason, "too large")

	err = attempt(t, p.destination, p.destination.CopyEntries, activities.CopyInput{Guard: held, Origin: p.ref, Revision: p.revision(t)})
	requireRefused(t, activities.EntryTooLarge, err)
	require.ErrorContains(t, err, "fat/0000")
	require.ErrorContains(t, err, "--max-request-bytes")
}

func TestLiftFence_WhenTheOriginIsFull_SaysWhatToDoAndThenGoesOn(t *testing.T) {
	p := newPairOf(t, newShard(t, "root", smallQuota), newShard(t, "shard-1"))
	p.fence(t)
	p.origin.fillUp(t)
	err := attempt(t, p.origin, p.origin.LiftFence, activities.GuardInput{Guard: fenced})
	requireRefused(t, activities.NoSpace, err)
	require.ErrorContains(t, err, "disarm the alarm")
	require.True(t, p.origin.logicalCluster(t, tenant).Inactive(), "no deletion can take the annotation away")

	p.origin.makeRoom(t)
	require.NoError(t, attempt(t, p.origin, p.origin.LiftFence, activities.GuardInput{Guard: fenced}))
	require.False(t, p.origin.logicalCluster(t, tenant).Inactive())
}

func TestVerifyEntries_WhenALeaseRanOutMeanwhile_TakesBothSidesForEqual(t *testing.T) {
	p := newPair(t)
	lease, err := p.origin.client.Grant(t.Context(), 25) // where a digest tolerates that one side has lost it already
	require.NoError(t, err)
	event := "/registry/core/events/" + tenant + "/default/short"
	_, err = p.origin.client.Put(t.Context(), event, "event", clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	p.fill(t)
	require.Len(t, p.destination.export(t, event), 1)
	_, err = p.origin.client.Revoke(t.Context(), lease.ID) // as its end does
	require.NoError(t, err)
	require.True(t, p.verify(t, first).Match)
	copied, err := p.destination.client.Get(t.Context(), event)
	require.NoError(t, err)
	for _, kv := range copied.Kvs {
		require.NotZero(t, kv.Lease, "it must not live for ever")
	}
}

func TestMove_WhenEtcdAnswersSlowly_IsWholeAllTheSame(t *testing.T) {
	p := newPair(t)
	p.fatten(t, 50)
	fence := p.fence(t)
	proxy := etcdproxy.Start(t, p.destination.client.Endpoints()[0])
	p.destination = p.destination.through(t, proxy)
	proxy.Set(etcdproxy.Hooks{Answer: func(string) error { time.Sleep(200 * time.Millisecond); return nil }}) // as a slow disk does
	p.enclose(t)
	p.copy(t, fence.Revision)
	require.True(t, p.verify(t, first).Match)
	p.commit(t)
}

func TestCommit_WhoseAnswerIsLost_IsFoundLandedByItsRetryAndByAnUndo(t *testing.T) {
	p := newPair(t)
	p.fill(t)
	p.verify(t, first)
	proxy := etcdproxy.Start(t, p.destination.client.Endpoints()[0])
	loser := p.destination.through(t, proxy)
	proxy.Set(etcdproxy.Hooks{Answer: func(method string) error {
		if method == etcdproxy.TxnMethod {
			return errors.New("the answer was lost")
		}
		return nil
	}})
	held := activities.Guard{LogicalCluster: tenant, Token: first.Next()}
	require.Error(t, attempt(t, loser, loser.Commit, activities.CommitInput{Guard: held, RaiseTo: held.Token.Next(), Origin: p.ref}))
	require.False(t, p.destination.logicalCluster(t, tenant).Inactive(), "it has landed")

	require.Positive(t, p.commit(t).Revision)
	sealed, err := perform[activities.SealResult](t, p.destination, p.destination.Seal, activities.RaiseInput{Guard: held, To: held.Token.Next().Next()})
	require.NoError(t, err)
	require.True(t, sealed.Committed)
}
