package realkcp

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
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

// quietTime is for how long nothing may change for controllers to count as settled.
const quietTime = 2 * time.Second

// settledExports waits until nobody but live controllers writes any more, beside the workspace that is about to move.
func (s *stack) settledExports(t testing.TB, moved *workspace) exports {
	t.Helper()
	logicalCluster, last := moved.logicalCluster(t), s.exports(t)
	ticker := time.NewTicker(quietTime)
	defer ticker.Stop()
	await(t, "controllers to settle", func(context.Context) error {
		<-ticker.C
		before := last
		last = s.exports(t)
		for shard := range last {
			for _, difference := range installation.Difference(foreign(before[shard], logicalCluster), foreign(last[shard], logicalCluster)) {
				if !moved.stirs(difference) {
					return errors.New(difference)
				}
			}
		}
		return nil
	})
	return last
}

// foreign is all that is in an etcd and not of the logical cluster that moves.
func foreign(export installation.Export, logicalCluster string) map[string]installation.Exported {
	keys := maps.Clone(export.Keys)
	for key := range export.Tenant(logicalCluster) {
		delete(keys, key)
	}
	return keys
}

// requireOthersUntouched compares both etcds, all but the logical cluster that moved and what has a lease.
func (s *stack) requireOthersUntouched(t testing.TB, moved *workspace, logicalCluster string, before, after exports) {
	t.Helper()
	for shard := range before {
		old, now := foreign(before[shard], logicalCluster), foreign(after[shard], logicalCluster)
		s.requireSameKeys(t, version{shard, before[shard].Revision}, version{shard, after[shard].Revision}, old, now, moved.stirs)
	}
}

// version is an etcd as it was at a revision.
type version struct {
	shard    string
	revision int64
}

// requireSameKeys compares keys by value, but for those with a lease and those that may change.
func (s *stack) requireSameKeys(t testing.TB, before, after version, old, now map[string]installation.Exported, mayChange func(key string) bool) {
	t.Helper()
	for _, keys := range []map[string]installation.Exported{old, now} {
		maps.DeleteFunc(keys, func(key string, exported installation.Exported) bool { return exported.Leased || mayChange(key) })
		require.NotEmpty(t, keys)
	}
	for _, difference := range installation.Difference(old, now) {
		_, key, _ := strings.Cut(difference, " ")
		fields := differences("", s.value(t, before, key), s.value(t, after, key))
		if reportsConditions(key) {
			fields = slices.DeleteFunc(fields, isCondition)
		}
		assert.Empty(t, fields, "%s, shard %s before and %s after", difference, before.shard, after.shard)
	}
}

// stirs is whether a key of somebody else rightly changes while the workspace moves.
func (w *workspace) stirs(key string) bool {
	if strings.HasSuffix(key, "compact_rev_key") {
		return true // every API server's compaction
	}
	for _, part := range []string{
		"/coordination.k8s.io/leases/system:admin/kube-system/apiserver-",         // every API server's heartbeat
		"/" + keyspace.LogicalClusters.String() + "/system:shard/",                // the wake of the origin (Trap 1)
		"/" + keyspace.CustomResourceDefinitions.String() + "/system:bound-crds/", // what the destination lacked; and kcp collects what nothing uses
		"/apis.kcp.io/apiexportendpointslices/customresources/",                   // a provider's list of the shards with consumers
		"/kcp-migrate/",              // the move's own
		"/system:shard/kcp-migrate:", // the sign by which it watches informers, taken away within seconds of an undo
	} {
		if strings.Contains(key, part) {
			return true
		}
	}
	// The owner Workspace names the shard.
	return strings.Contains(key, "/tenancy.kcp.io/workspaces/") && strings.HasSuffix(key, "/"+strings.ReplaceAll(w.path, ":", "/"))
}

// reportsConditions is whether kcp writes conditions into an object when it happens to look at it again: APIBindingsReconciled
// into a LogicalCluster when any APIBinding of it changes, minutes after its creation, and what holds up the deletion of an APIBinding.
func reportsConditions(key string) bool {
	return strings.Contains(key, "core.kcp.io/logicalclusters") || strings.Contains(key, "apis.kcp.io/apibindings")
}

// isCondition is whether a field that differences found is a condition, or tells who wrote it.
func isCondition(field string) bool {
	return strings.Contains(field, " status conditions: ") || strings.Contains(field, " metadata managedFields: ")
}

// value gives a key's value as a tree where it is JSON.
func (s *stack) value(t testing.TB, at version, key string) any {
	t.Helper()
	found, err := dialEtcd(t, s.shard(t, at.shard)).Get(t.Context(), key, clientv3.WithRev(at.revision))
	require.NoError(t, err)
	if len(found.Kvs) == 0 {
		return nil
	}
	var tree any
	if json.Unmarshal(found.Kvs[0].Value, &tree) != nil {
		return found.Kvs[0].Value
	}
	return tree
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
func (s *stack) requireArrived(t testing.TB, logicalCluster string, leg leg, before, after exports) {
	t.Helper()
	origin, destination := before[leg.origin], after[leg.destination]
	old, now := origin.Tenant(logicalCluster), destination.Tenant(logicalCluster)
	for key, exported := range now {
		if was, found := old[key]; found {
			require.Equal(t, was.Leased, exported.Leased, key)
		}
	}
	s.requireSameKeys(t, version{leg.origin, origin.Revision}, version{leg.destination, destination.Revision}, old, now, mayChange)
}

// mayChange is whether an entry of a tenant rightly differs after a move.
func mayChange(key string) bool {
	return strings.Contains(key, "/"+keyspace.LogicalClusters.String()+"/") || // says where the tenant lives
		strings.HasSuffix(key, "/kube-root-ca.crt") || // each shard has a CA of its own
		strings.Contains(key, "/core/resourcequotas/") || // counts what the tests' clients write
		strings.Contains(key, "/apis.kcp.io/apiexportendpointslices/") || // each shard writes its own endpoint into it
		strings.HasSuffix(key, "-token") || // ca.crt in token Secrets
		strings.Contains(key, "/default/written-") || strings.Contains(key, "/default/seen-on-") // the tests' clients write them
}
