package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

// Logical clusters of the fixture.
const (
	consumer  = "256hdo017n2m0br9"
	neighbour = "2ei2q8rs6um1o3uc" // has a namespace named like the consumer's logical cluster
)

var (
	guard      = activities.Guard{LogicalCluster: consumer, Token: "run-1/1"}
	configMaps = keyspace.Family{Group: "core", Resource: "configmaps"}
	secrets    = keyspace.Family{Group: "core", Resource: "secrets"}
	events     = keyspace.Family{Group: "core", Resource: "events"}
)

const waitFor, tick = time.Minute, 10 * time.Millisecond

// owner says whose key it is, by another way than the product's: the segment behind the resource, or the
// next one where that is "customresources" or as long as an identity.
func owner(key string) string {
	parts := strings.Split(strings.TrimPrefix(key, "/"), "/")
	if len(parts) < 5 || parts[0] == "kcp-migrate" {
		return ""
	}
	if parts[3] == "customresources" || len(parts[3]) == 64 {
		return parts[4]
	}
	return parts[3]
}

func ofOthers(key string) bool {
	return owner(key) != consumer && !strings.HasPrefix(key, "/kcp-migrate/")
}

func below(prefix string) func(string) bool {
	return func(key string) bool { return strings.HasPrefix(key, prefix) }
}

// consumersEntries are the fixture's keys of the consumer with their values, its LogicalCluster left out.
func consumersEntries(lines []fixtureLine) map[string]string {
	entries := map[string]string{}
	for _, line := range lines {
		if owner(line.Key) == consumer && !strings.HasSuffix(line.Key, "/"+consumer+"/cluster") {
			entries[line.Key] = string(line.Value)
		}
	}
	return entries
}

func claimed(t testing.TB, store *Store) {
	t.Helper()
	_, err := store.Claim(t.Context(), guard, activities.ClaimInfo{WorkflowID: "migrate-" + consumer, RunID: guard.Token.Run()})
	require.NoError(t, err)
}

// written claims the consumer's logical cluster, writes so many entries, and gives the revision at which they are all there.
func written(t *testing.T, store *Store, count int) (entries []activities.Entry, verified int64) {
	t.Helper()
	claimed(t, store)
	entries = someEntries(count, 64)
	require.NoError(t, store.Write(t.Context(), guard, oneBatch(entries), ignore))
	return entries, revision(t, store)
}

func putRaw(t testing.TB, store *Store, key, value string, options ...clientv3.OpOption) {
	t.Helper()
	_, err := admin(store).Put(t.Context(), key, value, options...)
	require.NoError(t, err)
}

func deleteRaw(t testing.TB, store *Store, key string) {
	t.Helper()
	_, err := admin(store).Delete(t.Context(), key)
	require.NoError(t, err)
}

func compactAll(t testing.TB, store *Store) {
	t.Helper()
	putRaw(t, store, revisionKey, "")
	_, err := admin(store).Compact(t.Context(), revision(t, store))
	require.NoError(t, err)
}

// someEntries are ConfigMaps with values of a size.
func someEntries(count, size int) []activities.Entry {
	entries := make([]activities.Entry, count)
	for i := range entries {
		ref := activities.Ref{Family: configMaps, Suffix: fmt.Sprintf("default/map-%06d", i)}
		entries[i] = activities.Entry{Ref: ref, Value: []byte(strings.Repeat(fmt.Sprintf("%08d", i), size/8))}
	}
	return entries
}

func oneBatch(entries []activities.Entry) activities.Batches {
	return func(yield func([]activities.Entry, error) bool) { yield(entries, nil) }
}

func ignore(activities.Written) {}

func keyOf(ref activities.Ref) string {
	return "/registry/" + ref.Family.String() + "/" + consumer + "/" + ref.Suffix
}

func refs(stragglers []activities.Straggler) []string {
	var refs []string
	for _, straggler := range stragglers {
		ref := straggler.Ref.String()
		if straggler.Deleted {
			ref = "deleted " + ref
		}
		refs = append(refs, ref)
	}
	return refs
}

// withoutTTL leaves out what differs between two reads of the same entries.
func withoutTTL(entries []activities.Entry) []activities.Entry {
	timeless := []activities.Entry{}
	for _, entry := range entries {
		entry.TTL = 0
		timeless = append(timeless, entry)
	}
	return timeless
}

func TestRead_OfTheFixture_YieldsExactlyTheTenantsEntriesInOrder(t *testing.T) {
	lines := fixture(t, "root")
	eachServer(t, func(t *testing.T, server *server) {
		store := server.open(t)
		load(t, store, lines)

		entries := collect(t, store.Read(t.Context(), activities.ReadRequest{LogicalCluster: consumer, Revision: revision(t, store)}))

		read := map[string]string{}
		for _, entry := range entries {
			read[keyOf(entry.Ref)] = string(entry.Value)
			require.Equal(t, entry.Family == events, entry.TTL > 0, "TTL of %s", entry.Ref)
		}
		require.Equal(t, consumersEntries(lines), read)
		require.Len(t, entries, len(read))
		require.True(t, slices.IsSortedFunc(entries, func(a, b activities.Entry) int {
			return strings.Compare(a.Family.String()+"\x00"+a.Suffix, b.Family.String()+"\x00"+b.Suffix)
		}))
	})
}

func TestRead_WhenResumedAtEveryBatchEdge_YieldsTheRest(t *testing.T) {
	lines := fixture(t, "root")
	eachServer(t, func(t *testing.T, server *server) {
		store := server.open(t)
		load(t, store, lines)
		claimed(t, store)
		require.NoError(t, store.Write(t.Context(), guard, oneBatch(someEntries(1500, 1024)), ignore))
		request := activities.ReadRequest{LogicalCluster: consumer, Revision: revision(t, store)}
		whole := collect(t, store.Read(t.Context(), request))

		read := 0
		for batch, err := range store.Read(t.Context(), request) {
			require.NoError(t, err)
			read += len(batch)
			resumed := request
			resumed.After = &batch[len(batch)-1].Ref
			require.Equal(t, withoutTTL(whole[read:]), withoutTTL(collect(t, store.Read(t.Context(), resumed))))
		}
		require.Len(t, whole, read)
	})
}

