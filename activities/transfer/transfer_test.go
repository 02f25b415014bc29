package transfer

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"pgregory.net/rapid"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
	"github.com/kcp-migrate/kcp-migrate/activities/transfer/transferpb"
)

// patience bounds every wait of a test.
const patience = time.Minute

func TestRead_OfLargeTenant_GivesEveryEntryUnchangedAndInOrder(t *testing.T) {
	entries := tenant(40_000)
	odd := []activities.Entry{
		{Ref: activities.Ref{Family: configMaps}, Value: []byte("empty suffix")},
		{Ref: activities.Ref{Family: configMaps, Suffix: "default/\xff\xfe"}, Value: []byte("suffix that is not UTF-8")},
		{Ref: activities.Ref{Family: cowboys, Suffix: "a/b/c"}, Value: bytes.Repeat([]byte{0}, 10<<20), TTL: time.Nanosecond},
	}
	entries = append(odd, entries...)
	source := newFakeSource(entries, 500)

	got, err := readAll(t.Context(), connect(t, source), readRequest())

	require.NoError(t, err)
	require.Len(t, got, len(entries))
	for i := range entries {
		require.Equal(t, entries[i], got[i])
	}
	require.Equal(t, readRequest(), source.asked)
}

func TestRead_After_ResumesBehindTheEntry(t *testing.T) {
	entries := tenant(5000)
	request := readRequest()
	request.After = &entries[3210].Ref

	got, err := readAll(t.Context(), connect(t, newFakeSource(entries, 100)), request)

	require.NoError(t, err)
	require.Equal(t, entries[3211:], got)
}

