package e2e

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/test/installation"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

const (
	// largeTenant is copied in about a second: long enough to be interrupted.
	largeTenant = 20_000
	// interrupted is less than any activity's heartbeat timeout, and far more than an undisturbed move is away.
	interrupted = 5 * time.Second
	// memoryLimit is what a worker may have resident while it moves 5,000 entries.
	memoryLimit = 150 << 20
)

// Invariant 5. These and others that mostly wait for timeouts are parallel.
func TestMove_WorkerKilledWhileCopying_GoesOn(t *testing.T) {
	for _, shard := range []string{"root", "shard-1"} {
		t.Run(shard, func(t *testing.T) {
			t.Parallel()
			stack := start(t, largeTenant)
			origin := stack.export(t, "root")
			run := stack.begin(t, workflows.Input{LogicalCluster: consumer, DestinationShard: "shard-1"})
			stack.awaitStatus(t, run, isMigrating)
			require.NoError(t, stack.workers[shard].Kill())
			stack.startWorker(t, shard)

			result := finish(t, run)
			requireArrived(t, stack, result, origin)
		})
	}
}

// Invariant 4.
func TestMove_WorkerThatWasGivenUpForDead_DoesNoHarmWhenItWakes(t *testing.T) {
	t.Parallel()
	stack := start(t, largeTenant)
	origin := stack.export(t, "root")
	frozen := stack.workers["shard-1"]
	run := stack.begin(t, workflows.Input{LogicalCluster: consumer, DestinationShard: "shard-1"})
	stack.awaitStatus(t, run, isMigrating)
	require.NoError(t, frozen.Freeze())
	// The frozen one still holds its port.
	stack.startWorker(t, "shard-1", "--transfer-listen=127.0.0.1:0", "--transfer-advertise=")
	result := finish(t, run)
	require.Greater(t, time.Duration(result.TimeAway), interrupted, "the worker was frozen too late to have been given up for dead")
	requireArrived(t, stack, result, origin)
	originBefore, destinationBefore := stack.export(t, "root"), stack.export(t, "shard-1")

	require.NoError(t, frozen.Thaw())
	// Stopping lets it finish what it has at hand.
	require.NoError(t, frozen.Stop())

	require.Empty(t, installation.Difference(
		unchanging(originBefore.Tenant(result.LogicalCluster)), unchanging(stack.export(t, "root").Tenant(result.LogicalCluster))))
	require.Empty(t, installation.Difference(
		unchanging(destinationBefore.Tenant(result.LogicalCluster)), unchanging(stack.export(t, "shard-1").Tenant(result.LogicalCluster))))
}

// How long the tenant is away is measured by `make demo ENTRIES=5000`.
func TestMove_OfFiveThousandEntries_KeepsWorkersSmallAndTheTenantServed(t *testing.T) {
	stack := start(t, 5000)
	poller := stack.startPoller(t)
	stack.move(t, "shard-1")
	seen := poller.Stop()
	t.Logf("unavailable %s in all, %s at a stretch, answers %v", seen.Total, seen.Longest, seen.Answers)
	require.NotZero(t, seen.Answers[http.StatusOK])
	for shard, worker := range stack.workers {
		memory, err := worker.PeakMemory()
		require.NoError(t, err)
		t.Logf("worker of shard %s had at most %d MiB resident", shard, memory>>20)
		require.LessOrEqual(t, memory, int64(memoryLimit))
	}
}

func isMigrating(status workflows.Status) bool { return status.Phase == workflows.Migrating }

// requireArrived expects the tenant, as it was at its origin, whole at the destination and gone from the origin.
func requireArrived(t *testing.T, stack *stack, result workflows.Result, origin installation.Export) {
	t.Helper()
	originNow, destinationNow := stack.export(t, "root"), stack.export(t, "shard-1")
	require.Empty(t, installation.Difference(
		unchanging(origin.Tenant(result.LogicalCluster)), unchanging(destinationNow.Tenant(result.LogicalCluster))))
	require.Empty(t, originNow.Tenant(result.LogicalCluster))
	require.Empty(t, originNow.Claims())
	require.Empty(t, destinationNow.Claims())
	requireNeighboursUntouched(t, result.LogicalCluster, origin, originNow)
}
