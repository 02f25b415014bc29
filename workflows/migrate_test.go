package workflows_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// theStory is every call of a move without a hitch, with the tokens, but for what runs beside the copy.
var theStory = []string{
	"Resolve@kcp-migrate",
	"InspectOrigin@root",
	"InspectDestination@shard-1",
	"Claim@root/1",
	"Claim@shard-1/1",
	"InstallBoundCRDs@shard-1/1",
	"LiftRevision@shard-1/1",
	"FenceOrigin@root/1→2",
	"FenceDestination@shard-1/1",
	"CopyEntries@shard-1/1",
	"VerifyEntries@shard-1/1→2",
	"Commit@shard-1/2→3",
	"AwaitServing@shard-1/3",
	"ReleaseContext@root/2",
	"TouchDestination@shard-1/3",
	"DropOriginLogicalCluster@root/2",
	"TouchDestination@shard-1/3",
	"DeleteOriginEntries@root/2",
	"AwaitServing@shard-1/3",
	"AwaitOwner@kcp-migrate",
	"AwaitRoute@kcp-migrate",
	"DeleteOriginEntries@root/2",
	"Release@root/2",
	"Release@shard-1/3",
}

func TestMigrate_WithoutAHitch_CallsExactlyTheProtocol(t *testing.T) {
	w := newWorld(t)
	w.move(usualInput)

	require.Equal(t, theStory, w.calls)
	require.Equal(t, []string{"WakeShard@root/2", "AwaitInformers@root/2"}, w.beside)
	w.arrived()

	result := w.result()
	require.Equal(t, workflows.Completed, result.Phase)
	require.Equal(t, tenant, result.LogicalCluster)
	require.Equal(t, tenantPath, result.Path)
	require.Equal(t, origin, result.OriginShard)
	require.Equal(t, int64(5_011), result.Entries, "the verified count, not the copied one")
	require.Equal(t, "digest", result.SHA256)
	require.Empty(t, result.Undone)
	require.Equal(t, []string{
		"preflight", "claim origin", "claim destination", "ready destination", "gate", "fence origin", "fence destination",
		"copy", "verify", "commit", "serve", "clean up origin", "finalize destination",
	}, stepNames(result))
}

func stepNames(result workflows.Result) []string {
	var names []string
	for _, step := range result.Steps {
		names = append(names, step.Name)
	}
	return names
}

func TestMigrate_WithAccessToTheCacheServer_RenewsItsCopiesOnceTheOriginIsEmpty(t *testing.T) {
	w := newWorld(t)
	w.originReport.ReachesCache = true
	w.move(usualInput)

	require.True(t, w.result().Plan.RenewsCachedCopies)
	require.True(t, w.renewed)
	require.Equal(t, []string{"DeleteOriginEntries@root/2", "RenewCachedCopies@root/2"}, w.calls[17:19])
}

func TestMigrate_WhoseCopiesInTheCacheServerCannotBeRenewed_CompletesAndWarns(t *testing.T) {
	w := newWorld(t)
	w.originReport.ReachesCache = true
	w.faults["RenewCachedCopies"] = slices.Repeat([]func() error{broken}, 1_000)
	w.move(usualInput)

	result := w.result()
	require.False(t, w.renewed)
	require.Contains(t, strings.Join(result.Warnings, "\n"), "cache server could not be renewed within 5m0s")
}

func TestMigrate_InformersOfTheOrigin_AreGivenTimeToSeeTheDeletions(t *testing.T) {
	for name, c := range map[string]struct {
		seenAfter time.Duration
		fault     func() error
		atLeast   time.Duration
		atMost    time.Duration
	}{
		"soon":              {time.Second, nil, 4 * time.Second, 5 * time.Second},
		"after many fences": {20 * time.Second, nil, 42 * time.Second, 43 * time.Second},
		"longer than any":   {40 * time.Second, nil, 65 * time.Second, 66 * time.Second},
		"never seen":        {time.Hour, nil, 65 * time.Second, 66 * time.Second},
		"not to be seen":    {0, broken, 65 * time.Second, 66 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var fenced time.Time
			w.onCall["FenceOrigin"] = func() { fenced = w.env.Now() }
			w.delays["AwaitInformers"] = c.seenAfter
			if c.fault != nil {
				w.faults["AwaitInformers"] = []func() error{c.fault}
			}
			w.move(usualInput)

			require.Equal(t, theStory, w.calls)
			require.WithinRange(t, w.emptiedAt, fenced.Add(c.atLeast), fenced.Add(c.atMost))
			require.Less(t, time.Duration(w.result().TimeAway), time.Second)
		})
	}
}

