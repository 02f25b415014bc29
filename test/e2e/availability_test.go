package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/test/installation"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// watchersPerServer makes it likely that the front door, which goes round, has led a client's watch through each API server.
const watchersPerServer = 2

// standstill is longer than a probe of an API server takes, and far shorter than what a move that is stuck would take.
const standstill = 3 * time.Second

func TestMove_BetweenShardsOfTwoAPIServersAndTwoWorkers_CutsTheWatchesThroughEach(t *testing.T) {
	t.Parallel()
	stack := start(t, 0, "--api-servers=2")
	for _, shard := range stack.Shards {
		stack.addWorker(t, shard.Name)
	}
	var watchers []*installation.Watcher
	for range 2 * watchersPerServer {
		watcher, err := stack.StartWatcher(t.Context(), consumer)
		require.NoError(t, err)
		defer watcher.Stop()
		watchers = append(watchers, watcher)
	}
	writer, err := stack.StartWriter(t.Context(), consumer)
	require.NoError(t, err)
	defer writer.Stop()

	var straight []*installation.StraightWatch
	for _, leg := range [][2]string{{"root", "shard-1"}, {"shard-1", "root"}, {"root", "shard-1"}} {
		origin, destination := stack.shard(t, leg[0]), stack.shard(t, leg[1])
		watches := watchStraight(t, origin, origin.APIServers...)
		straight = append(straight, watches...)

		stack.move(t, destination.Name)

		requireEnded(t, watches)
		require.NoError(t, destination.Expect(t.Context(), http.StatusOK, consumerCluster, "*"))
		require.NoError(t, origin.Expect(t.Context(), http.StatusOK, "*"))
		require.NoError(t, origin.ExpectReleased(t.Context(), consumerCluster))
		for i, watcher := range watchers {
			_, err := watcher.Probe(t.Context(), fmt.Sprintf("seen-by-%d-of-%d", i, len(straight)))
			require.NoError(t, err)
		}
	}
	writer.Stop()
	lost, err := writer.Verify(t.Context())
	require.NoError(t, err)
	require.Empty(t, lost)
	for _, watcher := range watchers {
		require.Empty(t, watcher.FalseDeletes(writer.Deleted()))
	}
	requireToldOfNoDeletion(t, straight, writer.Deleted())
}

// Only the one that was elected cuts watches (docs/kcp-findings.md, Trap 3); a shard that is only moved to need not cut any.
func TestMove_FromAShardThatElectsALeader_IsRefusedAndNoWatchSeesADeletion(t *testing.T) {
	t.Parallel()
	stack := start(t, 0)
	follower := stack.addAPIServer(t, "shard-1", "--role=following")
	stack.move(t, "shard-1")
	origin, destination := stack.export(t, "shard-1"), stack.export(t, "root")
	shard := stack.shard(t, "shard-1")
	straight := watchStraight(t, shard, follower.URL)

	outcome, err := stack.Run(t.Context(), t.Output(), "start", consumer, "root", "--wait")
	require.NoError(t, err)
	require.Equal(t, exitUndone, outcome.ExitCode, "%s", outcome.Stdout)
	require.Contains(t, stack.requireExit(t, exitUndone, "watch", consumer), activities.WatchesNotCut+": API servers "+follower.URL+" ")

	require.False(t, straight[0].Ended(), "the follower has cut a watch: it is none")
	requireToldOfNoDeletion(t, straight, nil)
	code, err := shard.Answer(t.Context(), follower.URL, consumerCluster)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, code)
	require.NoError(t, shard.Expect(t.Context(), http.StatusOK, consumerCluster, "*"))
	require.Empty(t, installation.Difference(unchanging(origin.Tenant(consumerCluster)), unchanging(stack.export(t, "shard-1").Tenant(consumerCluster))))
	requireNeighboursUntouched(t, consumerCluster, destination, stack.export(t, "root"))
	require.Empty(t, stack.export(t, "root").Tenant(consumerCluster))
}

func TestMove_OneOfTwoWorkersOfEachShardKilledWhileCopying_TheOthersGoOn(t *testing.T) {
	t.Parallel()
	stack := start(t, largeTenant)
	sources, copiers := stack.addWorker(t, "root"), stack.addWorker(t, "shard-1")
	origin := stack.export(t, "root")
	run := stack.begin(t, workflows.Input{LogicalCluster: consumer, DestinationShard: "shard-1"})
	stack.awaitStatus(t, run, isMigrating)
	require.NoError(t, stack.whoCopies(t, run, copiers).Kill())
	require.NoError(t, sources[0].Kill()) // entries are asked for at the first address that answers

	requireArrived(t, stack, finish(t, run), origin)
}

// The tenant is served through the API servers that are left, and the move ends by itself once the others are back.
func TestMove_OneOfTwoAPIServersOfEachShardKilledWhileCopying_EndsOnceTheyAreBack(t *testing.T) {
	t.Parallel()
	stack := start(t, largeTenant)
	seconds := []*installation.APIServer{stack.addAPIServer(t, "root"), stack.addAPIServer(t, "shard-1")}
	origin := stack.export(t, "root")
	straight := watchStraight(t, stack.shard(t, "root"), stack.shard(t, "root").APIServers...)
	run := stack.begin(t, workflows.Input{LogicalCluster: consumer, DestinationShard: "shard-1"})
	stack.awaitStatus(t, run, isMigrating)
	for _, second := range seconds {
		require.NoError(t, second.Kill())
	}
	stack.awaitStatus(t, run, func(status workflows.Status) bool { return status.Committed })
	stack.awaitServed(t, true)
	stack.requireRuns(t, run)

	for _, second := range seconds {
		require.NoError(t, second.StartAgain(t.Context()))
	}
	requireArrived(t, stack, finish(t, run), origin)
	requireEnded(t, straight)
	requireToldOfNoDeletion(t, straight, nil)
}

