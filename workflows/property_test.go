package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// Where faults may be drawn: what stops a move before the commit, what the way back and the way onward must outlast.
var (
	forthCalls  = []string{"Resolve", "InspectOrigin", "InspectDestination", "Claim", "InstallBoundCRDs", "LiftRevision", "FenceOrigin", "FenceDestination", "CopyEntries", "VerifyEntries", "Commit"}
	backCalls   = []string{"Seal", "DropDestinationLogicalCluster", "DropDestinationEntries", "LiftFence"}
	onwardCalls = []string{"AwaitServing", "DropOriginLogicalCluster", "TouchDestination", "DeleteOriginEntries", "AwaitRoute", "AwaitOwner"}
)

// draw puts faults, lost answers, hangs and orders at random steps of a move.
func (w *world) draw(t *rapid.T) {
	stop := rapid.SampledFrom([]func(){w.env.CancelWorkflow, func() { w.send(workflows.AbortUpdate) }, func() { w.send(workflows.PauseUpdate); w.send(workflows.ResumeUpdate) }})
	fault := rapid.SampledFrom([]func() error{broken, flaky, func() error { return nil }})
	delay := rapid.SampledFrom([]time.Duration{0, 10 * time.Millisecond, 20 * time.Second, time.Hour})
	for range rapid.IntRange(0, 3).Draw(t, "faults") {
		name := rapid.SampledFrom(forthCalls).Draw(t, "call")
		switch rapid.SampledFrom([]string{"fault", "lost answer", "hang", "order"}).Draw(t, "kind") {
		case "fault":
			w.faults[name] = append(w.faults[name], fault.Draw(t, "fault"))
		case "lost answer":
			w.lostAnswers[name] = append(w.lostAnswers[name], fault.Draw(t, "fault"))
		case "hang":
			w.delays[name] = delay.Draw(t, "delay")
		case "order":
			w.onCall[name] = stop.Draw(t, "order")
		}
	}
	for _, name := range backCalls {
		for range rapid.IntRange(0, 2).Draw(t, "passing faults of "+name) {
			w.faults[name] = append(w.faults[name], flaky)
		}
	}
	for _, name := range onwardCalls {
		for range rapid.IntRange(0, 1).Draw(t, "faults of "+name) {
			w.faults[name] = append(w.faults[name], fault.Draw(t, "fault"))
		}
		if rapid.Bool().Draw(t, "late order at "+name) {
			w.onCall[name] = stop.Draw(t, "order")
		}
	}
}

// Whatever happens, a move ends with the tenant whole on exactly one shard and the claims gone.
func TestMigrate_FaultsAtRandomSteps_EndCompletedOrGivenBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		w.draw(t)
		w.move(usualInput)

		if w.env.GetWorkflowError() == nil {
			require.Equal(t, workflows.Completed, w.result().Phase)
			w.arrived()
			return
		}
		require.Equal(t, workflows.Failed, w.status().Phase)
		w.givenBack()
	})
}
