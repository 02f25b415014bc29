package main

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
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
		Leftovers: []string{"/registry/core/secrets/256hdo017n2m0br9/default/old"}, NotMoved: []string{"child"},
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
	for _, hasty := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fake := newFakeTemporal()
			fake.hasty = hasty

			done := typeIn(t.Context(), fake, "plan", "root:consumer", "root")

			require.Equal(t, exitStillRunning, done.code, done.err)
			require.Contains(t, done.err, "Come back with: kcp-migrate watch plan-root:consumer-")
		})
	}
}

func TestPlan_WhenNoWorkerTakesItInTime_Exits5(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeTemporal()
		fake.pickedUp = false

		require.Equal(t, exitStillRunning, typeIn(t.Context(), fake, "plan", "root:consumer", "root", "--timeout", "1s").code)
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
		ActivityType: &commonpb.ActivityType{Name: "CopyEntries"}, Attempt: 3, LastFailure: &failurepb.Failure{Message: "connection reset"},
	}}

	done := typeIn(t.Context(), fake, "status", "root:consumer", "-o", "json")

	require.Equal(t, exitDone, done.code, done.err)
	found := readJSON[movement](t, done.out)
	require.Equal(t, consumerID, found.WorkflowID)
	require.Equal(t, "Running", found.State)
	require.Equal(t, runningStatus(), found.Status)
	require.Equal(t, []string{"CopyEntries, attempt 3 after: connection reset"}, found.WaitsFor)
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
	detail.Aborting = true
	detail.WaitsFor = []string{"AwaitServing: shard-1-a: 504"}
	detail.Copied = &activities.CopyProgress{Written: activities.Written{Entries: 1_200, Bytes: 4 << 20}}

	detail.print(table, "kcp-migrate")

	require.NoError(t, table.Flush())
	requireGolden(t, "status.table.golden", out.String())
}

func TestStatus_OfAMovePausedAtTheGate_NamesAllWaysOn(t *testing.T) {
	fake := newFakeTemporal().running(workflows.Status{
		Result: workflows.Result{LogicalCluster: "256hdo017n2m0br9", Path: "root:consumer", Phase: workflows.Preparing},
		Step:   "gate", StartedAt: startedAt, Paused: true, WaitsForApproval: true,
		Advice: "`kcp-migrate resume migrate-root:consumer`, or `kcp-migrate abort migrate-root:consumer`",
	})

	done := typeIn(t.Context(), fake, "status", "root:consumer")

	require.Equal(t, exitDone, done.code, done.err)
	requireGolden(t, "status.gate.golden", done.out)
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
			require.Equal(t, outcome{exitError, "", "kcp-migrate: " + command + " migrate-root:consumer: no answer within 10s; it may still take effect\n" +
				"See: kcp-migrate status migrate-root:consumer\n"}, done)
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

func TestLook_ReadsHeartbeats(t *testing.T) {
	running := func(name string, details any) *workflowpb.PendingActivityInfo {
		heartbeat, err := converter.GetDefaultDataConverter().ToPayloads(details)
		require.NoError(t, err)
		return &workflowpb.PendingActivityInfo{ActivityType: &commonpb.ActivityType{Name: name}, HeartbeatDetails: heartbeat}
	}
	fake := newFakeTemporal().running(runningStatus())
	fake.pending = []*workflowpb.PendingActivityInfo{
		{ActivityType: &commonpb.ActivityType{Name: "InspectOrigin"}},
		running("WakeShard", nil),
		running("AwaitServing", "shard-1-a: 504"),
		running("CopyEntries", activities.CopyProgress{Revision: 7, Slowed: "etcd of shard shard-1: others waited", Written: activities.Written{Last: ref("core/secrets", "default/a"), Entries: 3, Bytes: 5}}),
	}

	now, err := lookAt(t.Context(), fake, consumerID, consumerRun)

	require.NoError(t, err)
	require.EqualValues(t, 3, now.Copied.Entries)
	require.Equal(t, []string{"AwaitServing: shard-1-a: 504", "CopyEntries: etcd of shard shard-1: others waited"}, now.WaitsFor)
}

func TestStatus_NamesTheCommandsThatTheMoveWouldObey(t *testing.T) {
	for name, c := range map[string]struct {
		status workflows.Status
		orders []string
	}{
		"preparing":          {workflows.Status{}, []string{"pause", "abort"}},
		"at the gate":        {workflows.Status{WaitsForApproval: true}, []string{"approve", "pause", "abort"}},
		"paused at the gate": {workflows.Status{WaitsForApproval: true, Paused: true}, []string{"approve", "resume", "abort"}},
		"fenced":             {workflows.Status{Fenced: true}, []string{"abort"}},
		"aborting":           {workflows.Status{Aborting: true}, nil},
		"being undone":       {workflows.Status{Step: "undo: lift the origin's fence", Fenced: true}, nil},
		"past the commit":    {workflows.Status{Committed: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			detail := movement{State: "Running", Status: c.status}
			require.Equal(t, c.orders, detail.orders())
			detail.State = "Completed"
			require.Empty(t, detail.orders())
		})
	}
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

func TestHelp_OfNoCommand_IsUsage(t *testing.T) {
	done := typeIn(t.Context(), nil, "help", "nonsense")

	require.Equal(t, outcome{exitUsage, "", "kcp-migrate: explain \"nonsense\": there is no such command\nSee \"kcp-migrate --help\".\n"}, done)
}

func TestHelp_OfACommand_ExplainsIt(t *testing.T) {
	done := typeIn(t.Context(), nil, "help", "start")

	require.Equal(t, exitDone, done.code)
	require.Contains(t, done.out, "--require-approval")
	require.Equal(t, typeIn(t.Context(), nil, "start", "--help"), done)
}

func TestCompletion_KnowsItsShells(t *testing.T) {
	for _, shell := range []string{"bash", "fish", "powershell", "zsh"} {
		done := typeIn(t.Context(), nil, "completion", shell)
		require.Equal(t, exitDone, done.code, done.err)
		require.Contains(t, done.out, "kcp-migrate")
	}
}
