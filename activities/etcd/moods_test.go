package etcd

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

// moveLeader makes another member the leader.
func moveLeader(t *testing.T, server *server) {
	t.Helper()
	for _, endpoint := range server.endpoints {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}})
		require.NoError(t, err)
		defer client.Close()
		status, err := client.Status(t.Context(), endpoint)
		require.NoError(t, err)
		if status.Leader != status.Header.MemberId {
			continue
		}
		members, err := client.MemberList(t.Context())
		require.NoError(t, err)
		for _, member := range members.Members {
			if member.ID != status.Leader {
				_, err = client.MoveLeader(t.Context(), member.ID)
				require.NoError(t, err)
				return
			}
		}
	}
}

// retried is what Temporal does with an error that is not permanent.
func retried(t *testing.T, attempt func() error) {
	t.Helper()
	require.Eventually(t, func() bool {
		err := attempt()
		for _, permanent := range []error{activities.ErrTokenLost, activities.ErrForbidden, activities.ErrNoSpace, activities.ErrConflict} {
			require.NotErrorIs(t, err, permanent)
		}
		return err == nil
	}, waitFor, tick)
}

func TestStore_WhileTheLeaderChanges_LosesNothingAndRefusesNothingForGood(t *testing.T) {
	server := newServer(t, startEmbedded(3, embedOptions{}))
	ctx, store := t.Context(), server.open(t)
	claimed(t, store)
	entries := someEntries(4000, 1024)
	changes := 0
	retried(t, func() error {
		return store.Write(ctx, guard, oneBatch(entries), func(written activities.Written) {
			if changes < 3 && written.Entries > int64(1000*changes) {
				changes++
				moveLeader(t, server)
			}
		})
	})
	require.Equal(t, 3, changes)

	pinned := revision(t, store)
	retried(t, func() error {
		read := 0
		for batch, err := range store.Read(ctx, activities.ReadRequest{LogicalCluster: consumer, Revision: pinned}) {
			if err != nil {
				return err
			}
			if read += len(batch); read == len(batch) {
				moveLeader(t, server)
			}
		}
		require.Len(t, entries, read)
		return nil
	})
	retried(t, func() error { moveLeader(t, server); _, err := store.Digest(ctx, consumer, pinned); return err })
	var changing sync.WaitGroup
	changing.Go(func() { moveLeader(t, server) })
	retried(t, func() error {
		_, _, err := store.DeleteVerified(ctx, guard, pinned, activities.WhicheverCut)
		return err
	})
	changing.Wait()
	require.Empty(t, export(t, store, below("/registry/core/configmaps/")))
}

func TestAwaitLogicalCluster_WhileTheLeaderChanges_SeesWhatComesAfter(t *testing.T) {
	server := newServer(t, startEmbedded(3, embedOptions{}))
	store := server.open(t)
	key := store.layout.LogicalClusterKey(consumer)
	changed := sync.OnceFunc(func() { moveLeader(t, server); putRaw(t, store, key, "written since") })
	require.NoError(t, store.AwaitLogicalCluster(t.Context(), consumer, func(object *activities.Object) (bool, error) {
		changed()
		return object != nil && string(object.Value) == "written since", nil
	}))
}

// jsonWebTokens is an --auth-token with keys of its own. Such a token ends at its time, used or not.
func jsonWebTokens(t *testing.T, lifetime time.Duration) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	require.NoError(t, err)
	folder := t.TempDir()
	private := filepath.Join(folder, "private.pem")
	writePEM(t, private, "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key))
	writePEM(t, filepath.Join(folder, "public.pem"), "PUBLIC KEY", public)
	return fmt.Sprintf("jwt,pub-key=%s,priv-key=%s,sign-method=RS256,ttl=%s", filepath.Join(folder, "public.pem"), private, lifetime)
}

func TestStore_WhenItsLoginExpires_LogsInAgain(t *testing.T) {
	const lifetime = time.Second
	for name, options := range map[string]embedOptions{
		"simple token": {tokenSeconds: uint(lifetime.Seconds())},
		"web token":    {authToken: jsonWebTokens(t, lifetime)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &server{start: startEmbedded(1, options), authenticates: true}
			server.require(t)
			t.Cleanup(server.stop)
			ctx, store := t.Context(), server.open(t)
			claimed(t, store)
			entries := someEntries(300, 1024)
			// Each of these meets a login that has expired.
			for step, do := range []func() error{
				func() error { return store.Write(ctx, guard, oneBatch(entries), ignore) },
				func() error { _, err := store.Digest(ctx, consumer, revision(t, store)); return err },
				func() error {
					read := collect(t, store.Read(ctx, activities.ReadRequest{LogicalCluster: consumer, Revision: revision(t, store)}))
					require.Len(t, read, len(entries))
					return nil
				},
				func() error { _, err := store.Health(ctx); return err },
				func() error { return store.RaiseToken(ctx, guard, guard.Token.Next()) },
				func() error {
					unlock, err := store.Lock(ctx, "wake")
					if err == nil {
						unlock()
					}
					return err
				},
			} {
				awaitExpiry(t, server, lifetime)
				require.NoError(t, do(), "step %d", step)
			}
		})
	}
}

