package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

func TestExitCode_OfAMoveThatFailed(t *testing.T) {
	unfenced := workflows.Result{LogicalCluster: "a"}
	undone := workflows.Result{LogicalCluster: "a", Undone: []string{"lifted the fence"}}
	refuse := func(errorType string, result workflows.Result) error {
		return temporal.NewNonRetryableApplicationError("no", errorType, nil, result)
	}
	for name, c := range map[string]struct {
		failure error
		code    int
	}{
		"invalid input":                 {refuse(activities.InvalidInput, unfenced), exitUsage},
		"workflow timeout":              {refuse(activities.WorkflowTimeoutSet, unfenced), exitUsage},
		"refused":                       {refuse(activities.SameShard, unfenced), exitRefused},
		"refused at the second claim":   {refuse(activities.AlreadyMigrating, undone), exitRefused},
		"shard worker missing":          {refuse(activities.ShardWorkerMissing, unfenced), exitRefused},
		"estimate too long":             {refuse(activities.AwayTooLong, unfenced), exitRefused},
		"away too long":                 {refuse(activities.AwayTooLong, undone), exitUndone},
		"no space in preflight":         {refuse(activities.NoSpace, unfenced), exitRefused},
		"no space in the copy":          {refuse(activities.NoSpace, undone), exitUndone},
		"watches not cut":               {refuse(activities.WatchesNotCut, undone), exitUndone},
		"digest mismatch":               {refuse(activities.DigestMismatch, undone), exitUndone},
		"aborted":                       {refuse(activities.Aborted, undone), exitUndone},
		"aborted before anything":       {refuse(activities.Aborted, unfenced), exitUndone},
		"cancelled":                     {temporal.NewCanceledError(undone), exitUndone},
		"cancelled before anything":     {temporal.NewCanceledError(), exitUndone},
		"terminated":                    {&temporal.TerminatedError{}, exitError},
		"a bug":                         {temporal.NewApplicationError("oops", "PanicError"), exitError},
		"the connection to Temporal":    {errors.New("connection reset"), exitError},
		"a later failure, nothing done": {refuse(activities.FenceLost, unfenced), exitError},
	} {
		t.Run(name, func(t *testing.T) {
			_, failure := newMoveError(fmt.Errorf("workflow execution error: %w", c.failure))
			require.Equal(t, c.code, exitCode(t.Context(), failure))
		})
	}
}

func TestExitCode_OfEveryErrorType_IsDecided(t *testing.T) {
	for _, errorType := range []string{
		activities.InvalidInput, activities.WorkflowTimeoutSet, activities.LogicalClusterNotFound, activities.ShardNotFound,
		activities.ShardNotReady, activities.ShardWorkerMissing, activities.SameShard, activities.SystemCluster, activities.NotReady,
		activities.BeingDeleted, activities.AlreadyMigrating, activities.DestinationNotEmpty, activities.DestinationOlder,
		activities.BoundResourceMissing, activities.TokenLoss, activities.KcpTooOld, activities.EncryptedAtRest,
		activities.Unreachable, activities.Forbidden, activities.NoSpace, activities.AwayTooLong,
	} {
		require.Contains(t, []int{exitUsage, exitRefused}, exitCodeOf(errorType, false), errorType)
	}
}

func TestNewMoveError_BringsTheResult(t *testing.T) {
	result, failure := newMoveError(temporal.NewNonRetryableApplicationError("wrong shard", activities.Aborted, nil,
		workflows.Result{LogicalCluster: "a", Phase: workflows.Failed, Undone: []string{"lifted the fence"}}))

	require.Equal(t, workflows.Failed, result.Phase)
	require.True(t, failure.undone)
	require.EqualError(t, failure, "Aborted: wrong shard")
}

func TestExitCode_WhenInterrupted_Is130(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	require.Equal(t, exitInterrupted, exitCode(ctx, ctx.Err()))
	require.Equal(t, exitDone, exitCode(ctx, nil), "a worker that was told to stop and did")
}

func TestMessage_LeavesOutWhatIsForMachines(t *testing.T) {
	err := fmt.Errorf("look around: %w", activities.Refuse(activities.Unreachable, "reach etcd: gone"))

	require.Equal(t, "look around: Unreachable: reach etcd: gone", message(err))
}