func TestRead_OfLargeValues_KeepsItsBatchesSmall(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		store := server.open(t)
		claimed(t, store)
		require.NoError(t, store.Write(t.Context(), guard, oneBatch(someEntries(40, 300<<10)), ignore))
		for batch, err := range store.Read(t.Context(), activities.ReadRequest{LogicalCluster: consumer, Revision: revision(t, store)}) {
			require.NoError(t, err)
			require.LessOrEqual(t, len(batch), firstPage)
		}
	})
}

func TestRead_WhenItsRevisionIsCompacted_GivesErrCompacted(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		store := server.open(t)
		claimed(t, store)
		require.NoError(t, store.Write(t.Context(), guard, oneBatch(someEntries(60, 300<<10)), ignore))
		request := activities.ReadRequest{LogicalCluster: consumer, Revision: revision(t, store)}

		var failure error
		batches := 0
		for _, err := range store.Read(t.Context(), request) {
			if batches == 0 {
				compactAll(t, store)
			}
			batches++
			failure = err
		}
		require.ErrorIs(t, failure, activities.ErrCompacted)
		require.Greater(t, batches, 1)

		_, err := store.Digest(t.Context(), consumer, request.Revision)
		require.ErrorIs(t, err, activities.ErrCompacted)
	})
}

func TestRead_WhereTheServerHasNoRangeStream_ReadsPages(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		store := server.open(t)
		claimed(t, store)
		entries := someEntries(1500, 1024)
		require.NoError(t, store.Write(t.Context(), guard, oneBatch(entries), ignore))
		require.False(t, store.pagesOnly.Load(), "not known before the first read")

		read := collect(t, store.Read(t.Context(), activities.ReadRequest{LogicalCluster: consumer, Revision: revision(t, store)}))

		require.Len(t, read, len(entries))
		require.Equal(t, server.lacksStreams, store.pagesOnly.Load())
	})
}

func TestRead_WhenTheConsumerStopsEarly_LeavesNothingRunning(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		store := server.open(t)
		claimed(t, store)
		require.NoError(t, store.Write(t.Context(), guard, oneBatch(someEntries(3000, 1024)), ignore))
		for _, err := range store.Read(t.Context(), activities.ReadRequest{LogicalCluster: consumer, Revision: revision(t, store)}) {
			require.NoError(t, err)
			break
		}
		// The store still serves, and Close (in the clean-up) returns.
		require.Positive(t, revision(t, store))
	})
}

func TestRead_WhenAValueIsEncrypted_NamesTheFamilyAndNotTheValue(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		store := server.open(t)
		putRaw(t, store, "/registry/core/secrets/"+consumer+"/default/s", "k8s:enc:aescbc:v1:key1:hunter2")
		request := activities.ReadRequest{LogicalCluster: consumer, Revision: revision(t, store)}
		for _, err := range store.Read(t.Context(), request) {
			require.ErrorIs(t, err, activities.ErrEncrypted)
			require.ErrorContains(t, err, "core/secrets")
			require.NotContains(t, err.Error(), "hunter2")
		}
		_, err := store.Digest(t.Context(), consumer, request.Revision)
		require.ErrorIs(t, err, activities.ErrEncrypted)
	})
}

func TestRead_WhenALeaseHasEndedMeanwhile_LeavesItsEntryOut(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		store := server.open(t)
		lease, err := admin(store).Grant(t.Context(), 600)
		require.NoError(t, err)
		putRaw(t, store, "/registry/core/events/"+consumer+"/default/e", "event", clientv3.WithLease(lease.ID))
		pinned := revision(t, store)
		_, err = admin(store).Revoke(t.Context(), lease.ID)
		require.NoError(t, err)
		require.Empty(t, collect(t, store.Read(t.Context(), activities.ReadRequest{LogicalCluster: consumer, Revision: pinned})))
	})
}

func TestGet_GivesWhatExistsNow(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		store := server.open(t)
		entries := someEntries(3, 64)
		claimed(t, store)
		require.NoError(t, store.Write(t.Context(), guard, oneBatch(entries[:2]), ignore))
		got, err := store.Get(t.Context(), consumer, []activities.Ref{entries[1].Ref, entries[2].Ref, entries[0].Ref})
		require.NoError(t, err)
		require.Len(t, got, 2)
		require.Equal(t, entries[1].Value, got[0].Value)
		require.Equal(t, entries[0].Value, got[1].Value)
	})
}

func TestKeys_ListsTheLogicalClusterToo_UpToTheLimit(t *testing.T) {
	lines := fixture(t, "root")
	eachServer(t, func(t *testing.T, server *server) {
		store := server.open(t)
		load(t, store, lines)
		keys, err := store.Keys(t.Context(), consumer, 1000)
		require.NoError(t, err)
		require.Len(t, keys, len(consumersEntries(lines))+1)
		require.Contains(t, keys, "/registry/core.kcp.io/logicalclusters/customresources/"+consumer+"/cluster")
		keys, err = store.Keys(t.Context(), consumer, 20)
		require.NoError(t, err)
		require.Len(t, keys, 20)
	})
}

