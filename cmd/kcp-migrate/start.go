package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// StartOptions are what the start command takes.
type StartOptions struct {
	clientOptions
	output     outputFormat
	input      workflows.Input
	workflowID string
	wait       bool
	timeout    time.Duration
}

// NewCmdStart makes the start command.
func NewCmdStart(term terminal) *cobra.Command {
	o := &StartOptions{clientOptions: clientOptions{terminal: term}}
	cmd := &cobra.Command{
		Use:   "start LOGICAL-CLUSTER DESTINATION-SHARD",
		Short: "Move a logical cluster to another shard",
		Long: `Move a logical cluster, given by path or name, to another shard. The move goes on whatever becomes of this
command: with --wait it only looks on, and Ctrl-C ends the looking.`,
		Example: fmt.Sprintf(`  %[1]s start root:org:ws shard-1 --wait
  %[1]s start root:org:ws shard-1 --require-approval --max-time-away 10s
  %[1]s start root:org:ws shard-1 --wait --timeout 5m -o json`, term.program),
		Args: usageArgs(cobra.ExactArgs(2)),
		RunE: begin(o),
	}
	flags := cmd.Flags()
	o.addFlags(flags)
	o.output.addFlag(flags)
	addInputFlags(flags, &o.input)
	flags.BoolVar(&o.input.RequireApproval, "require-approval", false, "wait for the approve command before the tenant is fenced")
	flags.StringVar(&o.workflowID, "workflow-id", "", "Temporal workflow `ID` (default migrate-<logical cluster>)")
	flags.BoolVarP(&o.wait, "wait", "w", false, "look on until the move is over, and print its result")
	flags.DurationVar(&o.timeout, "timeout", 0, "stop looking on after so long; the move goes on (0 means never)")
	return cmd
}

// Complete takes the two arguments.
func (o *StartOptions) Complete(args []string) error {
	o.input.LogicalCluster, o.input.DestinationShard = args[0], args[1]
	o.workflowID = cmp.Or(o.workflowID, workflows.WorkflowID(o.input.LogicalCluster))
	return nil
}

// Validate refuses what the workflow would refuse at once.
func (o *StartOptions) Validate() error {
	if o.timeout != 0 && !o.wait {
		return errors.New("--timeout is of use with --wait only")
	}
	return o.input.Validate()
}

// started names the workflow that start left running.
type started struct {
	WorkflowID string `json:"workflowID"`
	RunID      string `json:"runID"`
}

// Run starts the move and, if asked, looks on.
func (o *StartOptions) Run(ctx context.Context) error {
	return o.withTemporal(ctx, func(temporal client.Client) error {
		move, err := launch(ctx, o.terminal, temporal, launchingMove(o.workflowID, o.input))
		if err != nil {
			return err
		}
		if o.wait {
			return follow(ctx, o.terminal, temporal, move, o.output, o.timeout)
		}
		return o.output.print(o.out, started{move.GetID(), move.GetRunID()}, []string{move.GetID()}, func(out *tabwriter.Writer) {
			fmt.Fprintf(out, "Started %s. Follow it with: %s watch %s\n", move.GetID(), o.program, move.GetID())
		})
	})
}
