package workflows_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// wayBack is the undo of a move that was stopped in a step: the calls after those of the story, and what the result
// says of them. The tokens depend on how far it got.
type wayBack struct {
	stoppedIn string
	// forth is how many calls of the story were made.
	forth  int
	back   []string
	undone []string
}

var (
	releases = []string{"released the claim on shard shard-1", "released the claim on shard root"}
	unfenced = []string{"lifted the fence on shard root", "woke shard root"}
	sealed   = []string{"sealed the destination: no commit can land"}
	locked   = []string{"locked out late writers on shard root"}
	swept    = []string{"deleted what kcp's controllers made on shard shard-1", "turned the route to shard root once more", "every front-proxy leads to shard root"}
	emptied  = []string{"deleted the entries on shard shard-1", "turned the route to shard root", "deleted the LogicalCluster on shard shard-1"}
)

// waysBack has every step before the commit's landing that a move can be stopped in.
var waysBack = []wayBack{
	{"Resolve", 1, nil, nil},
	{"InspectOrigin", 2, nil, nil},
	{"InspectDestination", 3, nil, nil},
	{"Claim", 4, []string{"Release@root/1"}, releases[1:]},
	{"InstallBoundCRDs", 6, []string{"Seal@shard-1/1→2", "Release@shard-1/2", "Release@root/1"}, slices.Concat(sealed, releases)},
	{"LiftRevision", 7, []string{"Seal@shard-1/1→2", "Release@shard-1/2", "Release@root/1"}, slices.Concat(sealed, releases)},
	{"FenceOrigin", 8, []string{
		"Seal@shard-1/1→2", "RaiseToken@root/2→3", "LiftFence@root/3", "WakeShard@root/3", "Release@shard-1/2", "Release@root/3",
	}, slices.Concat(sealed, locked, unfenced, releases)},
	{"FenceDestination", 9, []string{
		"Seal@shard-1/1→2", "RaiseToken@root/2→3", "TouchOrigin@root/3", "DropDestinationLogicalCluster@shard-1/2",
		"LiftFence@root/3", "WakeShard@root/3", "SweepDestination@shard-1/2", "TouchOrigin@root/3", "AwaitRoute@kcp-migrate", "Release@shard-1/2", "Release@root/3",
	}, slices.Concat(sealed, locked, emptied[1:], unfenced, swept, releases)},
	{"CopyEntries", 10, []string{
		"Seal@shard-1/1→2", "RaiseToken@root/2→3", "DropDestinationEntries@shard-1/2", "TouchOrigin@root/3", "DropDestinationLogicalCluster@shard-1/2",
		"LiftFence@root/3", "WakeShard@root/3", "SweepDestination@shard-1/2", "TouchOrigin@root/3", "AwaitRoute@kcp-migrate", "Release@shard-1/2", "Release@root/3",
	}, slices.Concat(sealed, locked, emptied, unfenced, swept, releases)},
	{"VerifyEntries", 11, []string{
		"Seal@shard-1/2→3", "RaiseToken@root/2→3", "DropDestinationEntries@shard-1/3", "TouchOrigin@root/3", "DropDestinationLogicalCluster@shard-1/3",
		"LiftFence@root/3", "WakeShard@root/3", "SweepDestination@shard-1/3", "TouchOrigin@root/3", "AwaitRoute@kcp-migrate", "Release@shard-1/3", "Release@root/3",
	}, slices.Concat(sealed, locked, emptied, unfenced, swept, releases)},
	{"Commit", 12, []string{
		"Seal@shard-1/3→4", "RaiseToken@root/2→3", "DropDestinationEntries@shard-1/4", "TouchOrigin@root/3", "DropDestinationLogicalCluster@shard-1/4",
		"LiftFence@root/3", "WakeShard@root/3", "SweepDestination@shard-1/4", "TouchOrigin@root/3", "AwaitRoute@kcp-migrate", "Release@shard-1/4", "Release@root/3",
	}, slices.Concat(sealed, locked, emptied, unfenced, swept, releases)},
}