func TestDigest_OfTwoCopiesBelowDifferentPrefixes_IsTheSame(t *testing.T) {
	lines := fixture(t, "root")
	eachServer(t, func(t *testing.T, server *server) {
		origin, destination := server.open(t), server.openBelow(t, "/destination")
		load(t, origin, lines)
		claimed(t, destination)
		read := origin.Read(t.Context(), activities.ReadRequest{LogicalCluster: consumer, Revision: revision(t, origin)})
		require.NoError(t, destination.Write(t.Context(), guard, read, ignore))

		pinned := revision(t, origin)
		original, err := origin.Digest(t.Context(), consumer, pinned)
		require.NoError(t, err)
		copied, err := destination.Digest(t.Context(), consumer, pinned)
		require.NoError(t, err)
		require.Equal(t, original.Families, copied.Families)
		require.NotEmpty(t, original.Leased)
		require.Len(t, copied.Leased, len(original.Leased))
		entries, _ := original.Totals()
		require.Equal(t, int64(len(consumersEntries(lines))), entries)

		putRaw(t, destination, "/destination/core/secrets/"+consumer+"/default/extra", "x")
		changed, err := destination.Digest(t.Context(), consumer, revision(t, destination))
		require.NoError(t, err)
		require.NotEqual(t, original.Families, changed.Families)
	})
}

func TestList_GivesWhatADiffComparesInKeyOrder(t *testing.T) {
	lines := fixture(t, "root")
	eachServer(t, func(t *testing.T, server *server) {
		store := server.open(t)
		load(t, store, lines)
		pinned := revision(t, store)
		listed, err := store.List(t.Context(), consumer, []keyspace.Family{secrets, configMaps}, pinned)
		require.NoError(t, err)
		require.Len(t, listed, 43+10)
		require.Equal(t, configMaps, listed[0].Family)
		for _, each := range listed {
			got, err := store.Get(t.Context(), consumer, []activities.Ref{each.Ref})
			require.NoError(t, err)
			require.Equal(t, list(got[0]), each)
		}
	})
}

func TestWrite_OfTheFixture_IsByteEqualAndKeepsLeases(t *testing.T) {
	lines := fixture(t, "root")
	eachServer(t, func(t *testing.T, server *server) {
		origin, destination := server.open(t), server.openBelow(t, "/destination")
		load(t, origin, lines)
		claimed(t, destination)
		before := export(t, origin, below("/registry/"))

		var told []activities.Written
		read := origin.Read(t.Context(), activities.ReadRequest{LogicalCluster: consumer, Revision: revision(t, origin)})
		require.NoError(t, destination.Write(t.Context(), guard, read, func(written activities.Written) { told = append(told, written) }))

		copied := map[string]string{}
		for key, exported := range export(t, origin, below("/destination/")) {
			copied["/registry/"+strings.TrimPrefix(key, "/destination/")] = exported.Value
			require.Equal(t, strings.Contains(key, "/core/events/"), exported.Lease != 0, key)
		}
		require.Equal(t, consumersEntries(lines), copied)
		require.Equal(t, before, export(t, origin, below("/registry/")))
		require.Equal(t, int64(len(copied)), told[len(told)-1].Entries)
		require.True(t, slices.IsSortedFunc(told, func(a, b activities.Written) int { return int(a.Entries - b.Entries) }))
	})
}

func TestWrite_WhenAcknowledged_IsInEtcdUpToThere(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		store := server.open(t)
		claimed(t, store)
		entries := someEntries(2000, 512)
		err := store.Write(t.Context(), guard, oneBatch(entries), func(written activities.Written) {
			response, err := admin(store).Get(t.Context(), "/registry/core/configmaps/"+consumer+"/",
				clientv3.WithRange(keyOf(written.Last)+"\x00"), clientv3.WithCountOnly())
			require.NoError(t, err)
			require.Equal(t, written.Entries, response.Count)
		})
		require.NoError(t, err)
	})
}

func TestWrite_OfALease_LetsTheEntryExpire(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		t.Parallel()
		store := server.open(t)
		claimed(t, store)
		entry := activities.Entry{Ref: activities.Ref{Family: events, Suffix: "default/e"}, Value: []byte("e"), TTL: time.Second}
		ctx, cancel := context.WithTimeout(t.Context(), waitFor)
		defer cancel()
		seen := admin(store).Watch(ctx, keyOf(entry.Ref), clientv3.WithRev(revision(t, store)+1))
		require.NoError(t, store.Write(ctx, guard, oneBatch([]activities.Entry{entry}), ignore))
		var kinds []string
		for len(kinds) < 2 {
			response, open := <-seen
			require.True(t, open, "it has not expired")
			for _, event := range response.Events {
				kinds = append(kinds, event.Type.String())
			}
		}
		require.Equal(t, []string{"PUT", "DELETE"}, kinds)
	})
}

func TestWrite_WhenItsSourceFails_GivesThatError(t *testing.T) {
	failure := errors.New("origin went away")
	eachServer(t, func(t *testing.T, server *server) {
		store := server.open(t)
		claimed(t, store)
		err := store.Write(t.Context(), guard, func(yield func([]activities.Entry, error) bool) {
			_ = yield(someEntries(10, 8), nil) && yield(nil, failure)
		}, ignore)
		require.ErrorIs(t, err, failure)
	})
}

func TestWrite_OfWhatIsNotAnEntryOfTheTenant_IsRefused(t *testing.T) {
	server := servers[0]
	server.require(t)
	store := server.open(t)
	for name, ref := range map[string]activities.Ref{
		"its LogicalCluster": {Family: keyspace.LogicalClusters, Suffix: "cluster"},
		"no name":            {Family: configMaps},
		"another cluster's":  {Family: keyspace.Family{Group: "core", Resource: "configmaps/" + neighbour}, Suffix: "x"},
		"odd segment":        {Family: keyspace.Family{Group: "core", Resource: "configmaps", Segment: neighbour}, Suffix: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			entry := activities.Entry{Ref: ref, Value: []byte("x")}
			require.Error(t, store.Write(t.Context(), guard, oneBatch([]activities.Entry{entry}), ignore))
			require.Error(t, store.Repair(t.Context(), guard, enclosedAt(t, store), nil, []activities.Ref{ref}))
			require.Error(t, store.DeleteRefs(t.Context(), guard, []activities.Listed{{Ref: ref}}))
			_, err := store.PutIfUnchanged(t.Context(), guard, entry, 0)
			require.Error(t, err)
		})
	}
}

