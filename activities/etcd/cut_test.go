package etcd

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

// cutOff has another tenant's move wake the shard, and gives the revision.
func cutOff(t *testing.T, store *Store) int64 {
	t.Helper()
	ctx, other := t.Context(), activities.Guard{LogicalCluster: neighbour, Token: activities.NewToken("another-run")}
	_, err := store.Claim(ctx, other, activities.ClaimInfo{RunID: other.Token.Run()})
	require.NoError(t, err)
	object, _, err := store.logicalCluster(ctx, keyspace.SystemShard)
	require.NoError(t, err)
	var modRevision int64
	if object != nil {
		modRevision = object.ModRevision
	}
	revision, err := store.EditCutting(ctx, other, keyspace.SystemShard, modRevision, []byte("{}"))
	require.NoError(t, err)
	return revision
}

func requireCut(t *testing.T, store *Store, revision int64) {
	t.Helper()
	latest, err := store.LatestCut(t.Context())
	require.NoError(t, err)
	require.Equal(t, revision, latest)
}

func TestLatestCut_IsOfTheEditThatCutsAndOfTheCommit(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		ctx, store := t.Context(), server.open(t)
		claimed(t, store)
		requireCut(t, store, 0)
		first, err := store.EditLogicalCluster(ctx, guard, consumer, 0, []byte("1"))
		require.NoError(t, err)
		requireCut(t, store, 0)
		second, err := store.EditCutting(ctx, guard, consumer, first, []byte("2"))
		require.NoError(t, err)
		requireCut(t, store, second)
		_, err = store.EditCutting(ctx, guard, consumer, first, []byte("3"))
		require.ErrorIs(t, err, activities.ErrConflict)
		requireCut(t, store, second)
		landed, err := store.Commit(ctx, guard, second, []byte("{}"), guard.Token.Next(), activities.Landing{})
		require.NoError(t, err)
		requireCut(t, store, landed)
	})
}

func TestLatestCut_OfTwoShardsInOneEtcd_IsEachOnesOwn(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		store := server.open(t)
		requireCut(t, store, 0)
		cut := cutOff(t, store)
		requireCut(t, store, cut)
		requireCut(t, server.openBelow(t, otherPrefix), 0)
	})
}

func TestDeleteVerified_OnceAnotherMoveCutTheInformersOff_DeletesNothingMore(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		ctx, store := t.Context(), server.open(t)
		entries, verified := written(t, store, leastKeysPage+10)
		cut := cutOff(t, store)

		// The second cut comes between the first page and the second.
		pages := store.deleteSeen(cut)
		sweep := store.sweep(guard, verified+1, pages)
		sweep.txn = func(
			ctx context.Context, guard activities.Guard, keys span, compares []clientv3.Cmp, deletes ...clientv3.Op,
		) (*clientv3.TxnResponse, error) {
			response, err := pages(ctx, guard, keys, compares, deletes...)
			if err == nil {
				cutOff(t, store)
			}
			return response, err
		}
		deleted, err := sweep.all(ctx)
		require.ErrorIs(t, err, activities.ErrCutOff)
		require.Equal(t, int64(leastKeysPage), deleted)

		putRaw(t, store, keyOf(entries[leastKeysPage].Ref), "late") // so that it is one by one now
		_, _, err = store.DeleteVerified(ctx, guard, verified, cut)
		require.ErrorIs(t, err, activities.ErrCutOff)
		latest, err := store.LatestCut(ctx)
		require.NoError(t, err)
		deleted, stragglers, err := store.DeleteVerified(ctx, guard, verified, latest)
		require.NoError(t, err)
		require.Equal(t, int64(9), deleted)
		require.Len(t, stragglers, 1, "the late one: none is told to have been deleted by somebody else")
	})
}

func TestDeleteVerified_WithNothingToDelete_IsNotHinderedByACut(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		store := server.open(t)
		_, verified := written(t, store, 3)
		_, _, err := store.DeleteVerified(t.Context(), guard, verified, activities.WhicheverCut)
		require.NoError(t, err)
		cutOff(t, store)
		_, _, err = store.DeleteVerified(t.Context(), guard, verified, 1)
		require.NoError(t, err)
	})
}
