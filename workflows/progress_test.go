package workflows_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/kcp-migrate/kcp-migrate/workflows"
)

var phaseKey = temporal.NewSearchAttributeKeyKeyword(workflows.PhaseAttribute)

// phases are those that the search attributes went through, one for each upsert.
func (w *world) phases() []workflows.Phase {
	var phases []workflows.Phase
	for _, attributes := range w.attributes {
		phase, _ := attributes.GetKeyword(phaseKey)
		phases = append(phases, workflows.Phase(phase))
	}
	return phases
}

func TestSearchAttributes_CompletedMove_ChangeAtPhasesOnly(t *testing.T) {
	w := newWorld(t)
	w.move(usualInput)

	require.Equal(t, []workflows.Phase{
		workflows.Preparing, workflows.Migrating, workflows.OriginCleanup, workflows.DestinationFinalize, workflows.Completed,
	}, w.phases())
	for key, want := range map[string]string{
		workflows.LogicalClusterAttribute:   tenant,
		workflows.OriginShardAttribute:      origin,
		workflows.DestinationShardAttribute: destination,
	} {
		value, found := w.attributes[0].GetKeyword(temporal.NewSearchAttributeKeyKeyword(key))
		require.True(t, found)
		require.Equal(t, want, value)
	}
}

func TestSearchAttributes_UndoneMove_EndAsFailed(t *testing.T) {
	w := newWorld(t)
	w.faults["CopyEntries"] = []func() error{broken}
	w.move(usualInput)
	require.Equal(t, []workflows.Phase{workflows.Preparing, workflows.Migrating, workflows.Failed}, w.phases())
}

func TestSearchAttributes_InvalidInput_HoldsWhatIsKnown(t *testing.T) {
	w := newWorld(t)
	w.move(workflows.Input{DestinationShard: destination})
	require.Equal(t, []workflows.Phase{workflows.Failed}, w.phases())
	require.Equal(t, 2, w.attributes[0].Size())
}

func TestStatus_InEveryStep_TellsWhereItStands(t *testing.T) {
	for _, test := range []struct {
		call      string
		phase     workflows.Phase
		step      string
		fenced    bool
		committed bool
	}{
		{"Resolve", workflows.Preparing, "preflight", false, false},
		{"Claim", workflows.Preparing, "claim origin", false, false},
		{"LiftRevision", workflows.Preparing, "ready destination", false, false},
		{"FenceOrigin", workflows.Preparing, "fence origin", true, false},
		{"FenceDestination", workflows.Preparing, "fence destination", true, false},
		{"CopyEntries", workflows.Migrating, "copy", true, false},
		{"VerifyEntries", workflows.Migrating, "verify", true, false},
		{"Commit", workflows.Migrating, "commit", true, false},
		{"AwaitServing", workflows.OriginCleanup, "serve", true, true},
		{"DeleteOriginEntries", workflows.OriginCleanup, "clean up origin", false, true},
		{"AwaitRoute", workflows.DestinationFinalize, "finalize destination", false, true},
	} {
		t.Run(test.call, func(t *testing.T) {
			w := newWorld(t)
			asked := make(chan workflows.Status, 1)
			w.onCall[test.call] = func() { asked <- w.status() }
			w.move(usualInput)

			status := <-asked
			require.Equal(t, test.phase, status.Phase)
			require.Equal(t, test.step, status.Step)
			require.Equal(t, test.fenced, status.Fenced)
			require.Equal(t, test.fenced || test.committed, status.FencedAt != nil)
			require.Equal(t, test.committed, status.Committed)
		})
	}
}

func TestStatus_FinishedMove_IsItsResult(t *testing.T) {
	w := newWorld(t)
	w.move(usualInput)

	status := w.status()
	require.Equal(t, w.result(), status.Result)
	require.Empty(t, status.Step)
	require.False(t, status.Fenced)
	require.True(t, status.Committed)
}

func TestStatus_DuringTheUndo_NamesTheStepAndTheAbort(t *testing.T) {
	w := newWorld(t)
	w.onCall["CopyEntries"] = func() { w.send(workflows.AbortUpdate) }
	w.faults["CopyEntries"] = []func() error{broken}
	asked := make(chan workflows.Status, 1)
	w.onCall["LiftFence"] = func() { asked <- w.status() }
	w.move(usualInput)

	status := <-asked
	require.Equal(t, "undo: lift the origin's fence", status.Step)
	require.True(t, status.Aborting)
	require.True(t, status.Fenced)
}
