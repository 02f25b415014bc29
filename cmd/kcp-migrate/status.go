package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"
)

// StatusOptions are what the status command takes.
type StatusOptions struct {
	clientOptions
	output outputFormat
	name   string
}

// NewCmdStatus makes the status command.
func NewCmdStatus(term terminal) *cobra.Command {
	o := &StatusOptions{clientOptions: clientOptions{terminal: term}}
	cmd := &cobra.Command{
		Use:   "status WORKFLOW-ID|LOGICAL-CLUSTER",
		Short: "Say how a move stands, or how it ended",
		Long:  "Say how a move stands and what a person can do, or how it ended. A logical cluster means its latest move.",
		Example: fmt.Sprintf(`  %[1]s status root:org:ws
  %[1]s status migrate-root:org:ws -o json`, term.program),
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: run(o),
	}
	o.addFlags(cmd.Flags())
	o.output.addFlag(cmd.Flags())
	return cmd
}

// Complete takes the argument.
func (o *StatusOptions) Complete(args []string) error {
	o.name = args[0]
	return nil
}

// Validate has nothing to refuse.
func (o *StatusOptions) Validate() error { return nil }

// Run finds the move and prints all that is known of it.
func (o *StatusOptions) Run(ctx context.Context) error {
	return o.withTemporal(ctx, func(temporal client.Client) error {
		info, err := findMove(ctx, temporal, o.name)
		if err != nil {
			return err
		}
		found, err := readMove(info)
		if err != nil {
			return err
		}
		detail, err := describeMove(ctx, temporal, found)
		if err != nil {
			return err
		}
		return o.output.print(o.out, detail, []string{detail.WorkflowID}, func(out *tabwriter.Writer) { detail.print(out, o.program) })
	})
}