// wentBack checks the order of the undo, what the result says of it, and that the tenant is whole.
func (way wayBack) wentBack(t *testing.T, w *world, result workflows.Result) {
	require.Equal(t, slices.Concat(theStory[:way.forth], way.back), w.calls)
	require.Equal(t, way.undone, result.Undone)
	require.Equal(t, workflows.Failed, result.Phase)
	w.givenBack()
}

func TestUndo_PermanentErrorInAnyStep_TakesAllBackInOrder(t *testing.T) {
	for _, way := range waysBack {
		t.Run(way.stoppedIn, func(t *testing.T) {
			w := newWorld(t)
			w.faults[way.stoppedIn] = []func() error{broken}
			w.move(usualInput)

			failure, result := w.failure()
			require.Equal(t, "Broken", failure.Type())
			require.Equal(t, "this cannot be mended by another try", failure.Message())
			way.wentBack(t, w, result)
		})
	}
}

func TestUndo_TemporalCancelInAnyStep_TakesAllBackInOrder(t *testing.T) {
	for _, way := range waysBack {
		t.Run(way.stoppedIn, func(t *testing.T) {
			w := newWorld(t)
			w.onCall[way.stoppedIn] = w.env.CancelWorkflow
			w.faults[way.stoppedIn] = []func() error{broken} // an answer that comes too late
			w.move(usualInput)

			var canceled *temporal.CanceledError
			var result workflows.Result
			require.ErrorAs(t, w.env.GetWorkflowError(), &canceled)
			require.NoError(t, canceled.Details(&result))
			way.wentBack(t, w, result)
		})
	}
}

func TestUndo_AbortInAnyStep_TakesAllBackInOrderAndTellsTheCaller(t *testing.T) {
	for _, way := range waysBack {
		t.Run(way.stoppedIn, func(t *testing.T) {
			w := newWorld(t)
			var abort *order
			w.onCall[way.stoppedIn] = func() { abort = w.send(workflows.AbortUpdate, workflows.AbortRequest{Reason: "wrong shard"}) }
			w.faults[way.stoppedIn] = []func() error{broken}
			w.move(usualInput)

			failure, result := w.failure()
			require.Equal(t, activities.Aborted, failure.Type())
			require.Equal(t, "aborted: wrong shard", failure.Message())
			way.wentBack(t, w, result)
			require.True(t, abort.done)
			require.NoError(t, abort.rejected)
			require.NoError(t, abort.err)
		})
	}
}

func TestUndo_MaxTimeAwayInAnyStepOfTheTimeAway_TakesAllBackInOrder(t *testing.T) {
	for _, way := range waysBack {
		if !slices.Contains([]string{"FenceOrigin", "FenceDestination", "CopyEntries", "VerifyEntries", "Commit"}, way.stoppedIn) {
			continue
		}
		t.Run(way.stoppedIn, func(t *testing.T) {
			w := newWorld(t)
			w.delays[way.stoppedIn] = time.Hour // never gets to act
			started := w.env.Now()
			w.move(usualInput)

			failure, result := w.failure()
			require.Equal(t, activities.AwayTooLong, failure.Type())
			require.WithinDuration(t, started.Add(time.Minute), w.env.Now(), 5*time.Second)
			way.wentBack(t, w, result)
		})
	}
}

func TestUndo_MaxTimeAwayBeforeTheFence_DoesNotCount(t *testing.T) {
	w := newWorld(t)
	w.delays["LiftRevision"] = 10 * time.Minute
	w.move(usualInput)
	w.arrived()
}

func TestUndo_MaxTimeAwayAfterTheCommit_DoesNotCount(t *testing.T) {
	w := newWorld(t)
	w.delays["AwaitServing"] = 10 * time.Minute
	w.move(usualInput)
	w.arrived()
}

func TestUndo_SecondClaimRefused_ReleasesTheFirst(t *testing.T) {
	w := newWorld(t)
	taken := func() error { return activities.Refuse(activities.AlreadyMigrating, "claimed by another move") }
	w.faults["Claim"] = []func() error{func() error { return nil }, taken}
	w.move(usualInput)

	failure, result := w.failure()
	require.Equal(t, activities.AlreadyMigrating, failure.Type())
	require.Equal(t, releases[1:], result.Undone)
	require.Equal(t, slices.Concat(theStory[:5], []string{"Release@root/1"}), w.calls, "the claim that was refused is another move's")
}

