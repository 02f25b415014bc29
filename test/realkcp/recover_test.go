package realkcp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/workflows"
)

func TestRecover_OfATenantLeftFenced_GivesItBack(t *testing.T) {
	stack := theStack(t)
	tenant := stack.createTenant(t, "forsaken")
	origin, before := stack.settledExports(t, tenant), tenant.inventory(t)
	id := stack.startGated(t, tenant.path)
	stack.withoutWorker(t, otherShard, func() {
		stack.command(t, exitDone, "approve", id)
		stack.awaitStatus(t, id, func(status workflows.Status) bool { return status.Fenced })
		stack.terminate(t, id)
	})
	require.Contains(t, stack.command(t, exitDone, "recover", tenant.path), "fenced by the move")

	stack.command(t, exitDone, "recover", tenant.path, "--undo", "--wait")

	stack.requireBack(t, tenant, origin, before)
	stack.requireScheduling(t, rootShard)
	stack.requireMovable(t, tenant, before)
	stack.delete(t, "forsaken")
}

func TestRecover_OfATenantThatIsServedAtTheDestination_EmptiesTheOrigin(t *testing.T) {
	stack := theStack(t)
	tenant := stack.createTenant(t, "halfway")
	origin, before := stack.settledExports(t, tenant), tenant.inventory(t)
	stack.command(t, exitDone, "start", tenant.path, otherShard)
	id := workflows.WorkflowID(tenant.path)
	stack.awaitStatus(t, id, func(status workflows.Status) bool { return status.Committed })
	stack.terminate(t, id)

	stack.command(t, exitDone, "recover", tenant.path, "--resume", "--wait")

	after, logicalCluster := stack.exports(t), tenant.logicalCluster(t)
	stack.requireArrived(t, logicalCluster, leg{rootShard, otherShard}, origin, after)
	requireNothingLeft(t, logicalCluster, rootShard, after)
	requireSameInventory(t, before, tenant.inventory(t))
	stack.move(t, tenant.path, rootShard)
	stack.delete(t, "halfway")
}

func (s *stack) terminate(t *testing.T, id string) {
	t.Helper()
	temporal, err := s.Temporal(t.Context())
	require.NoError(t, err)
	defer temporal.Close()
	require.NoError(t, temporal.TerminateWorkflow(t.Context(), id, "", t.Name()))
}
