package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"
)

// WatchOptions are what the watch command takes.
type WatchOptions struct {
	clientOptions
	output  outputFormat
	name    string
	timeout time.Duration
}

// NewCmdWatch makes the watch command.
func NewCmdWatch(term terminal) *cobra.Command {
	o := &WatchOptions{clientOptions: clientOptions{terminal: term}}
	cmd := &cobra.Command{
		Use:   "watch WORKFLOW-ID|LOGICAL-CLUSTER",
		Short: "Look on at a move until it is over, and print its result",
		Long: `Look on at a move until it is over: progress goes to stderr, the result to stdout, and the exit code is the move's.
Ctrl-C ends the looking, not the move.`,
		Example: fmt.Sprintf(`  %[1]s watch root:org:ws
  %[1]s watch migrate-root:org:ws --timeout 1m -o json`, term.program),
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: run(o),
	}
	o.addFlags(cmd.Flags())
	o.output.addFlag(cmd.Flags())
	cmd.Flags().DurationVar(&o.timeout, "timeout", 0, "stop looking on after so long (0 means never)")
	return cmd
}

// Complete takes the argument.
func (o *WatchOptions) Complete(args []string) error {
	o.name = args[0]
	return nil
}

// Validate has nothing to refuse.
func (o *WatchOptions) Validate() error { return nil }

// Run finds the move and looks on.
func (o *WatchOptions) Run(ctx context.Context) error {
	return o.withTemporal(ctx, func(temporal client.Client) error {
		info, err := findMove(ctx, temporal, o.name)
		if err != nil {
			return err
		}
		move := temporal.GetWorkflow(ctx, info.GetExecution().GetWorkflowId(), info.GetExecution().GetRunId())
		return follow(ctx, o.terminal, temporal, move, o.output, o.timeout)
	})
}