func TestWrite_ToAServerWithSmallLimits_LearnsThem(t *testing.T) {
	for name, start := range map[string]startServer{
		"etcd 3.7":           startEmbedded(1, embedOptions{maxTxnOps: 16, maxRequestBytes: 100 << 10}),
		"etcd 3.6":           startProgram(built, "--max-txn-ops", "16", "--max-request-bytes", fmt.Sprint(100<<10)),
		"etcd of the system": startProgram(ofTheSystem, "--max-txn-ops", "16", "--max-request-bytes", fmt.Sprint(100<<10)),
	} {
		t.Run(name, func(t *testing.T) {
			server := newServer(t, start)
			store := server.open(t)
			claimed(t, store)
			entries := append(someEntries(500, 64), someEntries(700, 20<<10)[500:]...)
			entries = append(entries, activities.Entry{ // travels alone, just below the limit
				Ref: activities.Ref{Family: configMaps, Suffix: "default/zz"}, Value: []byte(strings.Repeat("z", 99<<10))})
			require.NoError(t, store.Write(t.Context(), guard, oneBatch(entries), ignore))
			require.Len(t, export(t, store, below("/registry/")), len(entries))
			require.LessOrEqual(t, store.limits.maxOps(), 16)
			require.GreaterOrEqual(t, store.limits.maxOps(), 8, "a refused Txn has 17 operations at least")

			listed, err := store.List(t.Context(), consumer, []keyspace.Family{configMaps}, revision(t, store))
			require.NoError(t, err)
			fresh := server.open(t)
			require.NoError(t, fresh.DeleteRefs(t.Context(), guard, listed[:200]))
			require.Len(t, export(t, store, below("/registry/")), len(entries)-200)
			var deletes []activities.Ref
			for _, each := range listed[200:400] {
				deletes = append(deletes, each.Ref)
			}
			fresh = server.open(t)
			require.NoError(t, fresh.Repair(t.Context(), guard, enclosedAt(t, fresh), entries[:50], deletes))
			require.Len(t, export(t, store, below("/registry/")), len(entries)-400+50)

			huge := []activities.Entry{{Ref: entries[0].Ref, Value: []byte(strings.Repeat("z", 200<<10))}}
			require.ErrorContains(t, store.Write(t.Context(), guard, oneBatch(huge), ignore), "request is too large")
		})
	}
}

func TestPutIfUnchanged_WhenSomebodyElseWasThere_LeavesTheirs(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		store := server.open(t)
		claimed(t, store)
		entry := someEntries(1, 64)[0]
		put := func(entry activities.Entry, max int64) bool {
			landed, err := store.PutIfUnchanged(t.Context(), guard, entry, max)
			require.NoError(t, err)
			return landed > 0
		}
		require.True(t, put(entry, 0), "there was none")
		require.True(t, put(entry, 0), "the repeat of a put that landed")
		ours := revision(t, store)
		entry.Value = []byte("newer")
		require.False(t, put(entry, 0))
		require.True(t, put(entry, ours))
		putRaw(t, store, keyOf(entry.Ref), "theirs")
		require.False(t, put(entry, ours))
		require.Equal(t, "theirs", export(t, store, below("/registry/"))[keyOf(entry.Ref)].Value)
		deleteRaw(t, store, keyOf(entry.Ref))
		require.False(t, put(entry, revision(t, store)), "what was deleted must not come back to life")
		require.Empty(t, export(t, store, below("/registry/")))
	})
}

// everyWrite is each method of the store that writes or deletes, with something for it to do.
var everyWrite = map[string]func(ctx context.Context, store *Store, guard activities.Guard) error{
	"Write": func(ctx context.Context, store *Store, guard activities.Guard) error {
		return store.Write(ctx, guard, oneBatch(someEntries(1, 64)), ignore)
	},
	"Repair by a put": func(ctx context.Context, store *Store, guard activities.Guard) error {
		return store.Repair(ctx, guard, 0, someEntries(1, 64), nil)
	},
	"Repair by a delete": func(ctx context.Context, store *Store, guard activities.Guard) error {
		return store.Repair(ctx, guard, 0, nil, []activities.Ref{someEntries(1, 64)[0].Ref})
	},
	"PutIfUnchanged": func(ctx context.Context, store *Store, guard activities.Guard) error {
		_, err := store.PutIfUnchanged(ctx, guard, someEntries(1, 64)[0], 1<<60)
		return err
	},
	"DeleteVerified": func(ctx context.Context, store *Store, guard activities.Guard) error {
		_, _, err := store.DeleteVerified(ctx, guard, 1<<60, activities.WhicheverCut)
		return err
	},
	"DeleteRefs": func(ctx context.Context, store *Store, guard activities.Guard) error {
		return store.DeleteRefs(ctx, guard, []activities.Listed{{Ref: someEntries(1, 64)[0].Ref, ModRevision: 1}})
	},
	"DeleteAll": func(ctx context.Context, store *Store, guard activities.Guard) error {
		_, err := store.DeleteAll(ctx, guard)
		return err
	},
	"EditLogicalCluster": func(ctx context.Context, store *Store, guard activities.Guard) error {
		object, err := store.LogicalCluster(ctx, consumer)
		if err != nil {
			return err
		}
		_, err = store.EditLogicalCluster(ctx, guard, consumer, object.ModRevision, []byte("{}"))
		return err
	},
	"EditCutting": func(ctx context.Context, store *Store, guard activities.Guard) error {
		object, err := store.LogicalCluster(ctx, keyspace.SystemShard)
		if err != nil {
			return err
		}
		_, err = store.EditCutting(ctx, guard, keyspace.SystemShard, object.ModRevision, []byte("{}"))
		return err
	},
	"EditLogicalCluster of system:shard": func(ctx context.Context, store *Store, guard activities.Guard) error {
		object, err := store.LogicalCluster(ctx, keyspace.SystemShard)
		if err != nil {
			return err
		}
		_, err = store.EditLogicalCluster(ctx, guard, keyspace.SystemShard, object.ModRevision, []byte("{}"))
		return err
	},
	"DeleteLogicalCluster": func(ctx context.Context, store *Store, guard activities.Guard) error {
		object, err := store.LogicalCluster(ctx, consumer)
		if err != nil {
			return err
		}
		return store.DeleteLogicalCluster(ctx, guard, object.ModRevision)
	},
	"NoteDropping": func(ctx context.Context, store *Store, guard activities.Guard) error {
		return store.NoteDropping(ctx, guard)
	},
	"DropLogicalCluster": func(ctx context.Context, store *Store, guard activities.Guard) error {
		object, err := store.LogicalCluster(ctx, consumer)
		if err != nil {
			return err
		}
		return store.DropLogicalCluster(ctx, guard, object.ModRevision)
	},
	"Commit": func(ctx context.Context, store *Store, guard activities.Guard) error {
		object, err := store.LogicalCluster(ctx, consumer)
		if err != nil {
			return err
		}
		_, err = store.Commit(ctx, guard, object.ModRevision, []byte("{}"), guard.Token.Next(), activities.Landing{})
		return err
	},
	"CreateBoundCRD": func(ctx context.Context, store *Store, guard activities.Guard) error {
		_, err := store.CreateBoundCRD(ctx, guard, "some-uid", []byte("{}"))
		return err
	},
	"LiftRevision": func(ctx context.Context, store *Store, guard activities.Guard) error {
		_, err := store.LiftRevision(ctx, guard, 1<<60, 1, func(int64) {})
		return err
	},
	"Release": func(ctx context.Context, store *Store, guard activities.Guard) error {
		return store.Release(ctx, guard)
	},
}

