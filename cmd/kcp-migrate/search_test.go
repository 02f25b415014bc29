package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"

	"github.com/kcp-migrate/kcp-migrate/workflows"
)

const (
	over    = enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED
	running = enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
)

// moved is a move of the logical cluster consumer, or of another.
func moved(workflowID string, state enumspb.WorkflowExecutionStatus, logicalCluster string) *workflowpb.WorkflowExecutionInfo {
	return executionInfo(workflowID, state, map[string]string{workflows.LogicalClusterAttribute: logicalCluster})
}

func TestFindMove_FindsTheRunningOneFirstAndThenTheLatest(t *testing.T) {
	const consumer, neighbour = "256hdo017n2m0br9", "2ei2q8rs6um1o3uc"
	byPath, byName := workflows.WorkflowID("root:consumer"), workflows.WorkflowID(consumer)
	for name, c := range map[string]struct {
		moves []*workflowpb.WorkflowExecutionInfo // the latest first
		typed string
		found string
	}{
		"its workflow ID": {
			[]*workflowpb.WorkflowExecutionInfo{moved(byName, running, consumer), moved(byPath, over, consumer)}, byPath, byPath,
		},
		"by path, the usual ID runs": {
			[]*workflowpb.WorkflowExecutionInfo{moved(byName, over, consumer), moved(byPath, running, consumer)}, "root:consumer", byPath,
		},
		"by path, a later one by name runs": {
			[]*workflowpb.WorkflowExecutionInfo{moved(byName, running, consumer), moved(byPath, over, consumer)}, "root:consumer", byName,
		},
		"by path, a later one by name is over": {
			[]*workflowpb.WorkflowExecutionInfo{moved(byName, over, consumer), moved(byPath, over, consumer)}, "root:consumer", byName,
		},
		"by path, an earlier one by name is over": {
			[]*workflowpb.WorkflowExecutionInfo{moved(byPath, over, consumer), moved(byName, over, consumer)}, "root:consumer", byPath,
		},
		"by path, another tenant's runs": {
			[]*workflowpb.WorkflowExecutionInfo{moved("migrate-neighbour", running, neighbour), moved(byPath, over, consumer)}, "root:consumer", byPath,
		},
		"by path, refused before it was found": {
			[]*workflowpb.WorkflowExecutionInfo{moved("elsewhere", over, "root:nowhere")}, "root:nowhere", "elsewhere",
		},
		"by name, a later one by path runs": {
			[]*workflowpb.WorkflowExecutionInfo{moved(byPath, running, consumer), moved(byName, over, consumer)}, consumer, byPath,
		},
		"by name, one of any ID": {
			[]*workflowpb.WorkflowExecutionInfo{moved("ticket-7", over, consumer)}, consumer, "ticket-7",
		},
	} {
		t.Run(name, func(t *testing.T) {
			fake := newFakeTemporal()
			fake.earlier = c.moves
			fake.paths = map[string]string{byPath: "root:consumer", byName: "root:consumer", "migrate-neighbour": "root:neighbour"}
			info, err := findMove(t.Context(), fake, c.typed)
			require.NoError(t, err)
			require.Equal(t, c.found, info.GetExecution().GetWorkflowId())
		})
	}
}

func TestFindMove_AsksForMovesAlone(t *testing.T) {
	fake := newFakeTemporal()

	_, err := findMove(t.Context(), fake, "root:consumer")

	require.ErrorContains(t, err, "find move root:consumer: no workflow has this ID")
	require.Equal(t, []string{
		"WorkflowType IN ('MigrateLogicalCluster', 'RecoverLogicalCluster') AND WorkflowId NOT STARTS_WITH 'plan-' AND ExecutionStatus = 'Running'",
		"WorkflowType IN ('MigrateLogicalCluster', 'RecoverLogicalCluster') AND WorkflowId NOT STARTS_WITH 'plan-' AND ExecutionStatus != 'Running'",
	}, fake.queries)
}

func TestFindMove_OfAnotherTypeOfWorkflow_SaysWhatItIs(t *testing.T) {
	fake := newFakeTemporal().running(runningStatus())
	fake.info.Type.Name = "PayInvoice"

	for _, command := range []string{"status", "watch", "pause", "abort"} {
		done := typeIn(t.Context(), fake, command, consumerID)
		require.Equal(t, exitError, done.code)
		require.Contains(t, done.err, "workflow migrate-root:consumer is of type PayInvoice and no move")
	}
}

// recordedTemporal has the history of one move.
type recordedTemporal struct {
	client.Client
	history *historypb.History
}

func (r recordedTemporal) GetWorkflowHistory(context.Context, string, string, bool, enumspb.HistoryEventFilterType) client.HistoryEventIterator {
	return &fakeHistory{events: r.history.GetEvents()}
}

func TestPathOf_ARecordedMove_IsTheWorkspaces(t *testing.T) {
	file, err := os.Open(filepath.Join("..", "..", "workflows", "testdata", "histories", "completed.json"))
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	recorded, err := client.HistoryFromJSON(file, client.HistoryJSONOptions{})
	require.NoError(t, err)

	path, err := pathOf(t.Context(), recordedTemporal{history: recorded}, move{})

	require.NoError(t, err)
	require.Equal(t, "root:consumer", path)
}