func TestMigrate_WhoseInformersAnotherMoveCutsOff_WaitsForThemAnew(t *testing.T) {
	w := newWorld(t)
	var refused time.Time
	w.cutBefore = func(sweep int) bool {
		if sweep == 1 {
			refused = w.env.Now()
			w.delays["AwaitInformers"] = 10 * time.Second
		}
		return sweep == 1
	}
	w.move(usualInput)

	require.Equal(t, []string{"WakeShard@root/2", "AwaitInformers@root/2", "AwaitInformers@root/2"}, w.beside)
	// They came back 10 s later, and may have been cut off at any time since the wake: 2 s before.
	require.WithinRange(t, w.emptiedAt, refused.Add(26*time.Second), refused.Add(27*time.Second))
	require.Empty(t, w.result().Warnings)
	w.arrived()
}

func TestMigrate_WhoseInformersComeBackFromAnothersCut_CountsFromThenAndSweepsOnce(t *testing.T) {
	w := newWorld(t)
	var fenced time.Time
	w.onCall["FenceOrigin"] = func() { fenced = w.env.Now() }
	w.delays["AwaitInformers"] = 5 * time.Second
	w.onCall["AwaitInformers"] = func() { w.cut++ }
	w.move(usualInput)

	require.Equal(t, theStory, w.calls)
	require.WithinRange(t, w.emptiedAt, fenced.Add(17*time.Second), fenced.Add(18*time.Second))
}

func TestMigrate_BesideAnotherMove_CountsTheInformersBackOffFromItsBeginning(t *testing.T) {
	w := newWorld(t)
	var fenced time.Time
	w.onCall["FenceOrigin"] = func() { fenced, w.othersSince = w.env.Now(), w.env.Now().Add(-20*time.Second) }
	w.delays["AwaitInformers"] = 3 * time.Second
	w.move(usualInput)

	require.WithinRange(t, w.emptiedAt, fenced.Add(48*time.Second), fenced.Add(49*time.Second))
}

func TestMigrate_WhoseInformersAreCutOffByAWakeThatTakesLong_CountsFromItsEnd(t *testing.T) {
	w := newWorld(t)
	var woken time.Time
	w.delays["WakeShard"] = 30 * time.Second
	w.onCall["AwaitInformers"] = func() { woken = w.env.Now() }
	w.delays["AwaitInformers"] = time.Hour
	w.move(usualInput)

	require.WithinRange(t, w.emptiedAt, woken.Add(65*time.Second), woken.Add(66*time.Second))
}

func TestMigrate_OnAShardThatIsNeverQuiet_DeletesInTheEndAndWarns(t *testing.T) {
	w := newWorld(t)
	w.cutBefore = func(int) bool { return true }
	var fenced time.Time
	w.onCall["FenceOrigin"] = func() { fenced = w.env.Now() }
	w.move(usualInput)

	result := w.result()
	require.Equal(t, workflows.Completed, result.Phase)
	require.Len(t, result.Warnings, 1)
	require.Contains(t, result.Warnings[0], "Restart the API servers of that shard")
	require.WithinRange(t, w.emptiedAt, fenced.Add(10*time.Minute), fenced.Add(11*time.Minute+10*time.Second))
	w.arrived()
}

func TestMigrate_NothingToReady_GoesStraightToTheFence(t *testing.T) {
	w := newWorld(t)
	w.destinationReport.MissingCRDs = nil
	w.destinationReport.Health.Revision = 20_000
	w.move(usualInput)

	require.Equal(t, []string{"Claim@shard-1/1", "FenceOrigin@root/1→2"}, w.calls[4:6])
}

