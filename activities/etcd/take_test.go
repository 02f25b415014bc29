package etcd

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// taker is a recovery's guard before it knows the token's number.
var taker = activities.Guard{LogicalCluster: consumer, Token: "recovery/1"}

func take(t *testing.T, store *Store, by activities.Guard, from string) (activities.Claim, error) {
	t.Helper()
	return store.TakeClaim(t.Context(), by, from, activities.ClaimInfo{RunID: by.Token.Run(), Recovers: "run-1"})
}

func TestTakeClaim_FromADeadRun_LeavesNoneOfItsWritesAnythingToDo(t *testing.T) {
	lines := fixture(t, "root")
	eachServer(t, func(t *testing.T, server *server) {
		ctx, store := t.Context(), server.open(t)
		load(t, store, lines)
		claimed(t, store)
		held := activities.Guard{LogicalCluster: consumer, Token: guard.Token.Next()}
		require.NoError(t, store.RaiseToken(ctx, guard, held.Token))

		for _, attempt := range []string{"first", "repeat"} {
			taken, err := take(t, store, taker, guard.Token.Run())
			require.NoError(t, err, attempt)
			require.Equal(t, activities.Token("recovery/2"), taken.Token, "the number tells on")
			require.Equal(t, "run-1", taken.Move())
		}

		before := export(t, store, everything)
		for name, write := range everyWrite {
			if name != "Release" {
				require.ErrorIs(t, write(ctx, store, held), activities.ErrTokenLost, name)
			}
		}
		require.ErrorIs(t, store.RaiseToken(ctx, held, "run-1/1000"), activities.ErrTokenLost)
		_, err := store.Claim(ctx, held, activities.ClaimInfo{RunID: "run-1"})
		require.ErrorIs(t, err, activities.ErrClaimed)
		require.NoError(t, store.Seal(ctx, held, "run-1/1000"))
		require.NoError(t, store.Release(ctx, held), "another run's claim is none of its business")
		require.Equal(t, before, export(t, store, everything))
	})
}

func TestTakeClaim_AfterTheCommit_KeepsTheLanding(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		ctx, store := t.Context(), server.open(t)
		claimed(t, store)
		known := activities.Landing{VerifiedRevision: 77, Entries: 5, Bytes: 50, SHA256: "digest"}
		landed, err := store.Commit(ctx, guard, 0, []byte("open"), guard.Token.Next(), known)
		require.NoError(t, err)

		for _, by := range []string{"recovery", "another"} {
			guard := activities.Guard{LogicalCluster: consumer, Token: activities.NewToken(by)}
			from, err := store.ReadClaim(ctx, consumer)
			require.NoError(t, err)
			taken, err := take(t, store, guard, from.Claimant())
			require.NoError(t, err)
			require.True(t, taken.Committed)
			known.Token, known.Revision = taken.Token, landed
			require.Equal(t, &known, taken.Landing)
			require.ErrorIs(t, store.Seal(ctx, guard, taken.Token.Next()), activities.ErrCommitted)
			again, err := store.Commit(ctx, activities.Guard{LogicalCluster: consumer, Token: taken.Token}, 0, nil, taken.Token.Next(), activities.Landing{})
			require.NoError(t, err)
			require.Equal(t, landed, again)
		}
	})
}

func TestTakeClaim_SealedByDeletion_EndsTheSealedRunsDeletionsToo(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		ctx, store := t.Context(), server.open(t)
		claimed(t, store)
		require.NoError(t, store.sealByDeletion(ctx, guard, sealed))
		_, err := take(t, store, taker, guard.Token.Run())
		require.NoError(t, err)
		require.ErrorIs(t, everyWrite["DeleteAll"](ctx, store, undo), activities.ErrTokenLost)
		require.NoError(t, store.Release(ctx, undo), "another run's claim is none of its business")
		require.NoError(t, store.RaiseToken(ctx, taker, taker.Token.Next()), "it is held")
	})
}

func TestTakeClaim_ThatChangedHands_IsRefused(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		ctx, store := t.Context(), server.open(t)
		_, err := take(t, store, taker, "run-1")
		require.ErrorIs(t, err, activities.ErrClaimed, "nobody holds it any more")
		claimed(t, store)
		_, err = take(t, store, taker, "")
		require.ErrorIs(t, err, activities.ErrClaimed, "somebody holds it by now")
		held, err := take(t, store, taker, "somebody")
		require.ErrorIs(t, err, activities.ErrClaimed)
		require.Equal(t, guard.Token, held.Token)
		require.NoError(t, store.Release(ctx, guard))
		taken, err := take(t, store, taker, "")
		require.NoError(t, err)
		require.Equal(t, taker.Token, taken.Token)
	})
}

func TestTakeClaim_ByManyAtTheSameTime_IsHeldByOne(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		store := server.open(t)
		claimed(t, store)
		failures := make([]error, 20)
		var racing sync.WaitGroup
		for i := range failures {
			by := activities.Guard{LogicalCluster: consumer, Token: activities.NewToken(fmt.Sprint("recovery-", i))}
			racing.Go(func() { _, failures[i] = take(t, store, by, guard.Token.Run()) })
		}
		racing.Wait()
		winners := 0
		for _, failure := range failures {
			if failure == nil {
				winners++
				continue
			}
			require.ErrorIs(t, failure, activities.ErrClaimed)
		}
		require.Equal(t, 1, winners)
	})
}

func TestTakeClaimAndCommit_AtTheSameTime_AgreeOnWhetherItLanded(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		ctx, store := t.Context(), server.open(t)
		for round := range 50 {
			held := activities.Guard{LogicalCluster: consumer, Token: activities.NewToken(fmt.Sprint("round-", round))}
			_, err := store.Claim(ctx, held, activities.ClaimInfo{RunID: held.Token.Run()})
			require.NoError(t, err)
			var taken activities.Claim
			var takeErr, commitErr error
			var racing sync.WaitGroup
			racing.Go(func() { taken, takeErr = take(t, store, taker, held.Token.Run()) })
			racing.Go(func() {
				_, commitErr = store.Commit(ctx, held, 0, []byte("open"), held.Token.Next(), activities.Landing{})
			})
			racing.Wait()
			require.NoError(t, takeErr)
			require.Equal(t, commitErr == nil, taken.Committed)
			if commitErr != nil {
				require.ErrorIs(t, commitErr, activities.ErrTokenLost)
			}
			deleteRaw(t, store, store.layout.LogicalClusterKey(consumer))
			require.NoError(t, store.Release(ctx, activities.Guard{LogicalCluster: consumer, Token: taken.Token}))
		}
	})
}
