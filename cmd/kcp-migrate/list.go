package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"
)

// ListOptions are what the list command takes.
type ListOptions struct {
	clientOptions
	output outputFormat
	limit  int
}

// NewCmdList makes the list command.
func NewCmdList(term terminal) *cobra.Command {
	o := &ListOptions{clientOptions: clientOptions{terminal: term}}
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List moves, the latest first",
		Long:    "List moves, the latest first, for as long as Temporal keeps them.",
		Example: fmt.Sprintf(`  %[1]s list
  %[1]s list -o name --limit 1`, term.program),
		Args: usageArgs(cobra.NoArgs),
		RunE: run(o),
	}
	o.addFlags(cmd.Flags())
	o.output.addFlag(cmd.Flags())
	cmd.Flags().IntVar(&o.limit, "limit", 100, "how many at most")
	return cmd
}

// Complete has no arguments to take.
func (o *ListOptions) Complete([]string) error { return nil }

// Validate refuses a list of nothing.
func (o *ListOptions) Validate() error {
	if o.limit < 1 {
		return errors.New("--limit must be at least 1")
	}
	return nil
}

// Run asks Temporal's visibility store.
func (o *ListOptions) Run(ctx context.Context) error {
	return o.withTemporal(ctx, func(temporal client.Client) error {
		infos, err := listMoves(ctx, temporal, "", o.limit)
		if err != nil {
			return err
		}
		moves, names := make([]move, len(infos)), make([]string, len(infos))
		for i, info := range infos {
			if moves[i], err = readMove(info); err != nil {
				return err
			}
			names[i] = moves[i].WorkflowID
		}
		return o.output.print(o.out, moves, names, func(out *tabwriter.Writer) { printMoves(out, moves, time.Now()) })
	})
}

func printMoves(out *tabwriter.Writer, moves []move, now time.Time) {
	row(out, "WORKFLOW ID", "LOGICAL CLUSTER", "ORIGIN", "DESTINATION", "PHASE", "STATE", "STARTED", "TOOK")
	for _, m := range moves {
		row(out, m.WorkflowID, orDash(m.LogicalCluster), orDash(m.OriginShard), orDash(m.DestinationShard),
			orDash(string(m.Phase)), m.State, m.StartedAt.UTC().Format(time.RFC3339), durationText(m.took(now)))
	}
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
