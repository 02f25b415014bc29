package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

func TestExitCode_OfAMoveThatFailed(t *testing.T) {
	unfenced := workflows.Result{LogicalCluster: "a"}
	released := workflows.Result{LogicalCluster: "a", Undone: []string{"released the claim"}}
	undone := workflows.Result{LogicalCluster: "a", Undone: []string{"lifted the fence"}, TimeAway: 1}
	left := workflows.Result{LogicalCluster: "a", Undone: []string{"sealed"}, NotUndone: []string{"lift the fence"}, TimeAway: 1}
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
		"refused at the second claim":   {refuse(activities.AlreadyMigrating, released), exitRefused},
		"shard worker missing":          {refuse(activities.ShardWorkerMissing, unfenced), exitRefused},
		"unreachable in preflight":      {refuse(activities.Unreachable, unfenced), exitRefused},
		"estimate too long":             {refuse(activities.AwayTooLong, unfenced), exitRefused},
		"away too long":                 {refuse(activities.AwayTooLong, undone), exitUndone},
		"no space in preflight":         {refuse(activities.NoSpace, unfenced), exitRefused},
		"no space under the claims":     {refuse(activities.NoSpace, released), exitRefused},
		"no space in the copy":          {refuse(activities.NoSpace, undone), exitUndone},
		"watches not cut":               {refuse(activities.WatchesNotCut, undone), exitUndone},
		"digest mismatch":               {refuse(activities.DigestMismatch, undone), exitUndone},
		"aborted":                       {refuse(activities.Aborted, undone), exitUndone},
		"aborted at the gate":           {refuse(activities.Aborted, released), exitUndone},
		"aborted before anything":       {refuse(activities.Aborted, unfenced), exitUndone},
		"aborted, not all undone":       {refuse(activities.Aborted, left), exitError},
		"cancelled":                     {temporal.NewCanceledError(undone), exitUndone},
		"cancelled before anything":     {temporal.NewCanceledError(), exitUndone},
		"cancelled, not all undone":     {temporal.NewCanceledError(left), exitError},
		"terminated":                    {&temporal.TerminatedError{}, exitError},
		"a bug":                         {temporal.NewApplicationError("oops", "PanicError"), exitError},
		"a bug while fenced":            {temporal.NewApplicationErrorWithOptions("oops", "", temporal.ApplicationErrorOptions{Details: []any{undone}}), exitUndone},
		"a bug under the claims":        {temporal.NewApplicationErrorWithOptions("oops", "", temporal.ApplicationErrorOptions{Details: []any{released}}), exitError},
		"the connection to Temporal":    {errors.New("connection reset"), exitError},
		"a later failure, nothing done": {refuse(activities.FenceLost, unfenced), exitError},
	} {
		t.Run(name, func(t *testing.T) {
			failure := newMoveError(fmt.Errorf("workflow execution error: %w", c.failure))
			require.Equal(t, c.code, exitCode(t.Context(), failure))
		})
	}
}

func TestExitCode_OfEveryErrorType_IsDecided(t *testing.T) {
	for _, errorType := range []string{
		activities.InvalidInput, activities.WorkflowTimeoutSet, activities.LogicalClusterNotFound, activities.ShardNotFound,
		activities.ShardNotReady, activities.ShardWorkerMissing, activities.SameShard, activities.SystemCluster, activities.NotReady,
		activities.BeingDeleted, activities.AlreadyMigrating, activities.DestinationNotEmpty, activities.DestinationOlder,
		activities.BoundResourceMissing, activities.TokenLoss, activities.KcpTooOld, activities.WorkerTooOld, activities.EncryptedAtRest,
		activities.Unreachable, activities.Forbidden, activities.NoSpace, activities.AwayTooLong,
		activities.NothingToRecover, activities.ClaimChanged, activities.WorkflowUnknown, activities.AlreadyCommitted,
		activities.TwoCopies, activities.DestinationAnswers, activities.WrongEtcd,
	} {
		require.Contains(t, []int{exitUsage, exitRefused}, exitCodeOf(errorType, workflows.Result{}), errorType)
	}
}

func TestNewMoveError_BringsTheResult(t *testing.T) {
	failure := newMoveError(temporal.NewNonRetryableApplicationError("wrong shard", activities.Aborted, nil,
		workflows.Result{LogicalCluster: "a", Phase: workflows.Failed, Undone: []string{"lifted the fence"}}))

	require.Equal(t, workflows.Failed, failure.result.Phase)
	require.Equal(t, []string{"lifted the fence"}, failure.result.Undone)
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

func TestExitCode_WhenTemporalIsUnreachable_IsARefusalOnlyOfWhatBegins(t *testing.T) {
	for command, code := range map[string]int{
		"plan": exitRefused, "start": exitRefused,
		"status": exitError, "watch": exitError, "list": exitError, "pause": exitError, "abort": exitError,
	} {
		arguments := map[string][]string{"plan": {"root:consumer", "shard-1"}, "start": {"root:consumer", "shard-1"}, "list": nil}
		words, known := arguments[command]
		if !known {
			words = []string{"root:consumer"}
		}
		done := typeInWhere(t.Context(), nil, func() (client.Client, error) {
			return nil, activities.Refuse(activities.Unreachable, "connect to Temporal: gone")
		}, append([]string{command}, words...)...)
		require.Equal(t, outcome{code, "", "kcp-migrate: Unreachable: connect to Temporal: gone\n"}, done, command)
	}
}