func TestMigrate_LeftoversToDiscard_DiscardsThemUnderTheClaim(t *testing.T) {
	w := newWorld(t)
	w.destinationReport.Leftovers = []string{"/registry/core/configmaps/x"}
	input := usualInput
	input.DiscardLeftovers = true
	w.move(input)

	require.Equal(t, []string{"Claim@shard-1/1", "DiscardLeftovers@shard-1/1"}, w.calls[4:6])
	w.arrived()
}

func TestMigrate_DryRun_ReturnsThePlanAndTouchesNothing(t *testing.T) {
	w := newWorld(t)
	input := usualInput
	input.DryRun = true
	w.move(input)

	require.Equal(t, theStory[:3], w.calls)
	result := w.result()
	require.Equal(t, workflows.Preparing, result.Phase)
	require.True(t, result.DryRun)
	require.Equal(t, int64(6_000), result.Plan.RevisionLift)
	require.Equal(t, []workflows.PlannedFamily{{Family: "core/configmaps", Entries: 5_000, Bytes: 5_000_000}}, result.Plan.Families)
}

func TestMigrate_TimeAway_IsFromTheFenceToTheServing(t *testing.T) {
	w := newWorld(t)
	w.delays["InspectOrigin"] = time.Second
	w.delays["FenceOrigin"] = 100 * time.Millisecond
	w.delays["CopyEntries"] = 300 * time.Millisecond
	w.delays["AwaitServing"] = 50 * time.Millisecond
	w.delays["AwaitRoute"] = time.Second
	w.move(usualInput)

	require.InDelta(t, 450*time.Millisecond, time.Duration(w.result().TimeAway), float64(100*time.Millisecond))
}

func TestMigrate_RevisionGapTooLarge_HoldsTheFenceAndDoesNotLift(t *testing.T) {
	w := newWorld(t)
	input := usualInput
	input.MaxRevisionLift = 100
	w.move(input)

	require.NotContains(t, w.calls, "LiftRevision@shard-1/1")
	require.GreaterOrEqual(t, time.Duration(w.result().TimeAway), 2*time.Second)
	w.arrived()
}

func TestMigrate_DifferingDigests_VerifiesAgainUnderANewToken(t *testing.T) {
	w := newWorld(t)
	w.verifyRounds = []activities.VerifyResult{{RepairedPuts: 3}, {RepairedDeletes: 1}, {RepairedPuts: 1}}
	w.move(usualInput)

	require.Equal(t, []string{
		"VerifyEntries@shard-1/1→2", "VerifyEntries@shard-1/2→3", "VerifyEntries@shard-1/3→4", "VerifyEntries@shard-1/4→5", "Commit@shard-1/5→6",
	}, w.calls[10:15])
	w.arrived()
}

func TestMigrate_VerificationThatDies_IsRetriedUnderANewToken(t *testing.T) {
	w := newWorld(t)
	w.lostAnswers["VerifyEntries"] = []func() error{flaky, flaky}
	w.move(usualInput)

	require.Equal(t, []string{
		"VerifyEntries@shard-1/1→2", "VerifyEntries@shard-1/2→3", "VerifyEntries@shard-1/3→4", "Commit@shard-1/4→5",
	}, w.calls[10:14])
	w.arrived()
}

func TestMigrate_FenceThatDies_IsRetriedUnderANewToken(t *testing.T) {
	w := newWorld(t)
	w.lostAnswers["FenceOrigin"] = []func() error{flaky, flaky}
	w.move(usualInput)

	require.Equal(t, []string{"FenceOrigin@root/1→2", "FenceOrigin@root/2→3", "FenceOrigin@root/3→4", "FenceDestination@shard-1/1"}, w.calls[7:11])
	w.arrived()
}

func TestMigrate_LongWaitAtTheGate_InspectsAndReadiesAgain(t *testing.T) {
	w := newWorld(t)
	input := usualInput
	input.RequireApproval = true
	w.env.RegisterDelayedCallback(func() { w.send(workflows.ApproveUpdate) }, time.Hour)
	w.move(input)

	require.Equal(t, foundAgain, w.calls[7:11])
	w.arrived()
}

