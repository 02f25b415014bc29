package e2e

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// halfway is where a move is terminated.
type halfway struct {
	name    string
	entries int
	// reach gives a move that stands there.
	reach func(*testing.T, *stack) client.WorkflowRun
	// frozen is the shard whose worker was frozen for that.
	frozen    string
	committed bool
}

var usualMove = workflows.Input{LogicalCluster: consumer, DestinationShard: "shard-1"}

var halfways = []halfway{
	{name: "gate", reach: func(t *testing.T, stack *stack) client.WorkflowRun {
		return stack.beginUntil(t, gated(usualMove), func(status workflows.Status) bool { return status.WaitsForApproval })
	}},
	{name: "fenced", frozen: "shard-1", reach: func(t *testing.T, stack *stack) client.WorkflowRun { return stack.holdFenced(t, gated(usualMove)) }},
	{name: "copying", entries: slowTenant, reach: func(t *testing.T, stack *stack) client.WorkflowRun {
		return stack.beginUntil(t, usualMove, isMigrating)
	}},
	{name: "committed", committed: true, reach: func(t *testing.T, stack *stack) client.WorkflowRun {
		return stack.beginUntil(t, usualMove, func(status workflows.Status) bool { return status.Committed })
	}},
	{name: "deleting", frozen: "root", entries: slowTenant, committed: true, reach: func(t *testing.T, stack *stack) client.WorkflowRun {
		run := stack.begin(t, usualMove)
		etcd := stack.etcd(t, "root")
		require.Eventually(t, func() bool {
			present, err := etcd.Get(t.Context(), logicalClusterKey, clientv3.WithCountOnly())
			return err == nil && present.Count == 0
		}, moveDeadline, pollEvery)
		require.NoError(t, stack.workers["root"].Freeze())
		return run
	}},
}

func gated(input workflows.Input) workflows.Input {
	input.RequireApproval = true
	return input
}

func (s *stack) beginUntil(t *testing.T, input workflows.Input, reached func(workflows.Status) bool) client.WorkflowRun {
	t.Helper()
	run := s.begin(t, input)
	s.awaitStatus(t, run, reached)
	return run
}

// stop terminates a move halfway.
func (h halfway) stop(t *testing.T, stack *stack) {
	t.Helper()
	stack.terminate(t, h.reach(t, stack))
	if h.frozen != "" {
		stack.replaceWorker(t, h.frozen)
	}
}

func (s *stack) terminate(t *testing.T, run client.WorkflowRun) {
	t.Helper()
	require.NoError(t, s.temporal(t).TerminateWorkflow(t.Context(), run.GetID(), run.GetRunID(), t.Name()))
}

func TestRecover_AfterATermination_FinishesTheMove(t *testing.T) {
	for _, halfway := range halfways {
		t.Run(halfway.name, func(t *testing.T) {
			t.Parallel()
			stack := start(t, halfway.entries)
			origin := stack.export(t, "root")
			halfway.stop(t, stack)
			require.Equal(t, halfway.committed, stack.standing(t).Committed)

			result := stack.recover(t, "--resume")

			require.Equal(t, workflows.Completed, result.Phase)
			requireArrived(t, stack, result, origin)
			stack.requireExit(t, exitRefused, "recover", consumer)
		})
	}
}

func TestRecover_AfterATermination_TakesTheMoveBack(t *testing.T) {
	for _, halfway := range halfways {
		t.Run(halfway.name, func(t *testing.T) {
			t.Parallel()
			stack := start(t, halfway.entries)
			origin, destination := stack.export(t, "root"), stack.export(t, "shard-1")
			halfway.stop(t, stack)
			if halfway.committed {
				stack.requireExit(t, exitRefused, "recover", consumer, "--undo", "--wait")
				require.True(t, stack.standing(t).Committed)
				return
			}

			result := stack.recover(t, "--undo")

			require.Equal(t, workflows.Undone, result.Phase)
			requireTenantBack(t, stack, consumerCluster, origin, destination)
			stack.move(t, "shard-1")
		})
	}
}

func TestRecover_WhileTheWorkflowRuns_IsRefused(t *testing.T) {
	stack := start(t, 0)
	run := stack.beginUntil(t, gated(usualMove), func(status workflows.Status) bool { return status.WaitsForApproval })
	claims := stack.export(t, "root").Claims()
	for _, flags := range [][]string{nil, {"--undo", "--wait"}, {"--resume", "--wait"}} {
		stack.requireExit(t, exitRefused, append([]string{"recover", consumer}, flags...)...)
	}
	require.Equal(t, claims, stack.export(t, "root").Claims())
	stack.steer(t, "approve", run)
	finish(t, run)
}

