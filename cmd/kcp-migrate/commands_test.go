package main

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"
	activitypb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

func ref(family, suffix string) activities.Ref {
	parsed, err := keyspace.ParseFamily(family)
	if err != nil {
		panic(err)
	}
	return activities.Ref{Family: parsed, Suffix: suffix}
}

func plan() *workflows.Plan {
	return &workflows.Plan{
		LogicalCluster: "256hdo017n2m0br9", Path: "root:consumer", OriginShard: "root", DestinationShard: "shard-1",
		Entries: 10_106, Bytes: 13_002_342, LeasedEntries: 10,
		Families: []workflows.PlannedFamily{
			{Family: "core/configmaps", Entries: 10_041, Bytes: 12_900_000},
			{Family: "core/secrets", Entries: 10, Bytes: 2_201},
		},
		BoundCRDs: []string{"7d3c"}, RevisionLift: 1_435, MinimumFence: workflows.Duration(2 * time.Second),
		Leftovers: []string{"/registry/core/secrets/256hdo017n2m0br9/default/old"}, NotMoved: []string{"child"}, ReleasesContext: true,
		ExpectedTimeAway: workflows.Duration(805 * time.Millisecond), Warnings: []string{"token Secrets move as they are"},
	}
}

func TestPlan_PrintsThePlan(t *testing.T) {
	for format, file := range map[string]string{"table": "plan.table.golden", "json": "plan.json.golden", "name": "plan.name.golden"} {
		t.Run(format, func(t *testing.T) {
			fake := newFakeTemporal().over(workflows.Result{Plan: plan()}, nil)
			done := typeIn(t.Context(), fake, "plan", "root:consumer", "shard-1", "-o", format)
			require.Equal(t, exitDone, done.code, done.err)
			require.True(t, fake.input.DryRun)
			require.Regexp(t, "^plan-root:consumer-[0-9a-f-]{36}$", fake.started.ID)
			requireGolden(t, file, done.out)
		})
	}
}

func TestPlan_WhenTheMoveWouldBeRefused_Exits3(t *testing.T) {
	fake := newFakeTemporal().over(workflows.Result{}, activities.Refuse(activities.SameShard, "it is there already"))

	done := typeIn(t.Context(), fake, "plan", "root:consumer", "root")

	require.Equal(t, outcome{exitRefused, "", "kcp-migrate: SameShard: it is there already\n"}, done)
}

func TestPlan_WhenItTakesTooLong_Exits5(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := typeIn(t.Context(), newFakeTemporal(), "plan", "root:consumer", "root")
		require.Equal(t, exitStillRunning, done.code)
	})
}

func runningStatus() workflows.Status {
	fencedAt := startedAt.Add(time.Second)
	return workflows.Status{
		Result: workflows.Result{
			LogicalCluster: "256hdo017n2m0br9", Path: "root:consumer", OriginShard: "root", DestinationShard: "shard-1",
			Phase: workflows.Migrating,
		},
		Step: "copy", StartedAt: startedAt, Fenced: true, FencedAt: &fencedAt, Advice: "wait",
	}
}

func TestStatus_OfARunningMove_ShowsWhatIsRetried(t *testing.T) {
	fake := newFakeTemporal().running(runningStatus())
	fake.pending = []*workflowpb.PendingActivityInfo{{
		ActivityType: &activitypb.ActivityType{Name: "CopyEntries"}, Attempt: 3, LastFailure: &failurepb.Failure{Message: "connection reset"},
	}}

	done := typeIn(t.Context(), fake, "status", "root:consumer", "-o", "json")

	require.Equal(t, exitDone, done.code, done.err)
	found := readJSON[movement](t, done.out)
	require.Equal(t, consumerID, found.WorkflowID)
	require.Equal(t, "Running", found.State)
	require.Equal(t, runningStatus(), found.Status)
	require.Equal(t, []string{"CopyEntries, attempt 3: connection reset"}, found.Retrying)
}

func TestStatus_OfAMoveThatIsOver_NeedsNoWorker(t *testing.T) {
	fake := newFakeTemporal().running(runningStatus()).over(workflows.Result{},
		temporal.NewNonRetryableApplicationError("wrong shard", activities.Aborted, nil,
			workflows.Result{LogicalCluster: "256hdo017n2m0br9", Phase: workflows.Failed, Undone: []string{"lifted the fence"}}))
	fake.info.Status = enumspb.WORKFLOW_EXECUTION_STATUS_FAILED
	fake.unanswered = true

	done := typeIn(t.Context(), fake, "status", "root:consumer", "-o", "json")

	require.Equal(t, exitDone, done.code, done.err)
	found := readJSON[movement](t, done.out)
	require.Equal(t, "Aborted: wrong shard", found.Failure)
	require.Equal(t, workflows.Failed, found.Phase)
	require.Equal(t, []string{"lifted the fence"}, found.Undone)
}

