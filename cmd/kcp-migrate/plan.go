package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.temporal.io/sdk/client"

	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// planWorkflowPrefix keeps dry runs out of the list of moves.
const planWorkflowPrefix = "plan-"

// PlanOptions are what the plan command takes.
type PlanOptions struct {
	clientOptions
	output  outputFormat
	input   workflows.Input
	timeout time.Duration
}

// NewCmdPlan makes the plan command.
func NewCmdPlan(term terminal) *cobra.Command {
	o := &PlanOptions{clientOptions: clientOptions{terminal: term}}
	cmd := &cobra.Command{
		Use:   "plan LOGICAL-CLUSTER DESTINATION-SHARD",
		Short: "Say what a move would do, and whether it would be refused",
		Long: `Say what a move would do: what is moved, what is created, what stays, how long the tenant will be away.
Nothing is changed. A move that would be refused is refused here, for the same reason.`,
		Example: fmt.Sprintf(`  %[1]s plan root:org:ws shard-1
  %[1]s plan 2ei2q8rs6um1o3uc shard-1 -o json`, term.program),
		Args: usageArgs(cobra.ExactArgs(2)),
		RunE: begin(o),
	}
	o.addFlags(cmd.Flags())
	o.output.addFlag(cmd.Flags())
	addInputFlags(cmd.Flags(), &o.input)
	cmd.Flags().DurationVar(&o.timeout, "timeout", time.Minute, "how long to wait for the plan")
	return cmd
}

// addInputFlags declares the flags that change what preflight refuses.
func addInputFlags(flags *pflag.FlagSet, input *workflows.Input) {
	flags.DurationVar((*time.Duration)(&input.MaxTimeAway), "max-time-away", 0,
		"undo the move where it is not committed so long after the fence, at most 1h (0 means 60s)")
	flags.BoolVar(&input.DiscardLeftovers, "discard-leftovers", false,
		"delete the logical cluster's keys on the destination, where it has no LogicalCluster of it")
	flags.BoolVar(&input.AcceptTokenLoss, "accept-token-loss", false,
		"go on although the shards check service-account tokens with different keys")
	flags.BoolVar(&input.ForceDestination, "force-destination", false,
		"go on although the destination is not Ready or runs an older kcp")
	flags.Int64Var(&input.MaxRevisionLift, "max-revision-lift", 0,
		"by how many revisions the destination's etcd may be lifted (0 means 10 million)")
}

// Complete takes the two arguments.
func (o *PlanOptions) Complete(args []string) error {
	o.input.LogicalCluster, o.input.DestinationShard, o.input.DryRun = args[0], args[1], true
	return nil
}

// Validate refuses what the workflow would refuse at once.
func (o *PlanOptions) Validate() error { return o.input.Validate() }

// Run has a worker make the plan and prints it.
func (o *PlanOptions) Run(ctx context.Context) error {
	return o.withTemporal(ctx, func(temporal client.Client) error {
		waiting, stop := context.WithTimeout(ctx, o.timeout)
		defer stop()
		workflowID := planWorkflowPrefix + o.input.LogicalCluster + "-" + uuid.NewString()
		dryRun, err := launch(waiting, o.terminal, temporal, launchingMove(workflowID, o.input))
		if dryRun == nil {
			return err
		}
		var result workflows.Result
		if err == nil {
			err = dryRun.Get(waiting, &result)
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return fmt.Errorf("plan %s: interrupted", o.input.LogicalCluster)
		case outOfTime(waiting, err):
			return stillRunningError{workflowID: workflowID}
		case err != nil:
			return newMoveError(err)
		}
		if result.Plan == nil {
			return fmt.Errorf("read plan of %s: the worker gave none", o.input.LogicalCluster)
		}
		return o.output.print(o.out, result.Plan, []string{result.Plan.LogicalCluster}, func(out *tabwriter.Writer) {
			printPlan(out, result.Plan)
		})
	})
}

func printPlan(out *tabwriter.Writer, plan *workflows.Plan) {
	property(out, "Logical cluster", nameAndPath(plan.LogicalCluster, plan.Path))
	property(out, "From", plan.OriginShard)
	property(out, "To", plan.DestinationShard)
	property(out, "Entries", fmt.Sprintf("%s (%s), %s of them with a lease",
		countText(plan.Entries), bytesText(plan.Bytes), countText(plan.LeasedEntries)))
	property(out, "Expected time away", durationText(time.Duration(plan.ExpectedTimeAway)))
	if plan.MinimumFence > 0 {
		property(out, "Fenced for at least", durationText(time.Duration(plan.MinimumFence)))
	}
	if plan.RevisionLift > 0 {
		property(out, "Revision lift", countText(plan.RevisionLift)+" revisions, before the fence")
	}
	printFamilies(out, plan)
	list(out, "Bound CRDs to create at the destination, by schema UID", plan.BoundCRDs)
	list(out, "Keys at the destination to discard", plan.Leftovers)
	list(out, "Child workspaces that stay", plan.NotMoved)
	list(out, "Warnings", plan.Warnings)
}

// printFamilies ends with the leased entries, which no family counts.
func printFamilies(out *tabwriter.Writer, plan *workflows.Plan) {
	if plan.Entries == 0 {
		return
	}
	fmt.Fprintln(out)
	row(out, "FAMILY", "ENTRIES", "BYTES")
	leasedBytes := plan.Bytes
	for _, family := range plan.Families {
		row(out, family.Family, countText(family.Entries), bytesText(family.Bytes))
		leasedBytes -= family.Bytes
	}
	if plan.LeasedEntries > 0 {
		row(out, "with a lease, of any family", countText(plan.LeasedEntries), bytesText(leasedBytes))
	}
}

func nameAndPath(name, path string) string {
	if path == "" || path == name {
		return name
	}
	return fmt.Sprintf("%s (%s)", path, name)
}

// durationText rounds to what a person can use.
func durationText(duration time.Duration) string {
	if duration < 10*time.Second {
		return duration.Round(10 * time.Millisecond).String()
	}
	return duration.Round(time.Second).String()
}