func TestMigrate_RefusedAfterALongWait_GivesTheClaimsBackAndNeverFences(t *testing.T) {
	w := newWorld(t)
	input := usualInput
	input.RequireApproval = true
	w.env.RegisterDelayedCallback(func() {
		w.faults["InspectOrigin"] = []func() error{func() error { return activities.Refuse(activities.BeingDeleted, "it is going") }}
		w.send(workflows.ApproveUpdate)
	}, time.Hour)
	w.move(input)

	failure, result := w.failure()
	require.Equal(t, activities.BeingDeleted, failure.Type())
	require.Zero(t, result.TimeAway)
	require.NotContains(t, w.calls, "FenceOrigin@root/1→2")
	w.givenBack()
}

func TestMigrate_StillDifferingAfterThreeRepairs_UndoesAndNamesThem(t *testing.T) {
	w := newWorld(t)
	differing := []activities.Ref{{Family: keyspace.Family{Group: "core", Resource: "configmaps"}, Suffix: "default/stubborn"}}
	for range 4 {
		w.verifyRounds = append(w.verifyRounds, activities.VerifyResult{Differing: differing})
	}
	w.move(usualInput)

	failure, _ := w.failure()
	require.Equal(t, activities.DigestMismatch, failure.Type())
	require.Contains(t, failure.Message(), "core/configmaps default/stubborn")
	w.givenBack()
}

func TestMigrate_Stragglers_AreCarriedBeforeTheyAreDeleted(t *testing.T) {
	w := newWorld(t)
	late := activities.Straggler{Ref: activities.Ref{Family: keyspace.Family{Group: "core", Resource: "secrets"}, Suffix: "default/late"}}
	w.stragglers = [][]activities.Straggler{{late}}
	w.move(usualInput)

	require.Equal(t, []string{"DeleteOriginEntries@root/2", "CarryStragglers@shard-1/3", "DropCarried@root/2", "DeleteOriginEntries@root/2", "AwaitServing@shard-1/3"}, w.calls[17:22])
	late.Carried = true
	require.Equal(t, []activities.Straggler{late}, w.result().Stragglers)
}

func TestMigrate_StragglersWithoutEnd_AreLeftAndReported(t *testing.T) {
	w := newWorld(t)
	late := activities.Straggler{Ref: activities.Ref{Family: keyspace.Family{Group: "core", Resource: "secrets"}, Suffix: "default/late"}}
	for revision := range int64(4) {
		late.OriginRevision = 9_160 + revision // written again and again
		w.stragglers = append(w.stragglers, []activities.Straggler{late})
	}
	w.move(usualInput)

	result := w.result()
	require.Len(t, result.Stragglers, 4)
	require.False(t, result.Stragglers[3].Carried)
	require.NotEmpty(t, result.Stragglers[3].Reason)
	require.Contains(t, result.Warnings[len(result.Warnings)-1], "still being written")
}

func TestMigrate_StragglerThatCannotBeCarried_IsNamedOnceAndLeft(t *testing.T) {
	w := newWorld(t)
	w.backlog = newBacklog(1, func(activities.Straggler) bool { return false })
	w.move(usualInput)

	require.Len(t, w.result().Stragglers, 1)
	require.Len(t, w.backlog.left, 1)
	require.Empty(t, w.result().Warnings)
}

func TestMigrate_OwnerGone_CompletesWithAWarning(t *testing.T) {
	w := newWorld(t)
	w.ownerGone = true
	w.move(usualInput)

	require.Contains(t, w.result().Warnings[len(w.result().Warnings)-1], "OwnerGone: Workspace consumer")
	w.arrived()
}

func TestMigrate_RouteThatAFrontProxyHasLost_IsTouchedUntilItIsBack(t *testing.T) {
	w := newWorld(t)
	w.routesLost = 2
	w.faults["TouchOwner"] = []func() error{broken}
	w.move(usualInput)

	touched := []string{"AwaitRoute@kcp-migrate", "TouchDestination@shard-1/3", "TouchOwner@kcp-migrate"}
	require.Equal(t, slices.Concat(touched, touched, []string{"AwaitRoute@kcp-migrate"}), w.calls[20:27])
	require.Equal(t, workflows.Completed, w.result().Phase)
}

func TestMigrate_TenantDeletedAtTheDestination_WaitsForNoFrontProxy(t *testing.T) {
	w := newWorld(t)
	w.deleted, w.routesLost = true, 1_000_000
	w.move(usualInput)

	require.Contains(t, strings.Join(w.result().Warnings, "\n"), "the logical cluster was deleted on shard shard-1")
	w.arrived()
}

