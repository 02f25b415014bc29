package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// promptAnswer is how long a refusal may take: a move that does not refuse an abort answers when it is undone.
const promptAnswer = time.Second

// AbortOptions are what the abort command takes.
type AbortOptions struct {
	clientOptions
	output outputFormat
	name   string
	reason string
	wait   bool
}

// NewCmdAbort makes the abort command.
func NewCmdAbort(term terminal) *cobra.Command {
	o := &AbortOptions{clientOptions: clientOptions{terminal: term}}
	cmd := &cobra.Command{
		Use:   "abort WORKFLOW-ID|LOGICAL-CLUSTER",
		Short: "Take a move back, until it is committed",
		Long: `Take a move back: the tenant is let in again on its origin shard, and the destination keeps nothing of it.
Once the move is committed an abort is refused; it only goes forward then. With --wait the exit code is the move's:
4 when it was undone.`,
		Example: fmt.Sprintf(`  %[1]s abort root:org:ws --reason "wrong shard"
  %[1]s abort migrate-root:org:ws --wait`, term.program),
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: run(o),
	}
	o.addFlags(cmd.Flags())
	o.output.addFlag(cmd.Flags())
	cmd.Flags().StringVar(&o.reason, "reason", "", "why, for the move's result")
	cmd.Flags().BoolVarP(&o.wait, "wait", "w", false, "look on until everything is undone, and print the result")
	return cmd
}

// Complete takes the argument.
func (o *AbortOptions) Complete(args []string) error {
	o.name = args[0]
	return nil
}

// Validate has nothing to refuse.
func (o *AbortOptions) Validate() error { return nil }

// Run asks the move to undo itself.
func (o *AbortOptions) Run(ctx context.Context) error {
	return o.withTemporal(ctx, func(temporal client.Client) error {
		info, err := findMove(ctx, temporal, o.name)
		if err != nil {
			return err
		}
		workflowID, runID := info.GetExecution().GetWorkflowId(), info.GetExecution().GetRunId()
		if err := o.ask(ctx, temporal, workflowID, runID); err != nil {
			return err
		}
		if o.wait {
			return follow(ctx, o.terminal, temporal, temporal.GetWorkflow(ctx, workflowID, runID), o.output, 0)
		}
		fmt.Fprintf(o.out, "%s is being undone. Follow it with: %s watch %s\n", workflowID, o.program, workflowID)
		return nil
	})
}

// ask returns once the move has refused the abort or set about it.
func (o *AbortOptions) ask(ctx context.Context, temporal client.Client, workflowID, runID string) error {
	asking, stop := context.WithTimeout(ctx, answerPatience)
	defer stop()
	handle, err := sendUpdate(asking, temporal, workflowID, runID, workflows.AbortUpdate, workflows.AbortRequest{Reason: o.reason})
	if err != nil {
		return err
	}
	prompt, stop := context.WithTimeout(ctx, promptAnswer)
	defer stop()
	err = handle.Get(prompt, nil)
	if outOfTime(prompt, err) {
		return nil
	}
	return updateFailure(prompt, err, workflows.AbortUpdate, workflowID)
}