func TestUndo_SealFindsTheCommitLanded_GoesForward(t *testing.T) {
	stops := map[string]func(*world){
		"permanent error": func(*world) {},
		"cancel":          func(w *world) { w.env.CancelWorkflow() },
		"abort":           func(w *world) { w.send(workflows.AbortUpdate) },
	}
	for name, stop := range stops {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.lostAnswers["Commit"] = []func() error{func() error { // it lands, and its answer is lost
				stop(w)
				return broken()
			}}
			w.move(usualInput)

			want := slices.Concat(theStory[:12], []string{"Seal@shard-1/3→4", "Commit@shard-1/2→3"}, theStory[12:])
			require.Equal(t, want, w.calls)
			result := w.result()
			require.Equal(t, workflows.Completed, result.Phase)
			require.Empty(t, result.Undone)
			require.Contains(t, strings.Join(result.Warnings, "\n"), "but its commit had landed")
			w.arrived()
		})
	}
}

func TestUndo_AbortThatLosesTheRace_TellsTheCallerTheCommitLanded(t *testing.T) {
	w := newWorld(t)
	var abort *order
	w.lostAnswers["Commit"] = []func() error{func() error {
		abort = w.send(workflows.AbortUpdate)
		return nil
	}}
	w.move(usualInput)

	require.True(t, abort.done)
	require.ErrorContains(t, abort.err, "the commit has landed")
	require.Equal(t, workflows.Completed, w.result().Phase)
	w.arrived()
}

func TestUndo_PermanentErrorOnTheWayBack_GoesOnAndReportsIt(t *testing.T) {
	for _, name := range []string{"RaiseToken", "DropDestinationLogicalCluster", "DropDestinationEntries", "LiftFence", "WakeShard", "Release"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var abort *order
			w.onCall["Commit"] = func() { abort = w.send(workflows.AbortUpdate) }
			w.faults["Commit"] = []func() error{broken}
			// The wake beside the copy is over by the time the fence is lifted; the one of the undo comes next.
			before := map[string]string{"WakeShard": "LiftFence"}[name]
			if before == "" {
				before = "Seal"
			}
			w.onCall[before] = func() { w.faults[name] = []func() error{broken} }
			w.env.ExecuteWorkflow(workflows.MigrateLogicalClusterName, usualInput)

			failure, result := w.failure()
			require.Equal(t, activities.Aborted, failure.Type())
			require.Contains(t, failure.Message(), "the undo is incomplete")
			back := strings.Join(waysBack[len(waysBack)-1].back, " ")
			undone := 12 - 1
			if name == "LiftFence" { // no front-proxy can lead to a tenant that is fenced
				undone--
				back = strings.ReplaceAll(back, "AwaitRoute@kcp-migrate ", "")
			}
			require.Len(t, result.Undone, undone)
			if strings.HasPrefix(name, "DropDestination") { // what is left there goes before the origin opens
				back = strings.Replace(back, "LiftFence@", "SweepDestination@shard-1/4 LiftFence@", 1)
			}
			if name == "RaiseToken" { // the rest goes on under the token that was there
				back = strings.ReplaceAll(back, "@root/3", "@root/2")
			}
			require.Equal(t, back, strings.Join(w.calls[12:], " "), "all others are taken all the same")
			require.ErrorContains(t, abort.err, "this cannot be mended by another try")
		})
	}
}

// openedDestination is a move whose destination an admin of the tenant opens in mid-copy, and where an undo then deletes nothing.
func openedDestination(t *testing.T) *world {
	w := newWorld(t)
	w.mockActivity("Survey", surveyor(w))
	w.faults["CopyEntries"] = []func() error{func() error {
		w.opened = true
		return broken()
	}}
	w.faults["DropDestinationEntries"] = []func() error{broken}
	w.faults["DropDestinationLogicalCluster"] = []func() error{broken}
	w.sheets = &sheets{destination: activities.Standing{HasLogicalCluster: true}}
	return w
}