// The origin opens without the destination on a person's word alone, and what the destination held is taken back when
// it answers again after all.
func TestRecover_DestinationIsLost_OpensTheOrigin(t *testing.T) {
	stack := start(t, 0)
	origin, destination := stack.export(t, "root"), stack.export(t, "shard-1")
	stack.terminate(t, stack.holdFenced(t, gated(usualMove)))
	stack.replaceWorker(t, "shard-1")
	stack.requireExit(t, exitRefused, "recover", consumer, "--undo", "--destination-is-lost", "--wait")
	require.NoError(t, stack.workers["shard-1"].Kill())
	stack.requireExit(t, exitRefused, "recover", consumer, "--undo", "--wait")

	require.Equal(t, workflows.Undone, stack.recover(t, "--undo", "--destination-is-lost").Phase)
	require.Empty(t, stack.export(t, "root").Claims())
	require.NotEmpty(t, stack.export(t, "shard-1").Claims())
	stack.awaitServed(t, true)

	stack.startWorker(t, "shard-1")
	require.Equal(t, workflows.Undone, stack.recover(t, "--undo").Phase)
	requireTenantBack(t, stack, consumerCluster, origin, destination)
}

// Invariant 4, for what a dead workflow leaves on a worker.
func TestRecover_WorkerOfTheDeadMoveThatWakes_DoesNoHarm(t *testing.T) {
	t.Parallel()
	stack := start(t, slowTenant)
	origin, destination := stack.export(t, "root"), stack.export(t, "shard-1")
	frozen := stack.workers["shard-1"]
	run := stack.beginUntil(t, usualMove, isMigrating)
	require.NoError(t, frozen.Freeze())
	stack.terminate(t, run)
	// The frozen one still holds its port.
	stack.startWorker(t, "shard-1", "--transfer-listen=127.0.0.1:0", "--transfer-advertise=")
	stack.recover(t, "--undo")

	require.NoError(t, frozen.Thaw())
	// Stopping lets it finish what it has at hand.
	require.NoError(t, frozen.Stop())

	requireTenantBack(t, stack, consumerCluster, origin, destination)
}

// A person was wrong to say that the workflow is lost: it lives in a namespace that was not looked at.
func TestRecover_WhileTheWorkflowLivesInAnotherNamespace_NeitherHarmsTheTenant(t *testing.T) {
	t.Parallel()
	stack := start(t, 0)
	origin, destination := stack.export(t, "root"), stack.export(t, "shard-1")
	run := stack.holdFenced(t, gated(usualMove))
	elsewhere := stack.addNamespace(t, "elsewhere")
	require.Eventually(t, func() bool {
		outcome, err := stack.Run(t.Context(), t.Output(), "recover", consumer, elsewhere, "-o", "json")
		return err == nil && outcome.ExitCode == exitDone
	}, moveDeadline, time.Second)
	require.Contains(t, stack.requireExit(t, exitRefused, "recover", consumer, elsewhere, "--undo", "--wait"), activities.WorkflowUnknown)

	require.Equal(t, workflows.Undone, stack.recover(t, "--undo", "--workflow-is-lost", elsewhere).Phase)

	stack.awaitServed(t, true)
	stack.replaceWorker(t, "shard-1")
	require.Error(t, run.Get(t.Context(), nil))
	requireTenantBack(t, stack, consumerCluster, origin, destination)
}

// addNamespace has more workers work in a Temporal namespace of their own, and gives the flag that leads there.
func (s *stack) addNamespace(t *testing.T, name string) (flag string) {
	t.Helper()
	namespaces, err := client.NewNamespaceClient(client.Options{HostPort: s.TemporalAddress})
	require.NoError(t, err)
	defer namespaces.Close()
	require.NoError(t, namespaces.Register(t.Context(), &workflowservice.RegisterNamespaceRequest{
		Namespace: name, WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
	}))
	flag = "--temporal-namespace=" + name
	for _, shard := range s.Shards {
		require.Eventually(t, func() bool { // Temporal knows a new namespace after some seconds
			_, err := s.StartWorker(t.Context(), shard.Name, "--transfer-listen=127.0.0.1:0", "--transfer-advertise=", flag)
			return err == nil
		}, moveDeadline, time.Second)
	}
	return flag
}

// recover runs the command to its end and gives the result.
func (s *stack) recover(t *testing.T, flags ...string) workflows.Result {
	t.Helper()
	var result workflows.Result
	s.readRecover(t, &result, append(flags, "--wait")...)
	return result
}

func (s *stack) standing(t *testing.T) workflows.Standing {
	t.Helper()
	var standing workflows.Standing
	s.readRecover(t, &standing)
	return standing
}

func (s *stack) readRecover(t *testing.T, into any, flags ...string) {
	t.Helper()
	outcome, err := s.Run(t.Context(), t.Output(), append([]string{"recover", consumer, "-o", "json"}, flags...)...)
	require.NoError(t, err)
	require.Equal(t, exitDone, outcome.ExitCode, "%s", outcome.Stdout)
	require.NoError(t, json.Unmarshal(outcome.Stdout, into))
}
