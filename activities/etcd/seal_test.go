package etcd

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// sealed is the token that the tests seal with, and the guard of the undo after it.
var (
	sealed = guard.Token.Next().Next()
	undo   = activities.Guard{LogicalCluster: consumer, Token: sealed}
	second = activities.Guard{LogicalCluster: consumer, Token: "run-2/1"}
)

// undoes are the writes that may go on under a claim that has lost its token.
var undoes = []string{"DeleteAll", "DeleteLogicalCluster", "Release"}

// seals are the ways to seal, the second for an etcd that is out of space.
var seals = map[string]func(*Store, context.Context, activities.Guard, activities.Token) error{
	"by a higher token": (*Store).Seal,
	"by deletion":       (*Store).sealByDeletion,
}

// fullServers run out of space soon.
var fullServers = map[string]startServer{
	"etcd 3.7":                    startEmbedded(1, embedOptions{quotaBytes: 4 << 20}),
	"etcd 3.7 with three members": startEmbedded(3, embedOptions{quotaBytes: 4 << 20}),
	"etcd 3.6":                    startProgram(built, "--quota-backend-bytes", fmt.Sprint(4<<20)),
	"etcd of the system":          startProgram(ofTheSystem, "--quota-backend-bytes", fmt.Sprint(4<<20)),
}

// fillUp writes entries of the tenant until etcd takes no more: it counts only what it has written to its file, every 100 ms.
func fillUp(t *testing.T, store *Store) {
	t.Helper()
	var err error
	for err == nil {
		err = store.Write(t.Context(), guard, oneBatch(someEntries(100, 200<<10)), ignore)
	}
	require.ErrorIs(t, err, activities.ErrNoSpace)
	require.Eventually(t, func() bool {
		health, err := store.Health(t.Context())
		require.NoError(t, err)
		return slices.Contains(health.Alarms, "NOSPACE")
	}, waitFor, tick)
}

func TestUndo_WhenEtcdIsFull_LeavesNothingOfTheTenant(t *testing.T) {
	for name, start := range fullServers {
		t.Run(name, func(t *testing.T) {
			ctx, store := t.Context(), newServer(t, start).open(t)
			for _, trap := range []string{consumer + "x", neighbour, "system:" + consumer} {
				putRaw(t, store, "/registry/core/configmaps/"+trap+"/"+consumer+"/x", trap)
			}
			claimed(t, store)
			fenced, err := store.EditLogicalCluster(ctx, guard, consumer, 0, []byte("fenced"))
			require.NoError(t, err)
			others := export(t, store, ofOthers)
			fillUp(t, store)
			require.ErrorIs(t, store.RaiseToken(ctx, guard, guard.Token.Next()), activities.ErrNoSpace)

			for _, attempt := range []string{"first", "repeat"} {
				require.NoError(t, store.Seal(ctx, guard, sealed), attempt)
			}
			_, err = store.Commit(ctx, guard, fenced, []byte("open"), guard.Token.Next(), activities.Landing{})
			require.ErrorIs(t, err, activities.ErrNoSpace)
			deleted, err := store.DeleteAll(ctx, undo)
			require.NoError(t, err)
			require.Positive(t, deleted)
			deleted, err = store.DeleteAll(ctx, undo)
			require.NoError(t, err)
			require.Zero(t, deleted)
			require.NoError(t, store.DeleteLogicalCluster(ctx, undo, fenced))
			for _, attempt := range []string{"first", "repeat"} {
				require.NoError(t, store.Release(ctx, undo), attempt)
			}
			require.Equal(t, others, export(t, store, everything))
		})
	}
}

func TestSealByDeletion_LocksOutEveryWriteButTheUndos(t *testing.T) {
	lines := fixture(t, "root")
	eachServer(t, func(t *testing.T, server *server) {
		ctx, store := t.Context(), server.open(t)
		load(t, store, lines)
		claimed(t, store)
		require.NoError(t, store.sealByDeletion(ctx, guard, sealed))
		before := export(t, store, everything)
		for name, write := range everyWrite {
			for _, held := range []activities.Guard{guard, undo, second} {
				if slices.Contains(undoes, name) && held != second || name == "Release" {
					continue
				}
				require.ErrorIs(t, write(ctx, store, held), activities.ErrTokenLost, "%s under %s", name, held.Token)
			}
		}
		require.NoError(t, store.Release(ctx, second), "its own claim is not there")
		require.ErrorIs(t, store.RaiseToken(ctx, guard, sealed), activities.ErrTokenLost)
		require.NoError(t, store.Seal(ctx, guard, sealed), "repeat")
		require.Equal(t, before, export(t, store, everything))

		for _, name := range undoes {
			require.NoError(t, everyWrite[name](ctx, store, undo), name)
		}
		require.Empty(t, export(t, store, func(key string) bool { return !ofOthers(key) }))
	})
}