func TestUndo_DestinationThatCouldNotBeEmptied_IsSweptBeforeTheOriginOpens(t *testing.T) {
	w := openedDestination(t)
	w.move(usualInput)

	_, result := w.failure()
	require.Len(t, result.NotUndone, 2)
	require.Less(t, slices.Index(w.calls, "SweepDestination@shard-1/2"), slices.Index(w.calls, "LiftFence@root/3"))
	w.givenBack()
}

func TestUndo_DestinationThatIsOpenAndCannotBeClosed_KeepsTheFenceUntilAPersonHasClosedIt(t *testing.T) {
	w := openedDestination(t)
	w.left = true
	w.faults["SweepDestination"] = slices.Repeat([]func() error{broken}, 1_000)
	var waiting workflows.Status
	w.env.RegisterDelayedCallback(func() { waiting = w.status() }, time.Hour)
	w.env.RegisterDelayedCallback(func() { w.opened, w.sheets.destination.Inactive = false, true }, 2*time.Hour)
	w.move(usualInput)

	require.True(t, waiting.Fenced)
	require.Contains(t, waiting.Advice, "shard shard-1 may serve the tenant, so the origin stays fenced")
	require.Contains(t, waiting.Advice, "this cannot be mended by another try")
	_, result := w.failure()
	require.Contains(t, result.Undone, "lifted the fence on shard root")
	require.Len(t, result.NotUndone, 3, "what is left there is told")
	require.False(t, w.fenced)
}

func TestUndo_DestinationThatStandsFenced_DoesNotKeepTheOriginFenced(t *testing.T) {
	w := openedDestination(t)
	w.faults["CopyEntries"] = []func() error{broken}
	w.left = true
	w.faults["SweepDestination"] = slices.Repeat([]func() error{broken}, 2)
	w.sheets.destination.Inactive = true
	started := w.env.Now()
	w.move(usualInput)

	_, result := w.failure()
	require.Len(t, result.NotUndone, 3)
	require.Less(t, w.env.Now().Sub(started), time.Minute)
	require.False(t, w.fenced)
}

// Whoever has the claims by now, a recovery or another move, has both shards to answer for; the tenant may live at the destination.
func TestUndo_WhoseClaimsSomebodyElseHas_WaitsForNothing(t *testing.T) {
	w := openedDestination(t)
	w.left = true
	taken := func() error { return activities.Refuse(activities.TokenLost, "held by another run") }
	w.onCall["Seal"] = func() {
		for _, name := range []string{"RaiseToken", "TouchOrigin", "LiftFence", "WakeShard", "SweepDestination", "Release"} {
			w.faults[name] = slices.Repeat([]func() error{taken}, 1_000)
		}
	}
	started := w.env.Now()
	w.move(usualInput)

	failure, _ := w.failure()
	require.Contains(t, failure.Message(), "held by another run")
	require.Less(t, w.env.Now().Sub(started), time.Minute)
	require.True(t, w.fenced, "nothing was lifted")
}

func TestUndo_RouteThatAFrontProxyHasLost_IsTouchedUntilItIsBack(t *testing.T) {
	w := newWorld(t)
	w.faults["Commit"] = []func() error{broken}
	w.routesLost = 2
	w.move(usualInput)

	_, result := w.failure()
	require.Empty(t, result.NotUndone)
	touched := []string{"AwaitRoute@kcp-migrate", "TouchOrigin@root/3", "TouchOwner@kcp-migrate"}
	require.Equal(t, slices.Concat(touched, touched, []string{"AwaitRoute@kcp-migrate"}), w.calls[21:28])
	w.givenBack()
}

func TestUndo_OfATenantDeletedMeanwhile_WaitsForNoFrontProxy(t *testing.T) {
	w := newWorld(t)
	w.faults["Commit"] = []func() error{broken}
	w.routesLost = 1_000_000
	w.onCall["AwaitRoute"] = func() { w.deleted = true }
	w.move(usualInput)

	_, result := w.failure()
	require.Empty(t, result.NotUndone)
	require.Contains(t, strings.Join(result.Warnings, "\n"), "the logical cluster was deleted on shard root")
	w.givenBack()
}

