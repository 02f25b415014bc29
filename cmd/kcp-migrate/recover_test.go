package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// someStanding is a move whose workflow was terminated in the copy.
func someStanding(state activities.RunState) *workflows.Standing {
	claim := func(token activities.Token) *activities.Claim {
		return &activities.Claim{Token: token, ClaimInfo: activities.ClaimInfo{
			WorkflowID: consumerID, RunID: consumerRun, Path: "root:consumer", OriginShard: "root", DestinationShard: "shard-1", ClaimedAt: startedAt,
		}}
	}
	return &workflows.Standing{
		Origin: activities.Standing{
			Shard: "root", Claim: claim("run-1/2"), HasLogicalCluster: true, LogicalClusterPhase: "Inactive", Inactive: true, Stamp: "run-1/2", Keys: 5_011,
		},
		Destination: activities.Standing{
			Shard: "shard-1", Claim: claim("run-1/1"), HasLogicalCluster: true, LogicalClusterPhase: "Inactive", Inactive: true, Stamp: "run-1/1", Keys: activities.KeysCounted,
		},
		Route: "root", Workflows: []workflows.WorkflowStanding{{WorkflowID: consumerID, RunID: consumerRun, RunState: state}},
		Advice: "take it back",
	}
}

func TestRecover_WithoutAnAction_PrintsWhereTheMoveStands(t *testing.T) {
	standing := someStanding(activities.RunState{Name: "Terminated"})
	for _, format := range []string{"table", "json"} {
		fake := newFakeTemporal().over(workflows.Result{Standing: standing}, nil)
		done := typeIn(t.Context(), fake, "recover", "root:consumer", "-o", format)
		require.Equal(t, exitDone, done.code, done.err)
		require.Equal(t, workflows.RecoverInput{LogicalCluster: "root:consumer"}, fake.recovery)
		require.Regexp(t, "^plan-recover-root:consumer-", fake.started.ID, "the list command leaves it out")
		requireGolden(t, "recover."+format+".golden", done.out)
	}
}

func TestRecover_WhileTheWorkflowRuns_SaysSoAndIsRefused(t *testing.T) {
	fake := newFakeTemporal().over(workflows.Result{Standing: someStanding(activities.RunState{Name: "Running", Running: true})}, nil)
	done := typeIn(t.Context(), fake, "recover", "root:consumer")
	require.Equal(t, exitRefused, done.code)
	require.Contains(t, done.out, "Running")
	require.Contains(t, done.err, "there is nothing to recover")
}

func TestRecover_WithAnAction_StartsARecoveryAndLooksOn(t *testing.T) {
	for flag, action := range map[string]workflows.Recovery{"--undo": workflows.TakeBack, "--resume": workflows.Resume} {
		fake := newFakeTemporal().over(workflows.Result{LogicalCluster: "256hdo017n2m0br9", Phase: workflows.Undone}, nil)
		done := typeIn(t.Context(), fake, "recover", "root:consumer", flag, "--workflow-is-lost", "--accept-token-loss", "--wait")
		require.Equal(t, exitDone, done.code, done.err)
		require.Contains(t, done.out, "Undone")
		require.Equal(t, "recover-root:consumer", fake.started.ID)
		require.Equal(t, workflows.RecoverInput{
			LogicalCluster: "root:consumer", Action: action, WorkflowIsLost: true, Move: workflows.Input{AcceptTokenLoss: true},
		}, fake.recovery)
	}
}

func TestRecover_ThatFails_GivesItsExitCode(t *testing.T) {
	for errorType, code := range map[string]int{
		activities.NothingToRecover: exitRefused, activities.AlreadyCommitted: exitRefused, activities.UndoIncomplete: exitError,
	} {
		failure := temporal.NewNonRetryableApplicationError("no", errorType, nil, workflows.Result{LogicalCluster: "a"})
		fake := newFakeTemporal().over(workflows.Result{}, failure)
		require.Equal(t, code, typeIn(t.Context(), fake, "recover", "root:consumer", "--undo", "--wait").code, errorType)
	}
}

func TestRecover_ContradictoryFlags_AreRefusedWithoutAskingAnyone(t *testing.T) {
	for says, flags := range map[string][]string{
		"give one of them":               {"--undo", "--resume"},
		"--wait is of use":               {"--wait"},
		"--timeout is of use":            {"--undo", "--timeout", "1s"},
		"two shards":                     {"--undo", "--origin-shard", "root"},
		"cannot be resumed, only undone": {"--resume", "--destination-is-lost"},
	} {
		done := typeIn(t.Context(), nil, append([]string{"recover", "root:consumer"}, flags...)...)
		require.Equal(t, exitUsage, done.code, done.err)
		require.Contains(t, done.err, says)
	}
}
