package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/temporal"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

const (
	exitDone         = 0
	exitError        = 1
	exitUsage        = 2
	exitRefused      = 3
	exitUndone       = 4
	exitStillRunning = 5
	exitInterrupted  = 130
)

// usageError is what the person who typed the command can mend.
type usageError struct {
	error
	command string
}

func (e usageError) Unwrap() error { return e.error }

func asUsage(cmd *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	return usageError{error: err, command: cmd.CommandPath()}
}

// stillRunningError ends a wait that outlasted --timeout.
type stillRunningError struct{ workflowID string }

func (e stillRunningError) Error() string {
	return fmt.Sprintf("wait for %s: it is still running", e.workflowID)
}

// unansweredError ends the wait for the answer to an update, which Temporal keeps for a worker to come.
type unansweredError struct{ update, workflowID string }

func (e unansweredError) Error() string {
	return fmt.Sprintf("%s %s: no answer within %s; it may still take effect", e.update, e.workflowID, answerPatience)
}

// refusedError is a request that a running move, or Temporal, turned down.
type refusedError struct{ error }

func (e refusedError) Unwrap() error { return e.error }

// moveError is a move that did not reach its end.
type moveError struct {
	// errorType is one of activities', one of the three below, or empty where Temporal itself could not be asked.
	errorType string
	message   string
	// result says what was taken back; it is empty where the failure carries none.
	result workflows.Result
}

// Ends of a workflow that are no failure of its own making.
const (
	canceled   = "Canceled"
	terminated = "Terminated"
	timedOut   = "TimedOut"
)

func (e *moveError) Error() string {
	if e.errorType == "" {
		return e.message
	}
	return e.errorType + ": " + e.message
}

// newMoveError reads what a failed workflow says, its Result included, where it carries one.
func newMoveError(err error) *moveError {
	failure := &moveError{message: err.Error()}
	var application *temporal.ApplicationError
	var cancel *temporal.CanceledError
	var details interface {
		HasDetails() bool
		Details(...any) error
	}
	switch {
	case errors.As(err, &application):
		failure.errorType, failure.message, details = application.Type(), application.Message(), application
	case errors.As(err, &cancel):
		failure.errorType, failure.message, details = canceled, "the move was cancelled", cancel
	case errors.As(err, new(*temporal.TerminatedError)):
		failure.errorType, failure.message = terminated, "the move was terminated, which leaves everything as it was at that moment"
	case errors.As(err, new(*temporal.TimeoutError)):
		failure.errorType, failure.message = timedOut, "Temporal timed the move out, which leaves everything as it was at that moment"
	}
	if details != nil && details.HasDetails() {
		if err := details.Details(&failure.result); err != nil {
			failure.message = fmt.Sprintf("%s (its result cannot be read: %v)", failure.message, err)
		}
	}
	return failure
}

// exitCode is the one place where errors become exit codes.
func exitCode(ctx context.Context, err error) int {
	var usage usageError
	var move *moveError
	var application *temporal.ApplicationError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, new(refusedError)):
		return exitRefused
	case errors.As(err, new(stillRunningError)):
		return exitStillRunning
	case errors.As(err, &move):
		return exitCodeOf(move.errorType, move.result)
	case ctx.Err() != nil:
		return exitInterrupted
	case errors.As(err, &application) && application.Type() == activities.Unreachable:
		return exitError // begin makes it a refusal where nothing had begun
	case errors.As(err, &application):
		return exitCodeOf(application.Type(), workflows.Result{})
	default:
		return exitError
	}
}

// exitCodeOf tells a refusal, which the tenant has not noticed, from a move that was taken back after it had.
func exitCodeOf(errorType string, result workflows.Result) int {
	switch {
	case len(result.NotUndone) > 0:
		return exitError
	case result.TimeAway > 0, errorType == activities.Aborted, errorType == canceled:
		return exitUndone
	}
	switch errorType {
	case activities.InvalidInput, activities.WorkflowTimeoutSet:
		return exitUsage
	case activities.LogicalClusterNotFound, activities.ShardNotFound, activities.ShardNotReady, activities.SameShard,
		activities.SystemCluster, activities.AlreadyMigrating, activities.DestinationNotEmpty, activities.DestinationOlder,
		activities.BoundResourceMissing, activities.TokenLoss, activities.KcpTooOld, activities.WorkerTooOld, activities.ShardWorkerMissing,
		activities.NotReady, activities.BeingDeleted, activities.EncryptedAtRest, activities.Unreachable, activities.Forbidden,
		activities.NoSpace, activities.AwayTooLong, activities.NothingToRecover, activities.ClaimChanged, activities.WorkflowUnknown,
		activities.AlreadyCommitted, activities.TwoCopies, activities.DestinationAnswers, activities.WrongEtcd:
		return exitRefused
	default:
		return exitError
	}
}

// printError says what went wrong and, where it is known, what to do.
func printError(term terminal, err error) {
	fmt.Fprintf(term.err, "%s: %s\n", term.program, message(err))
	if hint := hint(term, err); hint != "" {
		fmt.Fprintln(term.err, hint)
	}
}

// message leaves out of a typed error what Temporal adds for machines.
func message(err error) string {
	var application *temporal.ApplicationError
	if !errors.As(err, &application) {
		return err.Error()
	}
	return strings.Replace(err.Error(), application.Error(), application.Type()+": "+application.Message(), 1)
}

func hint(term terminal, err error) string {
	var usage usageError
	var running stillRunningError
	var unanswered unansweredError
	var move *moveError
	switch {
	case errors.As(err, &usage):
		return fmt.Sprintf("See %q.", usage.command+" --help")
	case errors.As(err, &running):
		return fmt.Sprintf("Come back with: %s watch %s", term.program, running.workflowID)
	case errors.As(err, &unanswered):
		return fmt.Sprintf("See: %s status %s", term.program, unanswered.workflowID)
	case errors.As(err, &move) && (move.errorType == terminated || move.errorType == timedOut):
		return fmt.Sprintf("The tenant may still be fenced and claimed. See where it stands, and what can be done, with: %s recover LOGICAL-CLUSTER", term.program)
	case errors.As(err, &move) && len(move.result.NotUndone) > 0:
		return "Not everything could be undone: the result says what is left, and docs/operations.md what to do about it."
	case errors.As(err, &move) && exitCodeOf(move.errorType, move.result) == exitUndone:
		return "Everything was undone: the tenant is on its origin shard, and the move can be started again."
	default:
		return ""
	}
}