func TestStatus_WhenNoWorkerAnswers_SaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeTemporal().running(runningStatus())
		fake.unanswered = true

		done := typeIn(t.Context(), fake, "status", "root:consumer")

		require.Equal(t, exitError, done.code)
		require.Contains(t, done.err, "is there a worker?")
	})
}

func TestStatus_PrintsATable(t *testing.T) {
	var out bytes.Buffer
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	detail := movement{WorkflowID: consumerID, State: "Running", Status: runningStatus()}
	detail.Paused, detail.Aborting, detail.WaitsForApproval, detail.Committed = true, true, true, true

	detail.print(table)

	require.NoError(t, table.Flush())
	requireGolden(t, "status.table.golden", out.String())
}

func TestFindMove_TriesWorkflowIDsBeforeLogicalClusters(t *testing.T) {
	fake := newFakeTemporal().running(runningStatus())
	for _, name := range []string{consumerID, "root:consumer"} {
		info, err := findMove(t.Context(), fake, name)
		require.NoError(t, err)
		require.Equal(t, consumerID, info.GetExecution().GetWorkflowId())
		require.Empty(t, fake.queries)
	}

	info, err := findMove(t.Context(), fake, "256hdo017n2m0br9")
	require.NoError(t, err)
	require.Equal(t, consumerID, info.GetExecution().GetWorkflowId())
	require.Equal(t, []string{
		"WorkflowType = 'MigrateLogicalCluster' AND WorkflowId NOT STARTS_WITH 'plan-' AND KcpLogicalCluster = '256hdo017n2m0br9'",
	}, fake.queries)
}

func TestFindMove_OfNothing_SaysSo(t *testing.T) {
	done := typeIn(t.Context(), newFakeTemporal(), "status", "it's")

	require.Equal(t, exitError, done.code)
	require.Contains(t, done.err, "find move it's: no workflow has this ID")
}

