package etcd

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// A large tenant: 50,000 entries of 1 kB.
const benchEntries, benchBytes = 50_000, 1000

// eachBench runs a benchmark on every server, filled once with the large tenant.
func eachBench(b *testing.B, bench func(b *testing.B, store *Store)) {
	for _, server := range servers {
		b.Run(strings.ReplaceAll(server.name, " ", "-"), func(b *testing.B) {
			server.require(b)
			server.wipe(b)
			store := server.open(b)
			claimed(b, store)
			fill(b, store)
			b.ReportAllocs()
			b.ResetTimer()
			bench(b, store)
			b.ReportMetric(benchEntries*float64(b.N)/b.Elapsed().Seconds(), "entries/s")
		})
	}
}

func fill(b *testing.B, store *Store) {
	require.NoError(b, store.Write(b.Context(), guard, oneBatch(someEntries(benchEntries, benchBytes)), ignore))
}

func BenchmarkRead(b *testing.B) {
	eachBench(b, func(b *testing.B, store *Store) {
		pinned := revision(b, store)
		for b.Loop() {
			read := 0
			for entries, err := range store.Read(b.Context(), activities.ReadRequest{LogicalCluster: consumer, Revision: pinned}) {
				require.NoError(b, err)
				read += len(entries)
			}
			require.Equal(b, benchEntries, read)
		}
	})
}

func BenchmarkWrite(b *testing.B) {
	entries := someEntries(benchEntries, benchBytes)
	eachBench(b, func(b *testing.B, store *Store) {
		for b.Loop() {
			require.NoError(b, store.Write(b.Context(), guard, oneBatch(entries), ignore))
		}
	})
}

func BenchmarkDigest(b *testing.B) {
	eachBench(b, func(b *testing.B, store *Store) {
		pinned := revision(b, store)
		for b.Loop() {
			digest, err := store.Digest(b.Context(), consumer, pinned)
			require.NoError(b, err)
			require.Equal(b, int64(benchEntries), digest.Families[0].Entries)
		}
	})
}

func BenchmarkDeleteVerified(b *testing.B) {
	eachBench(b, func(b *testing.B, store *Store) {
		for range b.N {
			verified := revision(b, store)
			deleted, stragglers, err := store.DeleteVerified(b.Context(), guard, verified, activities.WhicheverCut)
			require.NoError(b, err)
			require.Empty(b, stragglers)
			require.Equal(b, int64(benchEntries), deleted)
			b.StopTimer()
			fill(b, store)
			b.StartTimer()
		}
	})
}

func BenchmarkDiscover(b *testing.B) {
	lines := fixture(b, "root")
	eachBench(b, func(b *testing.B, store *Store) {
		load(b, store, lines)
		_, err := store.discover(b.Context(), consumer, 0) // a worker has discovered the resources by the time that counts
		require.NoError(b, err)
		for b.Loop() {
			_, err := store.discover(b.Context(), consumer, 0)
			require.NoError(b, err)
		}
	})
}
