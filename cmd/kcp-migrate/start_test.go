package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

func completedResult() workflows.Result {
	return workflows.Result{
		LogicalCluster: "256hdo017n2m0br9", Path: "root:consumer", OriginShard: "root", DestinationShard: "shard-1",
		Phase: workflows.Completed, Entries: 10_106, Bytes: 13_002_342, SHA256: "8de975e7",
		TimeAway: workflows.Duration(410 * time.Millisecond),
		Steps: []workflows.Step{
			{Name: "preflight", Took: workflows.Duration(112 * time.Millisecond)},
			{Name: "copy", Took: workflows.Duration(200 * time.Millisecond)},
		},
		Stragglers: []activities.Straggler{
			{Ref: ref("core/configmaps", "default/late"), Carried: true},
			{Ref: ref("core/configmaps", "default/gone"), Deleted: true, Reason: "deletes are not carried"},
		},
		Warnings: []string{"OwnerGone: the owner Workspace is gone"},
	}
}

func TestStart_PassesEveryFlagOn(t *testing.T) {
	fake := newFakeTemporal()

	done := typeIn(t.Context(), fake, "start", "root:consumer", "shard-1", "--require-approval", "--max-time-away", "10s",
		"--discard-leftovers", "--accept-token-loss", "--force-destination", "--max-revision-lift", "7")

	require.Equal(t, exitDone, done.code, done.err)
	require.Equal(t, workflows.Input{
		LogicalCluster: "root:consumer", DestinationShard: "shard-1", RequireApproval: true,
		MaxTimeAway: workflows.Duration(10 * time.Second), DiscardLeftovers: true, AcceptTokenLoss: true,
		ForceDestination: true, MaxRevisionLift: 7,
	}, fake.input)
	require.Equal(t, consumerID, fake.started.ID)
	require.Equal(t, workflows.TaskQueue, fake.started.TaskQueue)
	require.Zero(t, fake.started.WorkflowExecutionTimeout, "it would kill the undo")
	require.Zero(t, fake.started.WorkflowRunTimeout)
	require.Equal(t, enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL, fake.started.WorkflowIDConflictPolicy)
	require.Equal(t, enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE, fake.started.WorkflowIDReusePolicy)
	require.Contains(t, done.out, "kcp-migrate watch migrate-root:consumer")
}

func TestStart_TakesFlagsBeforeTheEnvironment(t *testing.T) {
	fake := newFakeTemporal()
	environment := map[string]string{
		"KCP_MIGRATE_OUTPUT": "name", "KCP_MIGRATE_WORKFLOW_ID": "from-environment", "KCP_MIGRATE_MAX_REVISION_LIFT": "7",
	}

	done := typeInWith(t.Context(), environment, fake, "start", "root:consumer", "shard-1", "--workflow-id", "from-flag")

	require.Equal(t, outcome{exitDone, "from-flag\n", ""}, done)
	require.EqualValues(t, 7, fake.input.MaxRevisionLift)
}

func TestStart_WithoutAWorker_IsRefused(t *testing.T) {
	fake := newFakeTemporal()
	fake.workers = 0

	done := typeIn(t.Context(), fake, "start", "root:consumer", "shard-1")

	require.Equal(t, exitRefused, done.code)
	require.Contains(t, done.err, "kcp-migrate: ShardWorkerMissing: no worker polls task queue kcp-migrate")
	require.Nil(t, fake.info, "nothing was started")
}

func TestStart_WhenNoWorkerTakesIt_IsCancelledWithinTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeTemporal()
		fake.pickedUp = false
		began := time.Now()

		done := typeIn(t.Context(), fake, "start", "root:consumer", "shard-1")

		require.Equal(t, exitRefused, done.code)
		require.Contains(t, done.err, "ShardWorkerMissing")
		require.Less(t, time.Since(began), 10*time.Second)
		require.Equal(t, []string{consumerID}, fake.cancelled)
	})
}

func TestStart_WhenItRunsAlready_IsRefused(t *testing.T) {
	done := typeIn(t.Context(), newFakeTemporal().running(workflows.Status{}), "start", "root:consumer", "shard-1")

	require.Equal(t, exitRefused, done.code)
	require.Contains(t, done.err, "AlreadyMigrating: workflow migrate-root:consumer is already running (run run-1)")
	require.Contains(t, done.err, "`kcp-migrate watch migrate-root:consumer`")
}

