package realkcp

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
	"github.com/kcp-migrate/kcp-migrate/test/installation"
)

// exports are the whole etcds of both shards at about one time.
type exports map[string]installation.Export

func (s *stack) exports(t testing.TB) exports {
	t.Helper()
	var root, other installation.Export
	var group errgroup.Group
	for name, export := range map[string]*installation.Export{rootShard: &root, otherShard: &other} {
		shard := s.shard(t, name)
		group.Go(func() (err error) {
			*export, err = shard.Export(t.Context())
			return err
		})
	}
	require.NoError(t, group.Wait())
	return exports{rootShard: root, otherShard: other}
}

// foreign is all that is in an etcd and not of the logical cluster that moves.
func foreign(export installation.Export, logicalCluster string) map[string]installation.Exported {
	keys := maps.Clone(export.Keys)
	for key := range export.Tenant(logicalCluster) {
		delete(keys, key)
	}
	return keys
}

// requireOthersUntouched compares both etcds, all but the logical cluster that moved.
func requireOthersUntouched(t testing.TB, logicalCluster string, before, after exports) {
	t.Helper()
	for shard := range before {
		old, now := foreign(before[shard], logicalCluster), foreign(after[shard], logicalCluster)
		require.NotEmpty(t, old)
		for _, keys := range []map[string]installation.Exported{old, now} {
			maps.DeleteFunc(keys, func(key string, exported installation.Exported) bool { return exported.Leased || isAlive(key) })
		}
		assert.Empty(t, installation.Difference(old, now), "on shard %s", shard)
	}
}

// alive are the keys of others that rightly change while a tenant moves, by what they contain.
var alive = []struct{ part, why string }{}

func isAlive(key string) bool {
	for _, kept := range alive {
		if strings.Contains(key, kept.part) {
			return true
		}
	}
	return false
}

// requireNothingLeft expects the origin to hold nothing of the tenant, and neither etcd a claim.
func requireNothingLeft(t testing.TB, logicalCluster, origin string, after exports) {
	t.Helper()
	assert.Empty(t, after[origin].Tenant(logicalCluster), "left on shard %s", origin)
	for shard, export := range after {
		assert.Empty(t, export.Claims(), "on shard %s", shard)
	}
}

// requireArrived expects every entry at the destination as it was at the origin, but for what a move or a live
// controller rightly changes, and a lease on the very entries that had one.
func requireArrived(t testing.TB, logicalCluster string, before, after installation.Export) {
	t.Helper()
	old, now := before.Tenant(logicalCluster), after.Tenant(logicalCluster)
	for key, exported := range now {
		if was, found := old[key]; found {
			require.Equal(t, was.Leased, exported.Leased, key)
		}
	}
	for _, keys := range []map[string]installation.Exported{old, now} {
		maps.DeleteFunc(keys, func(key string, exported installation.Exported) bool { return exported.Leased || mayChange(key) })
		require.NotEmpty(t, keys)
	}
	assert.Empty(t, installation.Difference(old, now))
}

// mayChange is whether an entry of a tenant rightly differs after a move.
func mayChange(key string) bool {
	return strings.Contains(key, "/"+keyspace.LogicalClusters.String()+"/") || // says where the tenant lives
		strings.HasSuffix(key, "/kube-root-ca.crt") || // each shard has a CA of its own
		strings.Contains(key, "/core/resourcequotas/") || // counts what the tests' clients write
		strings.HasSuffix(key, "-token") || // ca.crt in token Secrets
		strings.Contains(key, "/default/written-") || strings.Contains(key, "/default/seen-on-") // the tests' clients write them
}
