package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
)

// UpdateOptions are what the pause, resume and approve commands take.
type UpdateOptions struct {
	clientOptions
	name   string
	update string
	// done says what has become of the move.
	done string
}

// newCmdUpdate makes a command that sends one Update without an argument.
func newCmdUpdate(term terminal, update, done, short, long string) *cobra.Command {
	o := &UpdateOptions{clientOptions: clientOptions{terminal: term}, update: update, done: done}
	cmd := &cobra.Command{
		Use:     update + " WORKFLOW-ID|LOGICAL-CLUSTER",
		Short:   short,
		Long:    long,
		Example: fmt.Sprintf("  %[1]s %[2]s root:org:ws\n  %[1]s %[2]s migrate-root:org:ws", term.program, update),
		Args:    usageArgs(cobra.ExactArgs(1)),
		RunE:    run(o),
	}
	o.addFlags(cmd.Flags())
	return cmd
}

// Complete takes the argument.
func (o *UpdateOptions) Complete(args []string) error {
	o.name = args[0]
	return nil
}

// Validate has nothing to refuse.
func (o *UpdateOptions) Validate() error { return nil }

// Run sends the Update and waits for its answer.
func (o *UpdateOptions) Run(ctx context.Context) error {
	return o.withTemporal(ctx, func(temporal client.Client) error {
		info, err := findMove(ctx, temporal, o.name)
		if err != nil {
			return err
		}
		waiting, stop := context.WithTimeout(ctx, answerPatience)
		defer stop()
		workflowID := info.GetExecution().GetWorkflowId()
		handle, err := sendUpdate(waiting, temporal, workflowID, info.GetExecution().GetRunId(), o.update)
		if err == nil {
			err = readUpdate(waiting, handle, o.update, workflowID)
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(o.out, "%s %s\n", workflowID, o.done)
		return nil
	})
}

// sendUpdate returns once the move has accepted or rejected it: which, only the handle tells.
func sendUpdate(ctx context.Context, temporal client.Client, workflowID, runID, update string, args ...any) (client.WorkflowUpdateHandle, error) {
	handle, err := temporal.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: workflowID, RunID: runID, UpdateName: update, Args: args,
		WaitForStage: client.WorkflowUpdateStageAccepted,
	})
	return handle, updateFailure(ctx, err, update, workflowID)
}

// readUpdate waits until the move has done what it was asked.
func readUpdate(ctx context.Context, handle client.WorkflowUpdateHandle, update, workflowID string) error {
	return updateFailure(ctx, handle.Get(ctx, nil), update, workflowID)
}

// updateFailure tells a move that says no from one that cannot be asked.
func updateFailure(ctx context.Context, err error, update, workflowID string) error {
	var rejection *temporal.ApplicationError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &rejection):
		return refusedError{fmt.Errorf("%s %s: %s", update, workflowID, rejection.Message())}
	case errors.As(err, new(*serviceerror.NotFound)):
		return refusedError{fmt.Errorf("%s %s: the move is over", update, workflowID)}
	case outOfTime(ctx, err):
		return unansweredError{update: update, workflowID: workflowID}
	default:
		return fmt.Errorf("%s %s: %w", update, workflowID, err)
	}
}