func everything(string) bool { return true }

func TestEveryWrite_WhenTheTokenIsLost_IsRefused(t *testing.T) {
	lines := fixture(t, "root")
	eachServer(t, func(t *testing.T, server *server) {
		store := server.open(t)
		load(t, store, lines)
		claimed(t, store)
		require.NoError(t, store.RaiseToken(t.Context(), guard, guard.Token.Next()))
		before := export(t, store, everything)
		for name, write := range everyWrite {
			t.Run(name, func(t *testing.T) {
				require.ErrorIs(t, write(t.Context(), store, guard), activities.ErrTokenLost)
				require.Equal(t, before, export(t, store, everything))
			})
		}
	})
}

func TestWholeLifeOfAMove_ChangesNoOtherLogicalClustersKey(t *testing.T) {
	lines := fixture(t, "root")
	eachServer(t, func(t *testing.T, server *server) {
		ctx, store := t.Context(), server.open(t)
		load(t, store, lines)
		for _, trap := range []string{consumer + "x", consumer[:len(consumer)-1], consumer + "-1", "system:" + consumer} {
			putRaw(t, store, "/registry/core/configmaps/"+trap+"/default/x", trap)
			putRaw(t, store, "/registry/acme.io/gizmos/customresources/"+trap+"/"+consumer+"/x", trap)
		}
		before := export(t, store, ofOthers)

		claimed(t, store)
		pinned := revision(t, store)
		entries := collect(t, store.Read(ctx, activities.ReadRequest{LogicalCluster: consumer, Revision: pinned}))
		_, err := store.DeleteAll(ctx, guard)
		require.NoError(t, err)
		require.NoError(t, store.Write(ctx, guard, oneBatch(entries), ignore))
		require.NoError(t, store.Repair(ctx, guard, enclosedAt(t, store), entries[:5], []activities.Ref{entries[6].Ref}))
		object, err := store.LogicalCluster(ctx, consumer)
		require.NoError(t, err)
		_, err = store.EditLogicalCluster(ctx, guard, consumer, object.ModRevision, object.Value)
		require.NoError(t, err)
		deleted, stragglers, err := store.DeleteVerified(ctx, guard, revision(t, store), activities.WhicheverCut)
		require.NoError(t, err)
		require.Empty(t, stragglers)
		require.Equal(t, int64(len(entries)-1), deleted)

		require.Equal(t, before, export(t, store, ofOthers))
		keys, err := store.Keys(ctx, consumer, 10)
		require.NoError(t, err)
		require.Equal(t, []string{"/registry/core.kcp.io/logicalclusters/customresources/" + consumer + "/cluster"}, keys)
		require.NoError(t, store.Release(ctx, guard))
		require.Empty(t, export(t, store, below("/kcp-migrate/")))
	})
}

// enclosedAt is the ModRevision of the LogicalCluster, 0 where there is none.
func enclosedAt(t *testing.T, store *Store) int64 {
	t.Helper()
	present, err := store.LogicalCluster(t.Context(), consumer)
	if !errors.Is(err, activities.ErrNotFound) {
		require.NoError(t, err)
	}
	return present.ModRevision
}

func TestRepair_OnceSomebodyHasEditedTheLogicalCluster_ChangesNothing(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		ctx, store := t.Context(), server.open(t)
		entries, _ := written(t, store, 3)
		_, err := store.EditLogicalCluster(ctx, guard, consumer, 0, []byte("fenced"))
		require.NoError(t, err)
		enclosed := enclosedAt(t, store)
		require.NoError(t, store.Repair(ctx, guard, enclosed, entries[:1], []activities.Ref{entries[1].Ref}))
		_, err = store.EditLogicalCluster(ctx, guard, consumer, enclosed, []byte("opened"))
		require.NoError(t, err)
		before := export(t, store, everything)

		require.ErrorIs(t, store.Repair(ctx, guard, enclosed, entries[:1], nil), activities.ErrConflict)
		require.ErrorIs(t, store.Repair(ctx, guard, enclosed, nil, []activities.Ref{entries[2].Ref}), activities.ErrConflict)
		require.Equal(t, before, export(t, store, everything))
	})
}

