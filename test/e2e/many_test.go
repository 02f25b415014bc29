package e2e

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/kcp-migrate/kcp-migrate/test/installation"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

const (
	// crowd is how many tenants leave a shard at once.
	crowd = 16
	// belongings is how many ConfigMaps each of them has.
	belongings = 20
)

// Every one of them wakes the shard that it leaves, by the same object: no wake may be missed, or end another's.
func TestMove_OfManyTenantsOutOfOneShardAtOnce_MovesEachAndLeavesTheShardAwake(t *testing.T) {
	stack := start(t, 0)
	tenants := make([]string, crowd)
	for i := range tenants {
		tenants[i] = fmt.Sprintf("root:crowd-%d", i)
		stack.createTenant(t, tenants[i])
	}
	before, _ := stack.settled(t)

	runs := make([]client.WorkflowRun, crowd)
	for i, tenant := range tenants {
		runs[i] = stack.beginAs(t, tenant, workflows.Input{LogicalCluster: tenant, DestinationShard: "shard-1"})
	}

	results := make([]workflows.Result, crowd)
	for i, run := range runs {
		results[i] = finish(t, run)
		t.Logf("%s was away for %s", tenants[i], time.Duration(results[i].TimeAway))
	}
	after, arrived := stack.export(t, "root"), stack.export(t, "shard-1")
	for _, result := range results {
		entries := unchanging(arrived.Tenant(result.LogicalCluster))
		require.Greater(t, len(entries), belongings)
		require.Empty(t, installation.Difference(unchanging(before.Tenant(result.LogicalCluster)), entries))
		require.Empty(t, after.Tenant(result.LogicalCluster))
	}
	require.Empty(t, after.Claims())
	require.Empty(t, arrived.Claims())
	stack.requireAwake(t)
}

// createTenant makes a workspace on the root shard, with something in it.
func (s *stack) createTenant(t *testing.T, path string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), moveDeadline)
	defer cancel()
	require.NoError(t, s.CreateWorkspace(ctx, path, belongings))
}

// requireAwake expects no API server to be blind, and controllers to work on.
func (s *stack) requireAwake(t *testing.T) {
	t.Helper()
	for _, shard := range s.Shards {
		require.NoError(t, shard.Expect(t.Context(), http.StatusOK, "*"))
	}
	s.createTenant(t, "root:latecomer")
}