func TestStart_WithWait_PrintsTheResult(t *testing.T) {
	for format, file := range map[string]string{
		"table": "result.table.golden", "json": "result.json.golden", "yaml": "result.yaml.golden", "name": "result.name.golden",
	} {
		t.Run(format, func(t *testing.T) {
			done := typeIn(t.Context(), newFakeTemporal().over(completedResult(), nil), "start", "root:consumer", "shard-1", "--wait", "-o", format)
			require.Equal(t, exitDone, done.code, done.err)
			requireGolden(t, file, done.out)
		})
	}
}

func TestStart_WithWait_WhenUndone_PrintsWhatWasUndoneAndExits4(t *testing.T) {
	undone := workflows.Result{
		LogicalCluster: "256hdo017n2m0br9", Path: "root:consumer", OriginShard: "root", DestinationShard: "shard-1",
		Phase: workflows.Failed, TimeAway: workflows.Duration(61 * time.Second),
		Undone: []string{"sealed the destination", "lifted the fence on shard root"},
	}
	fake := newFakeTemporal().over(workflows.Result{},
		temporal.NewNonRetryableApplicationError("61 s after the fence no commit had landed", activities.AwayTooLong, nil, undone))

	done := typeIn(t.Context(), fake, "start", "root:consumer", "shard-1", "--wait", "-o", "json")

	require.Equal(t, exitUndone, done.code)
	require.Equal(t, undone, readJSON[workflows.Result](t, done.out))
	require.Contains(t, done.err, "kcp-migrate: AwayTooLong: 61 s after the fence no commit had landed\n")
	require.Contains(t, done.err, "Everything was undone")
}

func TestStart_WithWait_WhenTerminated_WarnsOfAFenceThatMayStand(t *testing.T) {
	fake := newFakeTemporal().over(workflows.Result{}, &temporal.TerminatedError{})

	done := typeIn(t.Context(), fake, "start", "root:consumer", "shard-1", "--wait")

	require.Equal(t, exitError, done.code)
	require.Contains(t, done.err, "may still be fenced")
}

func TestStart_WithWait_WhenInterrupted_DetachesAndSaysHowToComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, interrupt)
		fake := newFakeTemporal()

		done := typeIn(ctx, fake, "start", "root:consumer", "shard-1", "--wait")

		require.Equal(t, exitInterrupted, done.code)
		require.Contains(t, done.err, "the move goes on. Come back with: kcp-migrate watch migrate-root:consumer")
		require.Empty(t, fake.cancelled)
		require.Empty(t, done.out)
	})
}

func TestStart_WithWait_WhenItTakesLongerThanTimeout_Exits5(t *testing.T) {
	for _, hasty := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fake := newFakeTemporal()
			fake.hasty = hasty

			done := typeIn(t.Context(), fake, "start", "root:consumer", "shard-1", "--wait", "--timeout", "2s")

			require.Equal(t, exitStillRunning, done.code, done.err)
			require.Contains(t, done.err, "it is still running\nCome back with: kcp-migrate watch migrate-root:consumer")
			require.Empty(t, fake.cancelled)
		})
	}
}

func TestStart_WithWait_WhenNotAllIsUndone_Exits1AndSaysWhereToRead(t *testing.T) {
	left := workflows.Result{
		LogicalCluster: "256hdo017n2m0br9", Phase: workflows.Failed, TimeAway: workflows.Duration(time.Second),
		Undone: []string{"sealed the destination"}, NotUndone: []string{"lift the origin's fence: it is Forbidden"},
	}
	fake := newFakeTemporal().over(workflows.Result{}, temporal.NewNonRetryableApplicationError("wrong shard", activities.Aborted, nil, left))

	done := typeIn(t.Context(), fake, "start", "root:consumer", "shard-1", "--wait")

	require.Equal(t, exitError, done.code)
	require.Contains(t, done.out, "Not undone, see docs/operations.md:\n  lift the origin's fence")
	require.Contains(t, done.err, "docs/operations.md")
	require.NotContains(t, done.err, "Everything was undone")
}

