package e2e

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/sdk/client"

	"github.com/kcp-migrate/kcp-migrate/workflows"
)

var recordTo = flag.String("record", "", "folder to record workflow histories into, for the replay test of package workflows")

// Records what package workflows replays: run with -record ../../workflows/testdata/histories after a change that
// no running move can meet, that is before a release. After one, a change goes behind workflow.GetVersion instead.
func TestRecordHistories_OfACompletedAnAbortedAndAFailedMove(t *testing.T) {
	if *recordTo == "" {
		t.Skip("no folder was given with -record")
	}
	stack := start(t, 0)
	input := workflows.Input{LogicalCluster: consumer, DestinationShard: "shard-1"}

	aborting := input
	aborting.RequireApproval = true
	aborted := stack.holdFenced(t, aborting)
	stack.steer(t, "abort", aborted)
	stack.replaceWorker(t, "shard-1")
	require.Error(t, aborted.Get(t.Context(), nil))
	stack.record(t, aborted, "aborted.json")

	failing := aborting
	failing.MaxTimeAway = workflows.Duration(time.Second)
	failed := stack.holdFenced(t, failing)
	stack.awaitStatus(t, failed, func(status workflows.Status) bool {
		return status.Phase == workflows.Failed || len(status.Undone) > 0 || status.Step == "undo: seal the destination"
	})
	stack.replaceWorker(t, "shard-1")
	require.Error(t, failed.Get(t.Context(), nil))
	stack.record(t, failed, "failed.json")

	completed := stack.begin(t, input)
	finish(t, completed)
	stack.record(t, completed, "completed.json")
}

func TestRecordHistories_OfARecoveryThatTakesBackAndOneThatFinishes(t *testing.T) {
	if *recordTo == "" {
		t.Skip("no folder was given with -record")
	}
	stack := start(t, 0)
	recovery := func() client.WorkflowRun {
		return stack.temporal(t).GetWorkflow(t.Context(), workflows.RecoveryWorkflowID(consumer), "")
	}
	stack.terminate(t, stack.holdFenced(t, gated(usualMove)))
	stack.replaceWorker(t, "shard-1")
	stack.recover(t, "--undo")
	stack.record(t, recovery(), "undone.json")

	stack.terminate(t, stack.beginUntil(t, usualMove, func(status workflows.Status) bool { return status.Committed }))
	stack.recover(t, "--resume")
	stack.record(t, recovery(), "resumed.json")
}

// holdFenced starts a move that stays where the tenant is fenced: the destination's worker is frozen.
func (s *stack) holdFenced(t *testing.T, input workflows.Input) client.WorkflowRun {
	t.Helper()
	run := s.begin(t, input)
	s.awaitStatus(t, run, func(status workflows.Status) bool { return status.WaitsForApproval })
	require.NoError(t, s.workers[input.DestinationShard].Freeze())
	s.steer(t, "approve", run)
	s.awaitStatus(t, run, func(status workflows.Status) bool { return status.Fenced })
	return run
}

func (s *stack) replaceWorker(t *testing.T, shard string) {
	t.Helper()
	require.NoError(t, s.workers[shard].Kill())
	s.startWorker(t, shard)
}

func (s *stack) record(t *testing.T, run client.WorkflowRun, name string) {
	t.Helper()
	var history historypb.History
	events := s.temporal(t).GetWorkflowHistory(t.Context(), run.GetID(), run.GetRunID(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		require.NoError(t, err)
		history.Events = append(history.Events, event)
	}
	encoded, err := temporalproto.CustomJSONMarshalOptions{Indent: " "}.Marshal(&history)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(*recordTo, name), encoded, 0o644))
}