func TestDeleteVerified_LeavesAndNamesWhatHasChangedSince(t *testing.T) {
	lines := fixture(t, "root")
	eachServer(t, func(t *testing.T, server *server) {
		ctx, store := t.Context(), server.open(t)
		load(t, store, lines)
		claimed(t, store)
		verified := revision(t, store)
		entries := consumersEntries(lines)
		changed, added, gone := "/registry/core/configmaps/"+consumer+"/default/cm-1", "/registry/core/secrets/"+consumer+"/a/b", "/registry/core/configmaps/"+consumer+"/default/cm-2"
		require.Contains(t, entries, changed)
		require.Contains(t, entries, gone)
		putRaw(t, store, changed, "changed")
		putRaw(t, store, added, "added")
		deleteRaw(t, store, gone)

		want := []string{"core/configmaps default/cm-1", "core/secrets a/b", "deleted core/configmaps default/cm-2"}
		deleted, stragglers, err := store.DeleteVerified(ctx, guard, verified, activities.WhicheverCut)
		require.NoError(t, err)
		require.Equal(t, want, refs(stragglers))
		require.Equal(t, int64(len(entries)-2), deleted)
		for _, straggler := range stragglers[:2] {
			key := keyOf(straggler.Ref)
			require.Equal(t, export(t, store, below(key))[key].ModRevision, straggler.OriginRevision)
		}
		require.Zero(t, stragglers[2].OriginRevision, "there is no revision of what is gone")
		require.Len(t, export(t, store, func(key string) bool { return owner(key) == consumer }), 3)

		deleted, stragglers, err = store.DeleteVerified(ctx, guard, verified, activities.WhicheverCut)
		require.NoError(t, err, "repeat")
		require.Equal(t, want, refs(stragglers))
		require.Zero(t, deleted)

		listed, err := store.List(ctx, consumer, []keyspace.Family{configMaps, secrets}, revision(t, store))
		require.NoError(t, err)
		require.NoError(t, store.DeleteRefs(ctx, guard, listed), "sweep what was carried")
		_, stragglers, err = store.DeleteVerified(ctx, guard, verified, activities.WhicheverCut)
		require.NoError(t, err)
		require.Equal(t, want[2:], refs(stragglers), "what we swept was not deleted by somebody else")
	})
}

func TestDeleteVerified_AfterAnInterruptedAttempt_StillTellsDeletionsOfBeforeIt(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		ctx, store := t.Context(), server.open(t)
		entries, verified := written(t, store, 2500)
		key := func(i int) string { return keyOf(entries[i].Ref) }
		deleteRaw(t, store, key(5))
		putRaw(t, store, key(700), "changed") // its page goes key by key

		interrupted := deleteFirstPage(t, store, verified)
		require.Positive(t, interrupted)
		deleteRaw(t, store, key(1500))
		putRaw(t, store, key(2400), "changed")
		deleteRaw(t, store, key(2400))

		deleted, stragglers, err := store.DeleteVerified(ctx, guard, verified, activities.WhicheverCut)
		require.NoError(t, err)
		require.Equal(t, int64(2500-4), interrupted+deleted)
		require.Equal(t, []string{
			"core/configmaps default/map-000700", "deleted core/configmaps default/map-000005",
		}, refs(stragglers), "later ones are of kcp's own controllers")
	})
}

func TestNoteDropping_PartsWhatClientsDeletedFromWhatComesLater(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		ctx, store := t.Context(), server.open(t)
		entries, verified := written(t, store, 20)
		deleteRaw(t, store, keyOf(entries[3].Ref))
		require.NoError(t, store.NoteDropping(ctx, guard))
		noted := revision(t, store)
		deleteRaw(t, store, keyOf(entries[5].Ref))
		require.NoError(t, store.NoteDropping(ctx, guard), "repeat")

		claim, err := store.ReadClaim(ctx, consumer)
		require.NoError(t, err)
		require.Equal(t, noted, claim.DroppedAt)
		_, stragglers, err := store.DeleteVerified(ctx, guard, verified, activities.WhicheverCut)
		require.NoError(t, err)
		require.Equal(t, []string{"deleted core/configmaps default/map-000003"}, refs(stragglers))
	})
}

// deleteFirstPage is as far as an attempt came that was then interrupted.
func deleteFirstPage(t *testing.T, store *Store, verified int64) int64 {
	t.Helper()
	prefix := store.layout.FamilyPrefix(configMaps, consumer)
	page, err := admin(store).Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(mostKeysPage))
	require.NoError(t, err)
	deleted, err := store.sweep(guard, verified+1, store.deleteMarked).page(t.Context(), page.Kvs)
	require.NoError(t, err)
	return deleted
}

func TestDeleteVerified_WhenItsRevisionIsCompacted_DeletesAndNamesChangesAndSaysWhatItCannotTell(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		ctx, store := t.Context(), server.open(t)
		entries, verified := written(t, store, 20)
		putRaw(t, store, keyOf(entries[3].Ref), "changed")
		compactAll(t, store)

		deleted, stragglers, err := store.DeleteVerified(ctx, guard, verified, activities.WhicheverCut)
		require.ErrorIs(t, err, activities.ErrDeletionsUnknown)
		require.Equal(t, int64(19), deleted)
		require.Equal(t, []string{"core/configmaps default/map-000003"}, refs(stragglers))
	})
}

func TestDeleteVerified_WhenALeaseRanOut_IsNobodysDeletion(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		ctx, store := t.Context(), server.open(t)
		claimed(t, store)
		lease, err := admin(store).Grant(ctx, 600)
		require.NoError(t, err)
		putRaw(t, store, "/registry/core/events/"+consumer+"/default/e", "event", clientv3.WithLease(lease.ID))
		verified := revision(t, store)
		_, err = admin(store).Revoke(ctx, lease.ID)
		require.NoError(t, err)
		_, stragglers, err := store.DeleteVerified(ctx, guard, verified, activities.WhicheverCut)
		require.NoError(t, err)
		require.Empty(t, stragglers)
	})
}