func TestMigrate_ContextThatIsNotDropped_CompletesWithAWarning(t *testing.T) {
	w := newWorld(t)
	w.stuck = "https://two: 504"
	w.move(usualInput)

	require.Contains(t, strings.Join(w.result().Warnings, "\n"), "https://two: 504")
	w.arrived()
}

func TestMigrate_OriginThatDoesNotLetGo_HasTheRouteHeldUntilItDoes(t *testing.T) {
	for _, slow := range []string{"WakeShard", "ReleaseContext", "DropOriginLogicalCluster"} {
		t.Run(slow, func(t *testing.T) {
			w := newWorld(t)
			var held, letGo time.Time
			w.delays[slow] = 24 * time.Hour
			w.delays["HoldRoute"] = 1000 * time.Hour
			w.onCall["HoldRoute"] = func() { held = w.env.Now() }
			w.env.SetOnActivityCanceledListener(func(info *activity.Info) {
				if info.ActivityType.Name == "HoldRoute" {
					letGo = w.env.Now()
				}
			})
			timers := 0
			w.env.SetOnTimerScheduledListener(func(string, time.Duration) { timers++ })
			started := w.env.Now()
			w.move(usualInput)

			require.WithinRange(t, held, started, started.Add(5*time.Second))
			require.WithinRange(t, letGo, held.Add(23*time.Hour), held.Add(25*time.Hour))
			require.Less(t, timers, 200)
			w.arrived()
		})
	}
}

func TestMigrate_RouteThatCannotBeHeld_IsTriedAgain(t *testing.T) {
	w := newWorld(t)
	w.delays["ReleaseContext"] = time.Hour
	w.faults["HoldRoute"] = []func() error{broken, broken, broken}
	w.move(usualInput)

	holds := w.beside[2:]
	require.Equal(t, slices.Repeat([]string{"HoldRoute@shard-1/3"}, len(holds)), holds)
	require.Greater(t, len(holds), 3, "three failed, and none holds for long")
	require.Less(t, len(holds), 20, "it takes a worker's place for a minute each")
	w.arrived()
}

// Temporal ends a workflow of more than 51,200 events, and a timer is two of them and a workflow task.
func TestMigrate_ThatWaitsForAPersonForAWeek_SetsFewTimers(t *testing.T) {
	w := newWorld(t)
	timers := 0
	w.env.SetOnTimerScheduledListener(func(string, time.Duration) { timers++ })
	w.env.RegisterDelayedCallback(func() { w.send(workflows.ApproveUpdate) }, 7*24*time.Hour)
	input := usualInput
	input.RequireApproval = true
	w.move(input)

	require.Less(t, timers, 100)
	w.arrived()
}

func TestMigrate_WhoseInspectionTakesLong_IsInspectedTwiceAtMost(t *testing.T) {
	w := newWorld(t)
	inspections := 0
	w.delays["InspectOrigin"] = 30 * time.Second
	w.acted = func(name string) {
		if name == "InspectDestination" {
			inspections++
			w.delays["InspectOrigin"] = 30 * time.Second
		}
	}
	w.move(usualInput)

	require.LessOrEqual(t, inspections, 2)
	w.arrived()
}

func TestMigrate_NoOwner_DoesNotAskForIt(t *testing.T) {
	w := newWorld(t)
	w.owner = nil
	w.move(usualInput)

	require.NotContains(t, w.calls, "AwaitOwner@kcp-migrate")
	w.arrived()
}

func TestMigrate_PermanentErrorAfterTheCommit_GoesOnOnceItIsMended(t *testing.T) {
	for _, name := range []string{"AwaitServing", "DropOriginLogicalCluster", "TouchDestination", "DeleteOriginEntries", "AwaitRoute", "AwaitOwner", "Release", "WakeShard"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.faults[name] = []func() error{broken, broken, broken}
			var advice string
			w.env.RegisterDelayedCallback(func() { advice = w.status().Advice }, 12*time.Second)
			w.move(usualInput)

			require.Equal(t, workflows.Completed, w.result().Phase)
			require.Contains(t, advice, "this cannot be mended by another try. Mend the cause")
			w.arrived()
		})
	}
}

