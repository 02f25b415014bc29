package workflows_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// recordedHistories is how many histories testdata/histories holds: of moves that completed, were aborted, and failed and
// were undone, and of recoveries that took a move back and finished one.
const recordedHistories = 5

// A running move survives an upgrade of the workers only if their code takes the same decisions from its history.
func TestReplay_RecordedMoves_TakeTheSameDecisions(t *testing.T) {
	histories, err := filepath.Glob(filepath.Join("testdata", "histories", "*.json"))
	require.NoError(t, err)
	require.Len(t, histories, recordedHistories, "completed.json, aborted.json, failed.json, undone.json and resumed.json, which test/e2e records with -record")
	for _, history := range histories {
		t.Run(filepath.Base(history), func(t *testing.T) {
			replayer := worker.NewWorkflowReplayer()
			replayer.RegisterWorkflowWithOptions(workflows.MigrateLogicalCluster, workflow.RegisterOptions{Name: workflows.MigrateLogicalClusterName})
			replayer.RegisterWorkflowWithOptions(workflows.RecoverLogicalCluster, workflow.RegisterOptions{Name: workflows.RecoverLogicalClusterName})
			require.NoError(t, replayer.ReplayWorkflowHistoryFromJSONFile(nil, history))
		})
	}
}
