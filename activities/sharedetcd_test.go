package activities_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/etcd"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

// newSharedPair is a pair of two shards that have their storage prefixes in one etcd. The tenant has an entry with a lease, too,
// and both shards have a neighbour.
func newSharedPair(t *testing.T) pair {
	client := startEtcd(t)
	p := newPairOf(t, newShardAt(t, "root", etcd.Config{}, client), newShardAt(t, "shard-1", etcd.Config{Prefix: "/registry/of-shard-1"}, client))
	p.destination.put(t, keyspace.NewLayout("/registry/of-shard-1").LogicalClusterKey(neighbour), logicalCluster("shard-1"))
	lease, err := client.Grant(t.Context(), 3600)
	require.NoError(t, err)
	_, err = client.Put(t.Context(), "/registry/core/events/"+tenant+"/default/leased", "event", clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	return p
}

// step runs one activity of a move of the pair.
func step[Result any](t *testing.T, on *shard, activity, input any) Result {
	t.Helper()
	result, err := perform[Result](t, on, activity, input)
	require.NoError(t, err)
	return result
}

// copyUnder takes a claimed pair as far as the round of verification that matches, under the guards of the run.
func (p pair) copyUnder(t *testing.T, guard activities.Guard) (fenced activities.Guard, verified activities.VerifyResult) {
	fenced = activities.Guard{LogicalCluster: tenant, Token: guard.Token.Next()}
	ref := activities.OriginRef{Address: p.origin.Name, Guard: guard}
	fence := step[activities.FenceResult](t, p.origin, p.origin.FenceOrigin, activities.RaiseInput{Guard: guard, To: fenced.Token})
	step[any](t, p.destination, p.destination.FenceDestination, activities.FenceDestinationInput{Guard: guard, Origin: ref})
	step[any](t, p.destination, p.destination.CopyEntries, activities.CopyInput{Guard: guard, Origin: ref, Revision: fence.Revision})
	verified = step[activities.VerifyResult](t, p.destination, p.destination.VerifyEntries, activities.VerifyInput{Guard: guard, RaiseTo: fenced.Token, Origin: ref})
	require.True(t, verified.Match)
	return fenced, verified
}

// finish takes what was verified to the end.
func (p pair) finish(t *testing.T, fenced activities.Guard, verified activities.VerifyResult) {
	committed := activities.Guard{LogicalCluster: tenant, Token: fenced.Token.Next()}
	step[any](t, p.destination, p.destination.Commit, activities.CommitInput{
		Guard: fenced, RaiseTo: committed.Token, Origin: activities.OriginRef{Address: p.origin.Name, Guard: fenced},
	})
	step[any](t, p.destination, p.destination.AwaitServing, activities.ServeInput{Guard: committed})
	step[any](t, p.origin, p.origin.WakeShard, activities.GuardInput{Guard: fenced})
	step[any](t, p.origin, p.origin.DropOriginLogicalCluster, activities.GuardInput{Guard: fenced})
	swept := step[activities.DeleteResult](t, p.origin, p.origin.DeleteOriginEntries, activities.DeleteInput{Guard: fenced, Revision: verified.OriginRevision})
	require.Equal(t, verified.Entries, swept.Deleted)
	require.Empty(t, swept.Stragglers)
	step[any](t, p.origin, p.origin.Release, activities.GuardInput{Guard: fenced})
	step[any](t, p.destination, p.destination.Release, activities.GuardInput{Guard: committed})
}

// back is the pair for the way back.
func (p pair) back(t *testing.T, run string) (pair, activities.Guard) {
	back := pair{origin: p.destination, destination: p.origin}
	back.destination.Dialer = direct{activities.NewOrigin(back.origin.store)}
	back.origin.claim(t, activities.NewToken(run))
	return back, back.destination.claim(t, activities.NewToken(run))
}

// entries are the values of all that one logical cluster has below a prefix but its LogicalCluster, by what comes after the prefix.
func entries(t *testing.T, of *shard, prefix, logicalCluster string) map[string]string {
	found := map[string]string{}
	layout := keyspace.NewLayout(prefix)
	for key, value := range of.export(t, prefix+"/") {
		entry, err := layout.Parse(key)
		if err == nil && entry.LogicalCluster == logicalCluster && key != layout.LogicalClusterKey(logicalCluster) {
			found[strings.TrimPrefix(key, prefix)] = value
		}
	}
	return found
}

func TestMove_BetweenTwoShardsOfOneEtcd_GoesThereAndBack(t *testing.T) {
	p := newSharedPair(t)
	const here, there = "/registry", "/registry/of-shard-1"
	tenants, neighbours := entries(t, p.origin, here, tenant), entries(t, p.origin, here, neighbour)
	require.Len(t, tenants, 4)

	moved, verified := p.copyUnder(t, guard)
	p.finish(t, moved, verified)
	require.Empty(t, p.origin.export(t, "/kcp-migrate/migrations/"))
	require.Empty(t, entries(t, p.origin, here, tenant))
	require.Equal(t, tenants, entries(t, p.origin, there, tenant))
	require.False(t, p.destination.logicalCluster(t, tenant).Inactive())

	back, backward := p.back(t, "the-way-back")
	moved, verified = back.copyUnder(t, backward)
	back.finish(t, moved, verified)
	require.Empty(t, p.origin.export(t, "/kcp-migrate/migrations/"))
	require.Equal(t, tenants, entries(t, p.origin, here, tenant))
	require.Empty(t, entries(t, p.origin, there, tenant))
	require.False(t, p.origin.logicalCluster(t, tenant).Inactive())
	require.Equal(t, neighbours, entries(t, p.origin, here, neighbour))
	require.Equal(t, "shard-1", p.destination.logicalCluster(t, neighbour).Shard())
}

func TestUndo_BetweenTwoShardsOfOneEtcd_LeavesTheOriginAsItWas(t *testing.T) {
	p := newSharedPair(t)
	tenants := entries(t, p.origin, "/registry", tenant)
	moved, _ := p.copyUnder(t, guard)

	sealed := activities.Guard{LogicalCluster: tenant, Token: moved.Token.Next()}
	step[any](t, p.destination, p.destination.Seal, activities.RaiseInput{Guard: moved, To: sealed.Token})
	step[any](t, p.destination, p.destination.DropDestinationEntries, activities.GuardInput{Guard: sealed})
	step[any](t, p.destination, p.destination.DropDestinationLogicalCluster, activities.GuardInput{Guard: sealed})
	step[any](t, p.origin, p.origin.LiftFence, activities.GuardInput{Guard: moved})
	step[any](t, p.destination, p.destination.Release, activities.GuardInput{Guard: sealed})
	require.NotEmpty(t, p.origin.export(t, "/kcp-migrate/migrations/"), "the origin's claim is another one")
	step[any](t, p.origin, p.origin.Release, activities.GuardInput{Guard: moved})

	require.Equal(t, tenants, entries(t, p.origin, "/registry", tenant))
	require.Empty(t, entries(t, p.origin, "/registry/of-shard-1", tenant))
	require.False(t, p.origin.logicalCluster(t, tenant).Inactive())
	require.Empty(t, p.origin.export(t, "/kcp-migrate/migrations/"))
}

func TestShards_OfOneEtcd_DoNotWaitForEachOthersLocks(t *testing.T) {
	p := newSharedPair(t)
	first, err := p.origin.store.Lock(t.Context(), "wake")
	require.NoError(t, err)
	defer first()
	second, err := p.destination.store.Lock(t.Context(), "wake")
	require.NoError(t, err)
	second()
}