func TestQuoted_LeavesNoWayOut(t *testing.T) {
	require.Equal(t, `'a\' OR \'\\'`, quoted(`a' OR '\`))
}

func TestList_PrintsMoves(t *testing.T) {
	fake := newFakeTemporal().running(runningStatus())

	done := typeIn(t.Context(), fake, "list", "-o", "json")
	require.Equal(t, exitDone, done.code, done.err)
	require.Equal(t, []move{{
		WorkflowID: consumerID, RunID: consumerRun, State: "Running", LogicalCluster: "256hdo017n2m0br9",
		OriginShard: "root", DestinationShard: "shard-1", Phase: workflows.Migrating, StartedAt: startedAt,
	}}, readJSON[[]move](t, done.out))

	require.Equal(t, outcome{exitDone, consumerID + "\n", ""}, typeIn(t.Context(), fake, "list", "-o", "name"))
}

func TestList_PrintsATable(t *testing.T) {
	var out bytes.Buffer
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	endedAt := startedAt.Add(1110 * time.Millisecond)

	printMoves(table, []move{
		{WorkflowID: "migrate-a", State: "Running", StartedAt: startedAt},
		{
			WorkflowID: consumerID, State: "Completed", LogicalCluster: "256hdo017n2m0br9", OriginShard: "root",
			DestinationShard: "shard-1", Phase: workflows.Completed, StartedAt: startedAt, EndedAt: &endedAt,
		},
	}, startedAt.Add(time.Minute))

	require.NoError(t, table.Flush())
	requireGolden(t, "list.table.golden", out.String())
}

func TestUpdates_AreSentUnderTheirNames(t *testing.T) {
	for _, name := range []string{workflows.PauseUpdate, workflows.ResumeUpdate, workflows.ApproveUpdate} {
		fake := newFakeTemporal().running(runningStatus())
		fake.answer = func() error { return nil }
		done := typeIn(t.Context(), fake, name, "root:consumer")
		require.Equal(t, exitDone, done.code, done.err)
		require.Equal(t, name, fake.updated.UpdateName)
		require.Equal(t, consumerID, fake.updated.WorkflowID)
		require.Equal(t, consumerRun, fake.updated.RunID)
	}
}

func TestUpdate_WhenRejected_Exits3WithTheReason(t *testing.T) {
	fake := newFakeTemporal().running(runningStatus())
	fake.answer = func() error { return temporal.NewApplicationError("the tenant is fenced", "Rejected") }

	for _, command := range []string{"pause", "resume", "approve", "abort"} {
		done := typeIn(t.Context(), fake, command, "root:consumer")
		require.Equal(t, outcome{exitRefused, "", "kcp-migrate: " + command + " migrate-root:consumer: the tenant is fenced\n"}, done)
	}
}

func TestUpdate_WhenTheMoveIsOver_Exits3(t *testing.T) {
	fake := newFakeTemporal().running(runningStatus())
	fake.info.Status = enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED

	for _, command := range []string{"pause", "abort"} {
		done := typeIn(t.Context(), fake, command, "root:consumer")
		require.Equal(t, exitRefused, done.code)
		require.Contains(t, done.err, "the move is over")
	}
}

func TestUpdate_WhenNoWorkerAnswers_SaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeTemporal().running(runningStatus())
		fake.unanswered = true

		for _, command := range []string{"pause", "abort"} {
			done := typeIn(t.Context(), fake, command, "root:consumer")
			require.Equal(t, exitError, done.code)
			require.Contains(t, done.err, "no worker answered within 10s")
			require.Contains(t, done.err, "may still obey")
			require.Contains(t, done.err, "status command")
		}
	})
}

func TestAbort_WithoutWait_ReturnsWhileItIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeTemporal().running(runningStatus())

		done := typeIn(t.Context(), fake, "abort", "root:consumer", "--reason", "wrong shard")

		require.Equal(t, exitDone, done.code, done.err)
		require.Contains(t, done.out, "is being undone")
		require.Equal(t, []any{workflows.AbortRequest{Reason: "wrong shard"}}, fake.updated.Args)
	})
}

func TestAbort_WithWait_ExitsAsTheMoveDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeTemporal().running(runningStatus())
		time.AfterFunc(5*time.Second, func() {
			fake.over(workflows.Result{}, temporal.NewNonRetryableApplicationError("wrong shard", activities.Aborted, nil,
				workflows.Result{LogicalCluster: "256hdo017n2m0br9", Phase: workflows.Failed, Undone: []string{"lifted the fence"}}))
		})

		done := typeIn(t.Context(), fake, "abort", "root:consumer", "--wait", "-o", "json")

		require.Equal(t, exitUndone, done.code)
		require.Equal(t, []string{"lifted the fence"}, readJSON[workflows.Result](t, done.out).Undone)
	})
}

func TestAbort_WhenInterrupted_Exits130(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()

	require.Equal(t, exitInterrupted, typeIn(ctx, newFakeTemporal().running(runningStatus()), "abort", "root:consumer").code)
}

func TestLook_ReadsTheCopysHeartbeat(t *testing.T) {
	heartbeat, err := converter.GetDefaultDataConverter().ToPayloads(
		activities.CopyProgress{Revision: 7, Written: activities.Written{Last: ref("core/secrets", "default/a"), Entries: 3, Bytes: 5}})
	require.NoError(t, err)
	fake := newFakeTemporal().running(runningStatus())
	fake.pending = []*workflowpb.PendingActivityInfo{
		{ActivityType: &activitypb.ActivityType{Name: "WakeShard"}},
		{ActivityType: &activitypb.ActivityType{Name: "CopyEntries"}, HeartbeatDetails: heartbeat},
	}

	now, err := lookAt(t.Context(), fake, consumerID, consumerRun)

	require.NoError(t, err)
	require.EqualValues(t, 3, now.Copied.Entries)
	require.Empty(t, now.Retrying)
}

func TestVersion_NeedsNobody(t *testing.T) {
	done := typeIn(t.Context(), nil, "version", "-o", "json")

	require.Equal(t, exitDone, done.code)
	require.Equal(t, version, readJSON[map[string]string](t, done.out)["version"])
}

func TestCountText_GroupsDigits(t *testing.T) {
	for count, text := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234", -123: "-123"} {
		require.Equal(t, text, countText(count))
	}
}

func TestBytesText_ChoosesAUnit(t *testing.T) {
	for bytes, text := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 5 << 30: "5.0 GiB", 3 << 50: "3072.0 TiB"} {
		require.Equal(t, text, bytesText(bytes))
	}
}