func TestDeleteVerified_WhileSomebodyWrites_LosesNoWrite(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		ctx, store := t.Context(), server.open(t)
		entries, verified := written(t, store, 3000)

		written := map[string]bool{}
		var writing sync.WaitGroup
		writing.Go(func() {
			for range 200 {
				ref := entries[rand.IntN(len(entries))].Ref
				_, err := admin(store).Put(ctx, keyOf(ref), "acknowledged")
				if err == nil {
					written[ref.String()] = true
				}
			}
		})
		_, _, err := store.DeleteVerified(ctx, guard, verified, activities.WhicheverCut)
		require.NoError(t, err)
		writing.Wait()
		_, stragglers, err := store.DeleteVerified(ctx, guard, verified, activities.WhicheverCut)
		require.NoError(t, err)
		require.Len(t, stragglers, len(written))
		for _, straggler := range stragglers {
			require.True(t, written[straggler.Ref.String()] && !straggler.Deleted)
		}
	})
}

func TestDeleteRefs_WhenOneHasChanged_GivesErrConflict(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		ctx, store := t.Context(), server.open(t)
		claimed(t, store)
		require.NoError(t, store.Write(ctx, guard, oneBatch(someEntries(5, 64)), ignore))
		listed, err := store.List(ctx, consumer, []keyspace.Family{configMaps}, revision(t, store))
		require.NoError(t, err)
		require.NoError(t, store.DeleteRefs(ctx, guard, listed[:2]))
		require.NoError(t, store.DeleteRefs(ctx, guard, listed[:3]), "a repeat, with one more")
		putRaw(t, store, keyOf(listed[4].Ref), "changed")
		require.ErrorIs(t, store.DeleteRefs(ctx, guard, listed[3:]), activities.ErrConflict)
		require.Len(t, export(t, store, below("/registry/")), 2)
	})
}

func TestClaim_OfAnotherMove_IsToldWithItsOwner(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		ctx, store := t.Context(), server.open(t)
		info := activities.ClaimInfo{WorkflowID: "w", RunID: "run-1", OriginShard: "root", ClaimedAt: time.Now().UTC().Truncate(time.Second)}
		_, err := store.ReadClaim(ctx, consumer)
		require.ErrorIs(t, err, activities.ErrNotFound)
		for range 2 {
			claim, err := store.Claim(ctx, guard, info)
			require.NoError(t, err)
			require.Equal(t, activities.Claim{Token: guard.Token, ClaimInfo: info}, claim)
		}
		other := activities.Guard{LogicalCluster: consumer, Token: "run-2/1"}
		claim, err := store.Claim(ctx, other, activities.ClaimInfo{WorkflowID: "x"})
		require.ErrorIs(t, err, activities.ErrClaimed)
		require.Equal(t, "w", claim.WorkflowID)

		require.ErrorIs(t, store.RaiseToken(ctx, other, "run-2/2"), activities.ErrTokenLost)
		require.NoError(t, store.Release(ctx, other), "its own claim is not there")
		require.NoError(t, store.RaiseToken(ctx, guard, "run-1/2"))
		require.NoError(t, store.RaiseToken(ctx, guard, "run-1/2"), "repeat")
		require.NoError(t, store.RaiseToken(ctx, guard, "run-1/3"), "from a token that is behind")
		require.ErrorIs(t, store.RaiseToken(ctx, guard, "run-1/2"), activities.ErrTokenLost)
		require.ErrorIs(t, store.Release(ctx, guard), activities.ErrTokenLost)
		latest := activities.Guard{LogicalCluster: consumer, Token: "run-1/3"}
		require.NoError(t, store.Release(ctx, latest))
		require.NoError(t, store.Release(ctx, latest), "repeat")
		require.NoError(t, store.Seal(ctx, latest, "run-1/4"), "a claim that is gone")
		require.Empty(t, export(t, store, below("/kcp-migrate/migrations/")))
	})
}

func TestOthersSince_IsOfTheFirstClaimButOnesOwn(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		ctx, store := t.Context(), server.open(t)
		claimed(t, store)
		since, err := store.OthersSince(ctx, consumer)
		require.NoError(t, err)
		require.Zero(t, since)
		first := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
		for i, name := range []string{"gated", "later", "first", "last"} {
			other := activities.Guard{LogicalCluster: name, Token: activities.NewToken(name)}
			after := []time.Duration{-time.Hour, time.Second, 0, time.Hour}[i]
			_, err := store.Claim(ctx, other, activities.ClaimInfo{RunID: name, ClaimedAt: first.Add(after)})
			require.NoError(t, err)
			if name != "gated" {
				require.NoError(t, store.RaiseToken(ctx, other, other.Token.Next()))
			}
		}
		since, err = store.OthersSince(ctx, consumer)
		require.NoError(t, err)
		require.Equal(t, first, since)
	})
}

func TestCommit_Repeated_GivesTheRevisionOfTheLanding(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		ctx, store := t.Context(), server.open(t)
		claimed(t, store)
		fenced, err := store.EditLogicalCluster(ctx, guard, consumer, 0, []byte("fenced"))
		require.NoError(t, err)
		_, err = store.Commit(ctx, guard, fenced+1, []byte("open"), "run-1/2", activities.Landing{})
		require.ErrorIs(t, err, activities.ErrConflict)
		landed, err := store.Commit(ctx, guard, fenced, []byte("open"), "run-1/2", activities.Landing{})
		require.NoError(t, err)
		again, err := store.Commit(ctx, guard, fenced, []byte("open"), "run-1/2", activities.Landing{})
		require.NoError(t, err)
		require.Equal(t, landed, again)

		touched, err := store.EditLogicalCluster(ctx, activities.Guard{LogicalCluster: consumer, Token: "run-1/2"}, consumer, landed, []byte("touched"))
		require.NoError(t, err)
		// A retry under the raised token that has read the object anew must not land a second time.
		again, err = store.Commit(ctx, activities.Guard{LogicalCluster: consumer, Token: "run-1/2"}, touched, []byte("stale"), "run-1/3", activities.Landing{})
		require.NoError(t, err)
		require.Equal(t, landed, again)
		object, err := store.LogicalCluster(ctx, consumer)
		require.NoError(t, err)
		require.Equal(t, "touched", string(object.Value))

		claim, err := store.ReadClaim(ctx, consumer)
		require.NoError(t, err)
		require.True(t, claim.Committed)
		require.Equal(t, activities.Token("run-1/2"), claim.Token)
		require.ErrorIs(t, store.Seal(ctx, guard, "run-1/3"), activities.ErrCommitted)
	})
}

