package workflows_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// foundAgain is what a wait of more than some seconds makes the gate do once more.
var foundAgain = []string{"InspectOrigin@root", "InspectDestination@shard-1", "InstallBoundCRDs@shard-1/1", "LiftRevision@shard-1/1"}

func TestPause_BeforeTheFence_HoldsUntilResumed(t *testing.T) {
	for _, name := range []string{"Resolve", "InspectOrigin", "Claim", "InstallBoundCRDs", "LiftRevision"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var paused workflows.Status
			w.onCall[name] = func() { w.send(workflows.PauseUpdate) }
			w.env.RegisterDelayedCallback(func() {
				paused = w.status()
				w.send(workflows.ResumeUpdate)
			}, time.Hour)
			w.move(usualInput)

			require.True(t, paused.Paused)
			require.False(t, paused.Fenced)
			require.Equal(t, slices.Concat(theStory[:7], foundAgain, theStory[7:]), w.calls, "what a long wait made stale is found out again")
			require.Less(t, time.Duration(w.result().TimeAway), time.Second)
		})
	}
}

func TestPause_WhileFenced_IsRefusedWithTheReason(t *testing.T) {
	for _, name := range []string{"FenceOrigin", "FenceDestination", "CopyEntries", "VerifyEntries", "Commit"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var pause *order
			w.onCall[name] = func() { pause = w.send(workflows.PauseUpdate) }
			w.move(usualInput)

			require.ErrorContains(t, pause.rejected, "the tenant is away")
			w.arrived()
		})
	}
}

func TestPause_Aborted_GivesAllBack(t *testing.T) {
	w := newWorld(t)
	w.onCall["LiftRevision"] = func() { w.send(workflows.PauseUpdate) }
	w.env.RegisterDelayedCallback(func() { w.send(workflows.AbortUpdate) }, time.Hour)
	w.move(usualInput)

	failure, _ := w.failure()
	require.Equal(t, activities.Aborted, failure.Type())
	w.givenBack()
}

func TestResume_NotPaused_IsRefused(t *testing.T) {
	w := newWorld(t)
	var resume *order
	w.onCall["Claim"] = func() { resume = w.send(workflows.ResumeUpdate) }
	w.move(usualInput)
	require.ErrorContains(t, resume.rejected, "not paused")
}

func TestApprove_Required_WaitsAtTheGateAndGoesOn(t *testing.T) {
	w := newWorld(t)
	input := usualInput
	input.RequireApproval = true
	var waiting workflows.Status
	var approve *order
	w.env.RegisterDelayedCallback(func() {
		waiting = w.status()
		approve = w.send(workflows.ApproveUpdate)
	}, 24*time.Hour)
	w.move(input)

	require.True(t, waiting.WaitsForApproval)
	require.Equal(t, "gate", waiting.Step)
	require.Contains(t, waiting.Advice, "kcp-migrate approve")
	require.NotNil(t, waiting.Plan)
	require.True(t, approve.done)
	require.NoError(t, approve.err)
	require.Equal(t, theStory[7:], w.calls[11:])
	require.False(t, w.status().WaitsForApproval)
}

func TestApprove_OfAPlanThatAsksForMoreWhenItsTurnComes_IsAskedForAgain(t *testing.T) {
	w := newWorld(t)
	input := usualInput
	input.RequireApproval = true
	w.env.RegisterDelayedCallback(func() {
		w.originReport.Contents.TokenSecrets = 2
		w.send(workflows.ApproveUpdate)
	}, time.Hour)
	var waiting workflows.Status
	w.env.RegisterDelayedCallback(func() {
		waiting = w.status()
		w.send(workflows.ApproveUpdate)
	}, 2*time.Hour)
	w.move(input)

	require.True(t, waiting.WaitsForApproval)
	require.Contains(t, strings.Join(waiting.Plan.Warnings, "\n"), "ca.crt in 2 token Secrets")
	require.Contains(t, strings.Join(w.result().Warnings, "\n"), "approved anew")
	w.arrived()
}