func TestMigrate_StepThatTakesLongAfterTheCommit_TellsWhereToLook(t *testing.T) {
	w := newWorld(t)
	w.delays["AwaitRoute"] = time.Minute
	var waiting workflows.Status
	w.env.RegisterDelayedCallback(func() { waiting = w.status() }, 40*time.Second)
	w.move(usualInput)

	require.Contains(t, waiting.Advice, "Await every front-proxy has taken")
	require.Empty(t, w.status().Advice)
}

func TestMigrate_WorkflowTimeout_IsRefused(t *testing.T) {
	for name, options := range map[string]client.StartWorkflowOptions{
		"run":       {WorkflowRunTimeout: time.Hour},
		"execution": {WorkflowExecutionTimeout: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.env.SetStartWorkflowOptions(options)
			w.move(usualInput)

			failure, _ := w.failure()
			require.Equal(t, activities.WorkflowTimeoutSet, failure.Type())
			require.Empty(t, w.calls)
		})
	}
}

func TestMigrate_UnknownField_IsRefusedByName(t *testing.T) {
	w := newWorld(t)
	w.env.ExecuteWorkflow(workflows.MigrateLogicalClusterName, map[string]any{
		"logicalCluster": tenantPath, "destinationShard": destination, "dryrunn": true,
	})

	failure, result := w.failure()
	require.Equal(t, activities.InvalidInput, failure.Type())
	require.Contains(t, failure.Message(), `unknown field "dryrunn"`)
	require.Equal(t, workflows.Failed, result.Phase)
	require.Empty(t, w.calls)
}

func TestMigrate_IllTypedField_IsRefusedByName(t *testing.T) {
	w := newWorld(t)
	w.env.ExecuteWorkflow(workflows.MigrateLogicalClusterName, map[string]any{
		"logicalCluster": tenantPath, "destinationShard": destination, "maxTimeAway": 60,
	})

	failure, _ := w.failure()
	require.Equal(t, activities.InvalidInput, failure.Type())
	require.Contains(t, failure.Message(), "maxTimeAway")
}

func TestMigrate_NoWorkerBesideAShard_IsToldWithTheCommandToStartOne(t *testing.T) {
	for inspection, shard := range map[string]string{"InspectOrigin": origin, "InspectDestination": destination} {
		t.Run(inspection, func(t *testing.T) {
			w := newWorld(t)
			w.faults[inspection] = []func() error{func() error {
				return temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil)
			}}
			w.move(usualInput)

			failure, result := w.failure()
			require.Equal(t, activities.ShardWorkerMissing, failure.Type())
			require.Contains(t, failure.Message(), "kcp-migrate worker --shard "+shard)
			require.Empty(t, result.Undone)
		})
	}
}

func TestMigrate_UnreachableInPreflight_SaysSoAfterThreeTries(t *testing.T) {
	for _, name := range []string{"Resolve", "InspectOrigin", "InspectDestination"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.faults[name] = []func() error{flaky, flaky, flaky}
			started := w.env.Now()
			w.move(usualInput)

			failure, _ := w.failure()
			require.Equal(t, activities.Unreachable, failure.Type())
			require.Contains(t, failure.Message(), "connection refused")
			require.Less(t, w.env.Now().Sub(started), 5*time.Second)
		})
	}
}

func TestMigrate_PassingFaultInPreflight_IsRetried(t *testing.T) {
	w := newWorld(t)
	w.faults["InspectOrigin"] = []func() error{flaky, flaky}
	w.move(usualInput)
	w.arrived()
}

func TestMigrate_RefusalInPreflight_KeepsItsTypeAndClaimsNothing(t *testing.T) {
	w := newWorld(t)
	w.faults["InspectOrigin"] = []func() error{func() error { return activities.Refuse(activities.NotReady, "phase Scheduling") }}
	w.move(usualInput)

	failure, result := w.failure()
	require.Equal(t, activities.NotReady, failure.Type())
	require.Equal(t, "phase Scheduling", failure.Message())
	require.Equal(t, workflows.Failed, result.Phase)
	require.Empty(t, result.Undone)
	require.Equal(t, theStory[:2], w.calls)
}