// Nothing can be proven through an API server that is down, so the tenant must not be fenced for it.
func TestMove_WhileAnAPIServerIsDown_DoesNotFenceTheTenant(t *testing.T) {
	t.Parallel()
	stack := start(t, 0)
	second := stack.addAPIServer(t, "root")
	poller := stack.startPoller(t)
	run := stack.begin(t, workflows.Input{LogicalCluster: consumer, DestinationShard: "shard-1", RequireApproval: true})
	stack.awaitStatus(t, run, func(status workflows.Status) bool { return status.WaitsForApproval })
	require.NoError(t, second.Kill())
	stack.steer(t, "approve", run)
	stack.awaitFailure(t, run, "open canary watches")
	seen := poller.Stop()
	require.Equal(t, map[int]int{http.StatusOK: seen.Answers[http.StatusOK]}, seen.Answers)

	require.NoError(t, second.StartAgain(t.Context()))
	finish(t, run)
}

func (s *stack) shard(t *testing.T, name string) installation.Shard {
	t.Helper()
	shard, err := s.Shard(name)
	require.NoError(t, err)
	return shard
}

// addWorker has a shard have two workers, each of which names both where entries are to be had.
func (s *stack) addWorker(t *testing.T, shard string) (both []*installation.Process) {
	t.Helper()
	require.NoError(t, s.workers[shard].Stop())
	addresses, err := installation.FreeAddresses(2)
	require.NoError(t, err)
	for _, address := range addresses {
		s.startWorker(t, shard, "--transfer-listen="+address, "--transfer-advertise="+strings.Join(addresses, ","))
		both = append(both, s.workers[shard])
	}
	return both
}

// whoCopies finds the worker that an activity of a move which is copying runs on.
func (s *stack) whoCopies(t *testing.T, run client.WorkflowRun, workers []*installation.Process) (copying *installation.Process) {
	t.Helper()
	temporal := s.temporal(t)
	require.Eventually(t, func() bool {
		description, err := temporal.DescribeWorkflow(t.Context(), run.GetID(), run.GetRunID())
		require.NoError(t, err)
		for _, pending := range description.RawResponse.GetPendingActivities() {
			for _, worker := range workers {
				if strings.HasPrefix(pending.GetLastWorkerIdentity(), fmt.Sprintf("%d@", worker.PID())) {
					copying = worker
				}
			}
		}
		return copying != nil
	}, moveDeadline, pollEvery)
	return copying
}

// addAPIServer starts a second API server of a shard, and has the shard's worker know of both.
func (s *stack) addAPIServer(t *testing.T, shardName string, flags ...string) *installation.APIServer {
	t.Helper()
	added, err := s.StartAPIServer(t.Context(), shardName, flags...)
	require.NoError(t, err)
	require.NoError(t, s.workers[shardName].Stop())
	s.startWorker(t, shardName, "--api-servers="+strings.Join(append(s.shard(t, shardName).APIServers, added.URL), ","))
	return added
}

func watchStraight(t *testing.T, shard installation.Shard, servers ...string) installation.StraightWatches {
	t.Helper()
	watches, err := shard.WatchStraightThrough(t.Context(), consumerCluster, servers...)
	t.Cleanup(watches.Stop)
	require.NoError(t, err)
	return watches
}

func requireEnded(t *testing.T, watches installation.StraightWatches) {
	t.Helper()
	for _, watching := range watches {
		require.Eventually(t, watching.Ended, moveDeadline, pollEvery)
	}
}

// requireToldOfNoDeletion leaves out what the tenant itself has deleted.
func requireToldOfNoDeletion(t *testing.T, watches installation.StraightWatches, asked map[string]bool) {
	t.Helper()
	for _, watching := range watches {
		for _, name := range watching.Deleted() {
			require.True(t, asked[name], name)
		}
	}
}

// requireRuns expects a move not to end while something it needs is down.
func (s *stack) requireRuns(t *testing.T, run client.WorkflowRun) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), standstill)
	defer cancel()
	require.Error(t, run.Get(ctx, nil)) // of the deadline, whichever side of the connection notices it first
	described, err := s.temporal(t).DescribeWorkflow(t.Context(), run.GetID(), run.GetRunID())
	require.NoError(t, err)
	require.Equal(t, enums.WORKFLOW_EXECUTION_STATUS_RUNNING, described.Status)
}

// awaitFailure waits until something that a move tried has failed for this reason.
func (s *stack) awaitFailure(t *testing.T, run client.WorkflowRun, reason string) {
	t.Helper()
	temporal := s.temporal(t)
	require.Eventually(t, func() bool {
		history := temporal.GetWorkflowHistory(t.Context(), run.GetID(), run.GetRunID(), false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		for history.HasNext() {
			event, err := history.Next()
			require.NoError(t, err)
			if strings.Contains(event.GetActivityTaskFailedEventAttributes().GetFailure().GetMessage(), reason) {
				return true
			}
		}
		return false
	}, moveDeadline, pollEvery)
}