func TestUndo_OwnerGoneMeanwhile_WaitsForTheNameAlone(t *testing.T) {
	w := newWorld(t)
	w.faults["Commit"] = []func() error{broken}
	w.ownerGone, w.pathsLost = true, true
	w.move(usualInput)

	_, result := w.failure()
	require.Empty(t, result.NotUndone)
	w.givenBack()
}

func TestUndo_PassingFaultsOnTheWayBack_AreRetried(t *testing.T) {
	w := newWorld(t)
	w.faults["CopyEntries"] = []func() error{broken}
	for _, name := range []string{"Seal", "DropDestinationLogicalCluster", "DropDestinationEntries", "LiftFence", "Release"} {
		w.faults[name] = []func() error{flaky, flaky}
	}
	w.move(usualInput)

	_, result := w.failure()
	require.Len(t, result.Undone, 12)
	w.givenBack()
}

func TestUndo_SealThatCannotBeMade_KeepsTheFenceAndSaysSo(t *testing.T) {
	w := newWorld(t)
	w.faults["CopyEntries"] = []func() error{broken}
	w.faults["Seal"] = []func() error{broken, broken}
	var waiting workflows.Status
	w.env.RegisterDelayedCallback(func() { waiting = w.status() }, 10*time.Second)
	w.move(usualInput)

	require.True(t, waiting.Fenced)
	require.Contains(t, waiting.Advice, "the tenant stays fenced until then")
	require.Equal(t, workflows.Migrating, waiting.Phase)
	w.givenBack()
}

func TestUndo_WhenTheOriginsEtcdIsFull_WaitsForRoomAndSaysSo(t *testing.T) {
	for _, name := range []string{"RaiseToken", "TouchOrigin", "LiftFence", "WakeShard"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.faults["Commit"] = []func() error{broken}
			before := map[string]string{"WakeShard": "LiftFence"}[name]
			if before == "" {
				before = "Seal"
			}
			// One may hit the wake that still runs beside the copy.
			w.onCall[before] = func() { w.faults[name] = []func() error{outOfSpace, outOfSpace, outOfSpace} }
			var waiting workflows.Status
			w.env.RegisterDelayedCallback(func() { waiting = w.status() }, 12*time.Second)
			w.move(usualInput)

			require.Contains(t, waiting.Advice, "disarm the alarm")
			_, result := w.failure()
			require.Empty(t, result.NotUndone)
			require.Len(t, result.Undone, 12)
			w.givenBack()
		})
	}
}

func outOfSpace() error {
	return activities.Refuse(activities.NoSpace, "make room and disarm the alarm")
}

func TestUndo_CancelDuringTheUndo_ChangesNothing(t *testing.T) {
	w := newWorld(t)
	w.faults["CopyEntries"] = []func() error{broken}
	w.onCall["DropDestinationEntries"] = w.env.CancelWorkflow
	w.move(usualInput)

	failure, result := w.failure()
	require.Equal(t, "Broken", failure.Type())
	require.Len(t, result.Undone, 12)
	w.givenBack()
}

func TestUndo_CancelAfterTheCommit_ChangesNothing(t *testing.T) {
	for _, name := range []string{"AwaitServing", "DropOriginLogicalCluster", "DeleteOriginEntries", "AwaitRoute", "Release"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.onCall[name] = w.env.CancelWorkflow
			w.move(usualInput)

			require.Equal(t, workflows.Completed, w.result().Phase)
			require.Equal(t, theStory, w.calls)
			w.arrived()
		})
	}
}

func TestUndo_OriginWakeStillRunningAtTheCommit_IsAwaitedBeforeTheCleanup(t *testing.T) {
	w := newWorld(t)
	w.delays["WakeShard"] = 5 * time.Second
	w.move(usualInput)

	require.Equal(t, theStory, w.calls)
	w.arrived()
	require.Less(t, time.Duration(w.result().TimeAway), time.Second, "the wake is beside the copy, not in the time away")
}