func TestApprove_OfAPlanWhoseFiguresGoOn_Counts(t *testing.T) {
	w := newWorld(t)
	w.originReport.Contents.TokenSecrets = 2
	input := usualInput
	input.RequireApproval = true
	w.env.RegisterDelayedCallback(func() {
		w.originReport.Contents.TokenSecrets = 13
		w.send(workflows.ApproveUpdate)
	}, time.Hour)
	w.move(input)

	require.NotContains(t, strings.Join(w.result().Warnings, "\n"), "approved anew")
	w.arrived()
}

func TestApprove_AheadOfTheGate_OpensIt(t *testing.T) {
	w := newWorld(t)
	input := usualInput
	input.RequireApproval = true
	w.onCall["InspectOrigin"] = func() { w.send(workflows.ApproveUpdate) }
	w.move(input)
	w.arrived()
}

func TestApprove_Twice_IsRefused(t *testing.T) {
	w := newWorld(t)
	input := usualInput
	input.RequireApproval = true
	var second *order
	w.onCall["InspectOrigin"] = func() { w.send(workflows.ApproveUpdate) }
	w.onCall["Claim"] = func() { second = w.send(workflows.ApproveUpdate) }
	w.move(input)
	require.ErrorContains(t, second.rejected, "approved already")
}

func TestApprove_NotRequired_IsRefused(t *testing.T) {
	w := newWorld(t)
	var approve *order
	w.onCall["Claim"] = func() { approve = w.send(workflows.ApproveUpdate) }
	w.move(usualInput)
	require.ErrorContains(t, approve.rejected, "requireApproval")
}

func TestApprove_PausedAtTheGate_StillHolds(t *testing.T) {
	w := newWorld(t)
	input := usualInput
	input.RequireApproval = true
	var held workflows.Status
	w.env.RegisterDelayedCallback(func() { w.send(workflows.PauseUpdate); w.send(workflows.ApproveUpdate) }, time.Minute)
	w.env.RegisterDelayedCallback(func() { held = w.status(); w.send(workflows.ResumeUpdate) }, time.Hour)
	w.move(input)

	require.True(t, held.Paused)
	require.False(t, held.Fenced)
	w.arrived()
}

func TestOrders_AfterTheCommitLanded_AreRefused(t *testing.T) {
	for _, name := range []string{workflows.PauseUpdate, workflows.AbortUpdate} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var late *order
			w.onCall["AwaitServing"] = func() { late = w.send(name) }
			w.move(usualInput)

			require.ErrorContains(t, late.rejected, "the commit has landed")
			w.arrived()
		})
	}
}

func TestOrders_DuringTheUndo_AreRefused(t *testing.T) {
	for _, name := range []string{workflows.PauseUpdate, workflows.AbortUpdate} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.faults["CopyEntries"] = []func() error{broken}
			var late *order
			w.onCall["LiftFence"] = func() { late = w.send(name) }
			w.move(usualInput)

			require.ErrorContains(t, late.rejected, "taken back already")
			w.givenBack()
		})
	}
}

func TestAbort_Twice_RefusesTheSecond(t *testing.T) {
	w := newWorld(t)
	var first, second *order
	w.onCall["CopyEntries"] = func() {
		first = w.send(workflows.AbortUpdate)
		second = w.send(workflows.AbortUpdate)
	}
	w.faults["CopyEntries"] = []func() error{broken}
	w.move(usualInput)

	require.NoError(t, first.err)
	require.True(t, first.done)
	require.ErrorContains(t, second.rejected, "taken back already")
	w.givenBack()
}

func TestAbort_ThenCanceled_StillTellsTheOutcome(t *testing.T) {
	w := newWorld(t)
	var abort *order
	w.onCall["CopyEntries"] = func() { abort = w.send(workflows.AbortUpdate) }
	w.onCall["LiftFence"] = w.env.CancelWorkflow
	w.faults["CopyEntries"] = []func() error{broken}
	w.move(usualInput)

	require.True(t, abort.done)
	require.NoError(t, abort.err)
	failure, _ := w.failure()
	require.Equal(t, activities.Aborted, failure.Type())
}