func TestRead_OfNothing_Ends(t *testing.T) {
	got, err := readAll(t.Context(), connect(t, newFakeSource(nil, 1)), readRequest())
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestRead_ForAnotherLogicalClusterThanTheGuards_IsRefused(t *testing.T) {
	source := newFakeSource(tenant(10), 1)
	request := readRequest()
	request.LogicalCluster = "2ei2q8rs6um1o3uc"

	_, err := readAll(t.Context(), connect(t, source), request)

	require.ErrorContains(t, err, "guard is for "+cluster)
	require.Zero(t, source.calls.Load())
}

func TestRead_WhenSourceFailsMidway_GivesWhatCameBeforeThenTheError(t *testing.T) {
	source := failingMidway{Source: newFakeSource(tenant(10), 10)}

	got, err := readAll(t.Context(), connect(t, source), readRequest())

	require.ErrorIs(t, err, activities.ErrCompacted)
	require.Len(t, got, 10)
}

// failingMidway loses its revision after its entries.
type failingMidway struct{ activities.Source }

func (f failingMidway) Read(ctx context.Context, asked activities.Guard, request activities.ReadRequest) activities.Batches {
	return func(yield func([]activities.Entry, error) bool) {
		for batch, err := range f.Source.Read(ctx, asked, request) {
			if !yield(batch, err) {
				return
			}
		}
		yield(nil, fmt.Errorf("read at revision %d: %w", request.Revision, activities.ErrCompacted))
	}
}

func TestDigest_OfManyFamiliesAndLeasedEntries_IsUnchanged(t *testing.T) {
	source := newFakeSource(nil, 1)
	source.digest.Leased = listing(tenant(40_000))
	for i := range 400 {
		family := keyspace.Family{Group: "group.example.com", Resource: fmt.Sprintf("r%d", i), Segment: keyspace.CustomResources}
		source.digest.Families = append(source.digest.Families,
			activities.FamilyDigest{Family: family, Entries: int64(i), Bytes: int64(i * 1000), SHA256: strings.Repeat("ab", 32)})
	}

	got, err := connect(t, source).Digest(t.Context(), guard, revision)

	require.NoError(t, err)
	want := source.digest
	want.Revision = revision
	require.Equal(t, want, got)
}

func TestDigest_OfEmptyTenant_StillNamesTheRevision(t *testing.T) {
	got, err := connect(t, newFakeSource(nil, 1)).Digest(t.Context(), guard, revision)
	require.NoError(t, err)
	require.Equal(t, revision, got.Revision)
	require.Empty(t, got.Families)
	require.Empty(t, got.Leased)
}

func TestList_GivesTheEntriesOfTheNamedFamilies(t *testing.T) {
	source := newFakeSource(nil, 1)
	source.listed = listing(tenant(50_000))

	got, err := connect(t, source).List(t.Context(), guard, []keyspace.Family{cowboys}, revision)

	require.NoError(t, err)
	require.Equal(t, source.listed[25_000:], got)
}

func TestGet_OfThousands_GivesThoseThatExist(t *testing.T) {
	source := newFakeSource(tenant(3500), 1)
	refs := []activities.Ref{{Family: configMaps, Suffix: "default/gone"}}
	for _, entry := range source.entries {
		refs = append(refs, entry.Ref)
	}

	got, err := connect(t, source).Get(t.Context(), guard, refs)

	require.NoError(t, err)
	require.Equal(t, source.entries, got)
}

func TestSingleAnswers_AreUnchanged(t *testing.T) {
	source := newFakeSource(nil, 1)
	source.crds = map[string][]byte{"uid-1": bytes.Repeat([]byte("x"), 2<<20), "uid-2": []byte("y"), "uid-3": []byte("z")}
	remote := connect(t, source)

	at, err := remote.Revision(t.Context(), guard)
	require.NoError(t, err)
	require.Equal(t, revision, at)

	object, err := remote.LogicalCluster(t.Context(), guard)
	require.NoError(t, err)
	require.Equal(t, activities.Object{Value: []byte(`{"kind":"LogicalCluster"}`), ModRevision: 12, Revision: revision}, object)

	crds, err := remote.BoundCRDs(t.Context(), guard, []string{"uid-1", "uid-3", "absent"})
	require.NoError(t, err)
	require.Equal(t, map[string][]byte{"uid-1": source.crds["uid-1"], "uid-3": []byte("z")}, crds)
}

// largeBatches are batches of one entry of almost a message each.
func largeBatches(count int) []activities.Entry {
	value := bytes.Repeat([]byte("v"), maxBatchBytes-1024)
	entries := tenant(count)
	for i := range entries {
		entries[i].Value = value
	}
	return entries
}

func TestRead_WhenReaderStalls_KeepsSourceOnlyAWindowAhead(t *testing.T) {
	// The window at the reader, one message on its way, one being sent and one in the reader's hands.
	const batchesAhead = windowBytes/maxBatchBytes + 3
	source := newFakeSource(largeBatches(60), 1)
	remote := connect(t, source)

	var consumed int64
	for batch, err := range remote.Read(t.Context(), guard, readRequest()) {
		require.NoError(t, err)
		require.Len(t, batch, 1)
		if consumed == 0 {
			require.Eventually(t, func() bool { return source.taken.Load() > 2 }, patience, time.Millisecond)
			require.Never(t, func() bool { return source.taken.Load() > batchesAhead }, 500*time.Millisecond, 5*time.Millisecond)
		}
		require.LessOrEqual(t, source.taken.Load()-consumed, int64(batchesAhead))
		consumed++
	}
	require.EqualValues(t, 60, consumed)
}

func TestRead_WhenReaderLeavesTheLoop_StopsTheSource(t *testing.T) {
	source := newFakeSource(largeBatches(60), 1)
	for _, err := range connect(t, source).Read(t.Context(), guard, readRequest()) {
		require.NoError(t, err)
		break
	}
	requireEnd(t, source)
	require.Less(t, source.taken.Load(), int64(60))
}

func TestRead_WhenCancelled_CancelsTheSourcesContext(t *testing.T) {
	source := newFakeSource(tenant(10), 1)
	source.waitAfter = 3
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	seen := 0
	var last error
	for _, err := range connect(t, source).Read(ctx, guard, readRequest()) {
		if last = err; err == nil {
			seen++
		}
		if seen == 3 {
			cancel()
		}
	}

	require.ErrorIs(t, last, context.Canceled)
	requireEnd(t, source)
}

func TestRead_WhenReaderTakesNothing_IsEndedByTheServer(t *testing.T) {
	source := newFakeSource(largeBatches(60), 1)
	server := newServer(t, Config{}, source)
	server.stallLimit = 100 * time.Millisecond
	address, _ := serve(t, server)
	dialer, err := NewDialer(Config{})
	require.NoError(t, err)

	var last error
	for _, err := range dial(t, dialer, address).Read(t.Context(), guard, readRequest()) {
		requireEnd(t, source) // the reader holds its first batch until the server has given up
		last = err
	}

	require.ErrorContains(t, last, "reader took nothing for 100ms")
	require.NotErrorIs(t, last, context.DeadlineExceeded)
}

func TestRead_WhenServerStops_IsNeitherCompleteNorCancelled(t *testing.T) {
	source := newFakeSource(tenant(10), 1)
	source.waitAfter = 3
	server := newServer(t, Config{}, source)
	server.drainLimit = 10 * time.Millisecond
	address, stop := serve(t, server)
	dialer, err := NewDialer(Config{})
	require.NoError(t, err)

	var last error
	for _, err := range dial(t, dialer, address).Read(t.Context(), guard, readRequest()) {
		last = err
		stop()
	}

	require.Error(t, last)
	require.NotErrorIs(t, last, context.Canceled)
	requireEnd(t, source)
}

func TestRead_WhenSourceEndsSilentlyWithItsContext_IsNotComplete(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := (&service{source: newFakeSource(nil, 1)}).Read(&transferpb.ReadRequest{Guard: encodeGuard(guard)}, endedStream{ctx: ctx})
	require.ErrorIs(t, err, context.Canceled)
}

type endedStream struct {
	grpc.ServerStreamingServer[transferpb.Entries]
	ctx context.Context
}

func (e endedStream) Context() context.Context { return e.ctx }

func TestSource_WhenWorkerIsBackAfterARestart_AnswersSoon(t *testing.T) {
	first := newServer(t, Config{}, newFakeSource(nil, 1))
	listener := listen(t, "127.0.0.1:0")
	stopFirst := serveOn(t, first, listener)
	dialer, err := NewDialer(Config{})
	require.NoError(t, err)
	address := listener.Addr().String()
	remote := dial(t, dialer, address)
	_, err = remote.Revision(t.Context(), guard)
	require.NoError(t, err)

	stopFirst()
	require.Eventually(t, func() bool {
		_, err := remote.Revision(t.Context(), guard)
		return err != nil
	}, patience, time.Millisecond)
	serveOn(t, newServer(t, Config{}, newFakeSource(nil, 1)), listen(t, address))

	require.Eventually(t, func() bool {
		_, err := remote.Revision(t.Context(), guard)
		return err == nil
	}, patience, 10*time.Millisecond)
}

func TestServer_AnswersManyReadersAtOnce(t *testing.T) {
	remote := connect(t, newFakeSource(nil, 1))
	var answered atomic.Int64
	t.Run("readers", func(t *testing.T) {
		for range 4 * maxStreams {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				_, err := remote.Digest(t.Context(), guard, revision)
				require.NoError(t, err)
				answered.Add(1)
			})
		}
	})
	require.EqualValues(t, 4*maxStreams, answered.Load())
}