func TestSealByDeletion_UntilReleased_StillCountsAsTheRunsClaim(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		ctx, store := t.Context(), server.open(t)
		claimed(t, store)
		require.NoError(t, store.sealByDeletion(ctx, guard, sealed))

		claim, err := store.ReadClaim(ctx, consumer)
		require.NoError(t, err)
		require.Equal(t, activities.Claim{ClaimInfo: activities.ClaimInfo{WorkflowID: "migrate-" + consumer, RunID: "run-1"}}, claim)
		_, err = store.Claim(ctx, second, activities.ClaimInfo{RunID: "run-2"})
		require.ErrorIs(t, err, activities.ErrClaimed)
		require.ErrorContains(t, err, "migrate-"+consumer)
		_, err = store.Claim(ctx, guard, activities.ClaimInfo{RunID: "run-1"})
		require.ErrorIs(t, err, activities.ErrTokenLost, "a late attempt must not bring the token back")

		require.NoError(t, store.Release(ctx, undo))
		_, err = store.Claim(ctx, second, activities.ClaimInfo{RunID: "run-2"})
		require.NoError(t, err)
	})
}

// beforeTxn calls a function before each Txn, with its number.
type beforeTxn struct {
	clientv3.KV
	count int
	call  func(count int)
}

func (b *beforeTxn) Txn(ctx context.Context) clientv3.Txn {
	b.count++
	b.call(b.count)
	return b.KV.Txn(ctx)
}

func TestSealByDeletion_WhenAnotherMoveClaimsBeforeALateDeletion_LosesNothingOfIts(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		for _, name := range []string{"DeleteAll", "Release"} {
			server.wipe(t)
			ctx, store, late := t.Context(), server.open(t), server.open(t)
			claimed(t, store)
			require.NoError(t, store.Write(ctx, guard, oneBatch(someEntries(10, 64)), ignore))
			require.NoError(t, store.sealByDeletion(ctx, guard, sealed))
			late.client.KV = &beforeTxn{KV: late.client.KV, call: func(count int) {
				if count != 2 { // the first is the one that compares the token
					return
				}
				require.NoError(t, store.Release(ctx, undo))
				_, err := store.Claim(ctx, second, activities.ClaimInfo{RunID: "run-2"})
				require.NoError(t, err)
				require.NoError(t, store.Write(ctx, second, oneBatch(someEntries(10, 64)), ignore))
			}}

			err := everyWrite[name](ctx, late, undo)
			if name == "Release" {
				require.NoError(t, err, "another move's claim is none of its business")
			} else {
				require.ErrorIs(t, err, activities.ErrTokenLost)
			}
			require.Len(t, export(t, store, below("/registry/")), 10)
			claim, err := store.ReadClaim(ctx, consumer)
			require.NoError(t, err)
			require.Equal(t, second.Token, claim.Token)
		}
	})
}

func TestSealByDeletion_WhenTheCommitHasLanded_IsRefused(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		ctx, store := t.Context(), server.open(t)
		claimed(t, store)
		landed, err := store.Commit(ctx, guard, 0, []byte("open"), guard.Token.Next(), activities.Landing{})
		require.NoError(t, err)
		require.ErrorIs(t, store.sealByDeletion(ctx, guard, sealed), activities.ErrCommitted)

		deleteRaw(t, store, store.tokenKey(consumer)) // by hand
		require.ErrorIs(t, store.Seal(ctx, guard, sealed), activities.ErrCommitted)
		_, err = store.DeleteAll(ctx, undo)
		require.ErrorIs(t, err, activities.ErrTokenLost)
		require.ErrorIs(t, store.DeleteLogicalCluster(ctx, undo, landed), activities.ErrTokenLost)
	})
}

func TestSealByDeletion_AfterAHigherTokenHasLanded_LeavesIt(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		ctx, store := t.Context(), server.open(t)
		claimed(t, store)
		require.NoError(t, store.Seal(ctx, guard, sealed), "lands, though a full etcd may answer ErrNoSpace")
		require.NoError(t, store.sealByDeletion(ctx, guard, sealed))
		claim, err := store.ReadClaim(ctx, consumer)
		require.NoError(t, err)
		require.Equal(t, sealed, claim.Token)
		require.ErrorIs(t, store.sealByDeletion(ctx, guard, guard.Token.Next()), activities.ErrTokenLost, "a late attempt")
	})
}

func TestSealAndCommit_AtTheSameTime_OnlyOneOfThemWins(t *testing.T) {
	for way, seal := range seals {
		t.Run(way, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *server) {
				ctx, store := t.Context(), server.open(t)
				for round := range 50 {
					guard := activities.Guard{LogicalCluster: consumer, Token: activities.NewToken(fmt.Sprintf("round-%d", round))}
					_, err := store.Claim(ctx, guard, activities.ClaimInfo{RunID: guard.Token.Run()})
					require.NoError(t, err)
					var sealed, committed error
					var racing sync.WaitGroup
					racing.Go(func() { sealed = seal(store, ctx, guard, guard.Token.Next()) })
					racing.Go(func() {
						_, committed = store.Commit(ctx, guard, 0, []byte("open"), guard.Token.Next(), activities.Landing{})
					})
					racing.Wait()
					_, err = store.LogicalCluster(ctx, consumer)
					if committed == nil {
						require.ErrorIs(t, sealed, activities.ErrCommitted)
						require.NoError(t, err)
					} else {
						require.NoError(t, sealed)
						require.ErrorIs(t, committed, activities.ErrTokenLost)
						require.ErrorIs(t, err, activities.ErrNotFound)
					}
					deleteRaw(t, store, store.layout.LogicalClusterKey(consumer))
					require.NoError(t, store.Release(ctx, activities.Guard{LogicalCluster: consumer, Token: guard.Token.Next()}))
				}
			})
		})
	}
}