func TestStart_WithWait_WhenTheWorkerDies_SaysSoAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeTemporal()
		fake.unanswered = true
		time.AfterFunc(30*time.Second, func() { fake.over(completedResult(), nil) })

		done := typeIn(t.Context(), fake, "start", "root:consumer", "shard-1", "--wait", "-o", "name")

		require.Equal(t, exitDone, done.code)
		require.Contains(t, done.err, "no worker answers for migrate-root:consumer")
	})
}

func TestUsage_IsExit2(t *testing.T) {
	for name, arguments := range map[string][]string{
		"unknown command":      {"move"},
		"unknown flag":         {"start", "a", "b", "--loud"},
		"too few arguments":    {"start", "root:consumer"},
		"too many arguments":   {"list", "everything"},
		"empty argument":       {"start", "", "shard-1"},
		"ill-typed flag":       {"start", "a", "b", "--max-time-away", "soon"},
		"unknown format":       {"start", "a", "b", "-o", "xml"},
		"timeout, no wait":     {"start", "a", "b", "--timeout", "1s"},
		"negative time":        {"plan", "a", "b", "--max-time-away", "-1s"},
		"verify with one side": {"verify", "a", "--origin-config", "b"},
		"worker of nothing":    {"worker"},
		"verify without files": {"verify", "a", "--origin-config", "nowhere.yaml", "--destination-config", "nowhere.yaml"},
		"list of nothing":      {"list", "--limit", "0"},
		"unknown shell":        {"completion", "nosh"},
		"two shells":           {"completion", "bash", "zsh"},
		"no shell":             {"completion"},
	} {
		t.Run(name, func(t *testing.T) {
			done := typeIn(t.Context(), newFakeTemporal(), arguments...)
			require.Equal(t, exitUsage, done.code, done.err)
			require.Contains(t, done.err, "--help")
			require.Empty(t, done.out)
		})
	}
}

func TestUsage_WhenTheEnvironmentIsWrong_NamesTheVariable(t *testing.T) {
	done := typeInWith(t.Context(), map[string]string{"KCP_MIGRATE_OUTPUT": "xml"}, newFakeTemporal(), "list")

	require.Equal(t, exitUsage, done.code)
	require.Contains(t, done.err, "KCP_MIGRATE_OUTPUT")
}

func TestEveryCommand_HasAnExampleAndListsExitCodes(t *testing.T) {
	root := newRootCommand(newTerminal("kcp-migrate"))
	for _, command := range root.Commands() {
		require.NotEmpty(t, command.Example, command.Name())
		help := typeIn(t.Context(), newFakeTemporal(), command.Name(), "--help")
		require.Contains(t, help.out, "130  interrupted", command.Name())
	}
}

func TestProgramName_IsWhatThePersonTypes(t *testing.T) {
	require.Equal(t, "kcp-migrate", programName("/usr/local/bin/kcp-migrate"))
	require.Equal(t, "kubectl kcp-migrate", programName("/usr/local/bin/kubectl-kcp_migrate"))
}

func TestStragglerLines_NameWhatAPersonMustKnow_AndCountTheRest(t *testing.T) {
	result := completedResult()
	result.Stragglers = append(result.Stragglers, activities.Straggler{Ref: ref("core/configmaps", "default/kube-root-ca.crt"), Discarded: true, Reason: "controllers"})
	result.StragglerCounts = workflows.StragglerCounts{Carried: 2_001, NotCarried: 3_001, Discarded: 9}
	lines := stragglerLines(&result)

	require.Len(t, lines, 5)
	require.Contains(t, lines[0], "default/late, written at the origin after verification, carried to the destination")
	require.Contains(t, lines[1], "default/gone, deleted at the origin after verification, not carried: deletes are not carried")
	require.Contains(t, lines[2], "3,000 more were NOT carried")
	require.Contains(t, lines[3], "2,000 more were carried")
	require.Contains(t, lines[4], "9 entries that kcp's own controllers wrote")
	require.Empty(t, stragglerLines(&workflows.Result{}))
}