func TestChunks_LoseNothingAndFitAMessage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(0, maxBatchBytes*3/2), 0, 50).Draw(t, "sizes")
		var joined []int
		for chunk := range chunks(sizes, func(size int) int { return size }) {
			total := 0
			for _, size := range chunk {
				total += size
			}
			require.NotEmpty(t, chunk)
			require.True(t, total <= maxBatchBytes || len(chunk) == 1)
			joined = append(joined, chunk...)
		}
		require.Equal(t, append([]int(nil), sizes...), joined)
	})
}

// requireEnd waits for the end of the source's Read.
func requireEnd(t *testing.T, source *fakeSource) {
	t.Helper()
	select {
	case <-source.readEnd:
	case <-time.After(patience):
		require.FailNow(t, "the source is still being read")
	}
}

// BenchmarkRead pulls entries of 1 kB over mutual TLS on loopback.
func BenchmarkRead(b *testing.B) {
	entries := tenant(20_000)
	for i := range entries {
		entries[i].Value = bytes.Repeat([]byte("v"), 1000)
	}
	config := newAuthority(b).trustedConfig(b)
	dialer, err := NewDialer(config)
	require.NoError(b, err)
	b.SetBytes(int64(len(entries)) * 1000)
	b.ReportAllocs()
	address, _ := serve(b, newServer(b, config, newFakeSource(entries, 1000)))
	remote := dial(b, dialer, address)
	for b.Loop() {
		got, err := readAll(b.Context(), remote, readRequest())
		require.NoError(b, err)
		require.Len(b, got, len(entries))
	}
}

func TestDial_WhenAWorkerDies_GoesOnWithAnotherOfItsShard(t *testing.T) {
	source := newFakeSource(nil, 1)
	first, stopFirst := serve(t, newServer(t, Config{}, source))
	second, stopSecond := serve(t, newServer(t, Config{}, source))
	dialer, err := NewDialer(Config{})
	require.NoError(t, err)
	remote := dial(t, dialer, first+","+second)
	_, err = remote.Revision(t.Context(), guard)
	require.NoError(t, err)

	stopFirst()
	require.Eventually(t, func() bool { // what was under way may still fail
		_, err := remote.Revision(t.Context(), guard)
		return err == nil
	}, time.Minute, 10*time.Millisecond)

	stopSecond()
	_, err = remote.Revision(t.Context(), guard)
	require.Error(t, err)
}