// awaitExpiry returns when a login that is made now, and all made before, have expired.
func awaitExpiry(t *testing.T, server *server, lifetime time.Duration) {
	t.Helper()
	login, err := clientv3.New(clientv3.Config{Endpoints: server.endpoints})
	require.NoError(t, err)
	defer login.Close()
	answer, err := login.Authenticate(t.Context(), workerUser, password)
	require.NoError(t, err)
	stale, err := clientv3.New(clientv3.Config{Endpoints: server.endpoints, Token: answer.Token})
	require.NoError(t, err)
	defer stale.Close()
	// A look renews a simple token, so it must come less often than these expire.
	require.Eventually(t, func() bool { _, err := stale.Get(t.Context(), revisionKey); return err != nil }, waitFor, 3*lifetime)
}

func TestWatch_WhenItsLoginExpires_StillSeesWhatComes(t *testing.T) {
	const lifetime = time.Second
	server := &server{start: startEmbedded(1, embedOptions{authToken: jsonWebTokens(t, lifetime)}), authenticates: true}
	server.require(t)
	t.Cleanup(server.stop)
	store := server.open(t)
	key := store.layout.LogicalClusterKey(consumer)
	expire := sync.OnceFunc(func() { awaitExpiry(t, server, lifetime); putRaw(t, store, key, "written since") })
	require.NoError(t, store.AwaitLogicalCluster(t.Context(), consumer, func(object *activities.Object) (bool, error) {
		expire()
		return object != nil, nil
	}))
}

func TestCopy_OfTenThousandLeases_SharesThemAndKeepsTheirTimes(t *testing.T) {
	const count = 10_000
	ctx := t.Context()
	origin, destination := newServer(t, startEmbedded(1, embedOptions{})).open(t), newServer(t, startEmbedded(1, embedOptions{})).open(t)
	claimed(t, destination)
	grant(t, origin, count)
	began := time.Now()
	read := origin.Read(ctx, activities.ReadRequest{LogicalCluster: consumer, Revision: revision(t, origin)})
	require.NoError(t, destination.Write(ctx, guard, read, ignore))
	took := time.Since(began)
	t.Logf("copied %d entries, each with a lease of its own, in %s", count, took)

	leases, err := destination.client.Leases(ctx)
	require.NoError(t, err)
	require.Less(t, len(leases.Leases), count/2, "entries share leases, even where a copy takes minutes")
	there := collect(t, origin.Read(ctx, activities.ReadRequest{LogicalCluster: consumer, Revision: revision(t, origin)}))
	here := collect(t, destination.Read(ctx, activities.ReadRequest{LogicalCluster: consumer, Revision: revision(t, destination)}))
	require.Len(t, there, count)
	require.Len(t, here, count)
	for i := range there {
		require.Equal(t, there[i].Ref, here[i].Ref)
		require.InDelta(t, there[i].TTL.Seconds(), here[i].TTL.Seconds(), (time.Minute + took).Seconds(), "the longer a copy takes, the older is what was asked at its start")
	}
}

// grant gives the tenant events that each have a lease of their own, of up to an hour.
func grant(t *testing.T, store *Store, count int) {
	t.Helper()
	var granting sync.WaitGroup
	const workers = 50
	failures := make([]error, workers)
	for worker := range workers {
		granting.Go(func() {
			for i := worker; i < count && failures[worker] == nil; i += workers {
				failures[worker] = grantOne(t.Context(), store, i)
			}
		})
	}
	granting.Wait()
	for _, failure := range failures {
		require.NoError(t, failure)
	}
}

func grantOne(ctx context.Context, store *Store, i int) error {
	lease, err := store.client.Grant(ctx, int64(600+i%3000))
	if err != nil {
		return err
	}
	_, err = store.client.Put(ctx, keyOf(activities.Ref{Family: events, Suffix: fmt.Sprintf("default/e-%05d", i)}), "event", clientv3.WithLease(lease.ID))
	return err
}

// apiServersTxn is how an API server writes an object (etcd3/store.go of k8s.io/apiserver): the key is in it three times.
func apiServersTxn(ctx context.Context, client *clientv3.Client, key, value string, lease clientv3.LeaseID) error {
	_, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, value, clientv3.WithLease(lease))).Else(clientv3.OpGet(key)).Commit()
	return err
}

// largest is how long a value an API server can write at a key.
func largest(t *testing.T, store *Store, key string, lease clientv3.LeaseID) int {
	t.Helper()
	fits, tooLarge := 0, smallRequest+1
	for tooLarge-fits > 1 {
		deleteRaw(t, store, key)
		middle := (fits + tooLarge) / 2
		if apiServersTxn(t.Context(), store.client, key, strings.Repeat("x", middle), lease) == nil {
			fits = middle
		} else {
			tooLarge = middle
		}
	}
	deleteRaw(t, store, key)
	return fits
}