func TestClaim_ByManyAtTheSameTime_IsHeldByOne(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		store := server.open(t)
		failures := make([]error, 20)
		var racing sync.WaitGroup
		for i := range failures {
			racing.Go(func() {
				guard := activities.Guard{LogicalCluster: consumer, Token: activities.NewToken(fmt.Sprint("run-", i))}
				_, failures[i] = store.Claim(t.Context(), guard, activities.ClaimInfo{})
			})
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

func TestLogicalCluster_IsEditedAndDeletedOnlyAtItsRevision(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		ctx, store := t.Context(), server.open(t)
		claimed(t, store)
		_, err := store.LogicalCluster(ctx, consumer)
		require.ErrorIs(t, err, activities.ErrNotFound)
		first, err := store.EditLogicalCluster(ctx, guard, consumer, 0, []byte("1"))
		require.NoError(t, err)
		_, err = store.EditLogicalCluster(ctx, guard, consumer, 0, []byte("2"))
		require.ErrorIs(t, err, activities.ErrConflict)
		second, err := store.EditLogicalCluster(ctx, guard, consumer, first, []byte("2"))
		require.NoError(t, err)
		object, err := store.LogicalCluster(ctx, consumer)
		require.NoError(t, err)
		require.Equal(t, activities.Object{Value: []byte("2"), ModRevision: second, Revision: second}, object)
		_, err = store.EditLogicalCluster(ctx, guard, neighbour, 0, []byte("x"))
		require.ErrorContains(t, err, "the guard is for")
		require.ErrorIs(t, store.DeleteLogicalCluster(ctx, guard, first), activities.ErrConflict)
		require.NoError(t, store.DeleteLogicalCluster(ctx, guard, second))
		require.ErrorIs(t, store.DeleteLogicalCluster(ctx, guard, second), activities.ErrConflict)
	})
}

func TestAwaitLogicalCluster_SeesEveryStateInTurn(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		store := server.open(t)
		key := store.layout.LogicalClusterKey(consumer)
		next := map[string]func(){
			"absent": func() { putRaw(t, store, key, "1") },
			"1":      func() { compactAll(t, store); putRaw(t, store, key, "2") },
			"2":      func() { deleteRaw(t, store, key) },
		}
		var seen []string
		err := store.AwaitLogicalCluster(t.Context(), consumer, func(object *activities.Object) (bool, error) {
			state := "absent"
			if object != nil {
				state = string(object.Value)
			}
			seen = append(seen, state)
			if len(seen) == 4 {
				return true, nil
			}
			next[state]()
			return false, nil
		})
		require.NoError(t, err)
		require.Equal(t, []string{"absent", "1", "2", "absent"}, seen)

		failure := errors.New("phase is wrong")
		err = store.AwaitLogicalCluster(t.Context(), consumer, func(*activities.Object) (bool, error) { return false, failure })
		require.ErrorIs(t, err, failure)
		ctx, cancel := context.WithCancel(t.Context())
		err = store.AwaitLogicalCluster(ctx, consumer, func(*activities.Object) (bool, error) { cancel(); return false, nil })
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestBoundCRDs_AreCreatedOnceAndLeftOutWhenAbsent(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		ctx, store := t.Context(), server.open(t)
		claimed(t, store)
		for _, want := range []bool{true, false} {
			created, err := store.CreateBoundCRD(ctx, guard, "uid-1", []byte("crd"))
			require.NoError(t, err)
			require.Equal(t, want, created)
		}
		found, err := store.BoundCRDs(ctx, []string{"uid-1", "uid-2"})
		require.NoError(t, err)
		require.Equal(t, map[string][]byte{"uid-1": []byte("crd")}, found)
	})
}

func TestLiftRevision_ReachesTheWantedOneAndNotMuchMore(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		ctx, store := t.Context(), server.open(t)
		claimed(t, store)
		wanted := revision(t, store) + 1000
		told := int64(0)
		reached, err := store.LiftRevision(ctx, guard, wanted, 0, func(revision int64) { told = revision })
		require.NoError(t, err)
		require.GreaterOrEqual(t, reached, wanted)
		require.Less(t, reached, wanted+liftsInFlight)
		require.Equal(t, reached, revision(t, store))
		require.Positive(t, told)
		again, err := store.LiftRevision(ctx, guard, wanted, 1, func(int64) {})
		require.NoError(t, err)
		require.Equal(t, reached, again)
	})
}

func TestLock_IsHeldByOneAtATime(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		first, second := server.open(t), server.open(t)
		unlock, err := first.Lock(t.Context(), "wake")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err = second.Lock(ctx, "wake")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		unlock()
		unlock, err = second.Lock(t.Context(), "wake")
		require.NoError(t, err)
		unlock()
		require.Eventually(t, func() bool { return len(export(t, first, below("/kcp-migrate/locks/"))) == 0 }, waitFor, tick)
	})
}

func TestHealth_TellsAlarmsAndTheOldestVersion(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		store := server.open(t)
		health, err := store.Health(t.Context())
		require.NoError(t, err)
		require.Equal(t, revision(t, store), health.Revision)
		require.Positive(t, health.DatabaseBytes)
		require.Regexp(t, `^3\.\d+\.\d+`, health.Version)
		require.Empty(t, health.Alarms)
	})
}