// smallRequest is an --max-request-bytes that tests soon reach.
const smallRequest = 100 << 10

func TestWrite_OfAValueThatJustFitsAnAPIServersTxn_Fits(t *testing.T) {
	server := newServer(t, startEmbedded(1, embedOptions{maxRequestBytes: smallRequest}))
	ctx, store := t.Context(), server.open(t)
	run := activities.Guard{LogicalCluster: consumer, Token: activities.NewToken("0f9d5b5c-7a0e-4e57-9a5e-0c3a6c1c9a11")}
	_, err := store.Claim(ctx, run, activities.ClaimInfo{RunID: run.Token.Run()})
	require.NoError(t, err)
	lease, err := store.client.Grant(ctx, 3600)
	require.NoError(t, err)
	for name, ref := range map[string]activities.Ref{
		"short key": {Family: keyspace.Family{Group: "core", Resource: "pods"}, Suffix: "a/b"},
		"long key": {Family: keyspace.Family{Group: "a.very.long.group.example.com", Resource: "customthings", Segment: strings.Repeat("0a", 32)},
			Suffix: strings.Repeat("n", 63) + "/" + strings.Repeat("o", 253)},
	} {
		t.Run(name, func(t *testing.T) {
			entry := activities.Entry{Ref: ref, Value: []byte(strings.Repeat("x", largest(t, store, keyOf(ref), clientv3.NoLease)))}
			leased := activities.Entry{Ref: ref, TTL: time.Hour, Value: []byte(strings.Repeat("x", largest(t, store, keyOf(ref), lease.ID)))}
			for _, each := range []activities.Entry{entry, leased} {
				require.NoError(t, store.Write(ctx, run, oneBatch([]activities.Entry{each}), ignore))
				require.NoError(t, store.Repair(ctx, run, 0, []activities.Entry{each}, nil))
			}
			late := activities.Guard{LogicalCluster: consumer, Token: "another-run/1"}
			require.ErrorIs(t, store.Write(ctx, late, oneBatch([]activities.Entry{entry}), ignore), activities.ErrTokenLost)
		})
	}
}

func TestWrite_OfAValueThatIsTooLarge_NamesItsEntry(t *testing.T) {
	server := newServer(t, startEmbedded(1, embedOptions{maxRequestBytes: smallRequest}))
	store := server.open(t)
	claimed(t, store)
	huge := someEntries(1, 2*smallRequest)
	for name, err := range map[string]error{
		"etcd's limit":             store.Write(t.Context(), guard, oneBatch(huge), ignore),
		"the limit of its gRPC":    store.Write(t.Context(), guard, oneBatch(someEntries(1, smallRequest+(600<<10))), ignore),
		"one among many, repaired": store.Repair(t.Context(), guard, 0, append(someEntries(50, 64)[1:], huge...), nil),
	} {
		require.ErrorIs(t, err, activities.ErrTooLarge, name)
		require.ErrorContains(t, err, huge[0].String(), name)
	}
	_, err := store.PutIfUnchanged(t.Context(), guard, huge[0], 0)
	require.ErrorIs(t, err, activities.ErrTooLarge)
}

// ofServers are goroutines of the servers in this process, which come and go; a store has none of these.
var ofServers = []goleak.Option{
	goleak.IgnoreAnyFunction("net/http.(*conn).serve"), goleak.IgnoreAnyFunction("net/http.(*connReader).backgroundRead"),
	goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
}

func TestClose_AfterEveryKindOfWork_LeavesNothingRunning(t *testing.T) {
	lines := fixture(t, "root")
	eachServer(t, func(t *testing.T, server *server) {
		load(t, server.open(t), lines)
		before := goleak.IgnoreCurrent()
		store, err := Open(t.Context(), server.config())
		require.NoError(t, err)
		claimed(t, store)
		for range collect(t, store.Read(t.Context(), activities.ReadRequest{LogicalCluster: consumer, Revision: revision(t, store)})) {
			break
		}
		ctx, cancel := context.WithCancel(t.Context())
		err = store.AwaitLogicalCluster(ctx, consumer, func(*activities.Object) (bool, error) { cancel(); return false, nil })
		require.ErrorIs(t, err, context.Canceled)
		unlock, err := store.Lock(t.Context(), "wake")
		require.NoError(t, err)
		unlock()
		for name, write := range everyWrite {
			if name != "LiftRevision" && name != "Release" { // one has no end here, the other ends all others
				err := write(t.Context(), store, guard)
				require.NotErrorIs(t, err, activities.ErrForbidden, name)
			}
		}
		require.NoError(t, store.Close())
		require.Eventually(t, func() bool { return goleak.Find(append(ofServers, before)...) == nil }, waitFor, tick)
	})
}
