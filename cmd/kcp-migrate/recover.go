package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// RecoverOptions are what the recover command takes.
type RecoverOptions struct {
	clientOptions
	output  outputFormat
	input   workflows.RecoverInput
	resume  bool
	undo    bool
	wait    bool
	timeout time.Duration
}

// NewCmdRecover makes the recover command.
func NewCmdRecover(term terminal) *cobra.Command {
	o := &RecoverOptions{clientOptions: clientOptions{terminal: term}}
	cmd := &cobra.Command{
		Use:   "recover LOGICAL-CLUSTER",
		Short: "End a move whose workflow is gone",
		Long: `End a move whose workflow was terminated, or lost with its Temporal namespace. What the move left in both shards'
etcds tells where it stands; without --resume or --undo this is all that is done: nothing is changed.

--resume finishes a move that is committed. One that is not is taken back, and then moves anew, with a fence of its own.
--undo takes back a move that is not committed. Either is a workflow, which goes on whatever becomes of this command.
While the move's own workflow is running, or another recovery, nothing is done: follow or abort that one.

Two things only a person can know: --workflow-is-lost says that a workflow which this Temporal namespace does not know
runs in no other, and --destination-is-lost that the destination never comes back; the undo then opens the origin without
knowing whether the move was committed, and what clients wrote at the destination is lost.`,
		Example: fmt.Sprintf(`  %[1]s recover root:org:ws
  %[1]s recover root:org:ws --resume --wait
  %[1]s recover 2ei2q8rs6um1o3uc --origin-shard root --destination-shard shard-1 --undo --destination-is-lost`, term.program),
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: begin(o),
	}
	o.addRecoverFlags(cmd)
	return cmd
}

func (o *RecoverOptions) addRecoverFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	o.addFlags(flags)
	o.output.addFlag(flags)
	addInputFlags(flags, &o.input.Move)
	flags.BoolVar(&o.resume, "resume", false, "finish the move, or take it back and move anew")
	flags.BoolVar(&o.undo, "undo", false, "take the move back")
	flags.BoolVar(&o.input.WorkflowIsLost, "workflow-is-lost", false, "the move's workflow, which Temporal does not know, runs nowhere else")
	flags.BoolVar(&o.input.DestinationIsLost, "destination-is-lost", false, "the destination never comes back: undo without it")
	flags.StringVar(&o.input.OriginShard, "origin-shard", "", "the `shard` that the tenant was to leave, where no claim tells")
	flags.StringVar(&o.input.DestinationShard, "destination-shard", "", "the `shard` that it was to move to")
	flags.BoolVarP(&o.wait, "wait", "w", false, "look on until the recovery is over, and print its result")
	flags.DurationVar(&o.timeout, "timeout", 0, "stop looking on after so long; the recovery goes on (0 means never, two minutes without --resume or --undo)")
}

// Complete takes the argument.
func (o *RecoverOptions) Complete(args []string) error {
	o.input.LogicalCluster = args[0]
	switch {
	case o.resume && o.undo:
		return errors.New("--resume and --undo: give one of them")
	case o.resume:
		o.input.Action = workflows.Resume
	case o.undo:
		o.input.Action = workflows.TakeBack
	}
	return nil
}

// Validate refuses what the workflow would refuse at once.
func (o *RecoverOptions) Validate() error {
	switch {
	case o.input.Action == "" && o.wait:
		return errors.New("--wait is of use with --resume or --undo only")
	case o.input.Action != "" && o.timeout != 0 && !o.wait:
		return errors.New("--timeout is of use with --wait only")
	}
	return o.input.Validate()
}

// Run looks, or starts the recovery and, if asked, looks on.
func (o *RecoverOptions) Run(ctx context.Context) error {
	return o.withTemporal(ctx, func(temporal client.Client) error {
		if o.input.Action == "" {
			return o.look(ctx, temporal)
		}
		recovery, err := launch(ctx, o.terminal, temporal, o.launching(workflows.RecoveryWorkflowID(o.input.LogicalCluster)))
		if err != nil {
			return err
		}
		if o.wait {
			return follow(ctx, o.terminal, temporal, recovery, o.output, o.timeout)
		}
		return o.output.print(o.out, started{recovery.GetID(), recovery.GetRunID()}, []string{recovery.GetID()}, func(out *tabwriter.Writer) {
			fmt.Fprintf(out, "Started %s. Follow it with: %s watch %s\n", recovery.GetID(), o.program, recovery.GetID())
		})
	})
}

func (o *RecoverOptions) launching(workflowID string) launching {
	return launching{workflowID, workflows.RecoverLogicalClusterName, "recover " + o.input.LogicalCluster, o.input}
}

// look has a worker find out where the move stands. That its workflow is running is an answer too, and a refusal.
func (o *RecoverOptions) look(ctx context.Context, temporal client.Client) error {
	standing, err := o.standing(ctx, temporal)
	if err != nil {
		return err
	}
	err = o.output.print(o.out, standing, []string{o.input.LogicalCluster}, func(out *tabwriter.Writer) { printStanding(out, standing) })
	if err != nil {
		return err
	}
	for _, found := range standing.Workflows {
		if found.Running {
			return activities.Refuse(activities.AlreadyMigrating, "workflow %s is running: there is nothing to recover", found.WorkflowID)
		}
	}
	return nil
}

// lookTimeout is how long finding out may take, unless told otherwise: a shard that does not answer takes most of it.
const lookTimeout = 2 * time.Minute

func (o *RecoverOptions) standing(ctx context.Context, temporal client.Client) (*workflows.Standing, error) {
	timeout := o.timeout
	if timeout == 0 {
		timeout = lookTimeout
	}
	waiting, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	workflowID := planWorkflowPrefix + workflows.RecoveryWorkflowID(o.input.LogicalCluster) + "-" + uuid.NewString()
	run, err := launch(waiting, o.terminal, temporal, o.launching(workflowID))
	if run == nil {
		return nil, err
	}
	var result workflows.Result
	if err == nil {
		err = run.Get(waiting, &result)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("look at %s: interrupted", o.input.LogicalCluster)
	case outOfTime(waiting, err):
		return nil, stillRunningError{workflowID: workflowID}
	case err != nil:
		return nil, newMoveError(err)
	case result.Standing == nil:
		return nil, fmt.Errorf("read standing of %s: the worker gave none", o.input.LogicalCluster)
	}
	return result.Standing, nil
}

func printStanding(out *tabwriter.Writer, standing *workflows.Standing) {
	committed := "no: the tenant belongs to the origin"
	switch {
	case standing.Committed:
		committed = "yes: the tenant belongs to the destination"
	case standing.Destination.Unreachable != "":
		committed = "unknown: only the destination can tell"
	}
	property(out, "Committed", committed)
	property(out, "Front-proxies lead to", standing.Route)
	for _, found := range standing.Workflows {
		state := found.Name
		if state == "" {
			state = "unknown to this Temporal namespace"
		}
		property(out, "Workflow", fmt.Sprintf("%s (run %s): %s", found.WorkflowID, found.RunID, state))
	}
	printShardStanding(out, "ORIGIN", &standing.Origin)
	printShardStanding(out, "DESTINATION", &standing.Destination)
	list(out, "What you can do", []string{standing.Advice})
}

func printShardStanding(out *tabwriter.Writer, role string, standing *activities.Standing) {
	fmt.Fprintln(out)
	row(out, role, standing.Shard)
	if standing.Unreachable != "" {
		property(out, "  Unreachable", standing.Unreachable)
		return
	}
	claim := "none"
	if standing.Claim != nil {
		claim = fmt.Sprintf("workflow %s, token %s, since %s", standing.Claim.WorkflowID, standing.Claim.Token, standing.Claim.ClaimedAt.UTC().Format(time.RFC3339))
	}
	property(out, "  Claim", claim)
	property(out, "  LogicalCluster", logicalClusterText(standing))
	keys := countText(int64(standing.Keys))
	if standing.Keys == activities.KeysCounted {
		keys = "at least " + keys
	}
	property(out, "  Keys", keys)
}

func logicalClusterText(standing *activities.Standing) string {
	switch {
	case !standing.HasLogicalCluster:
		return "none"
	case standing.Inactive && standing.Stamp != "":
		return fmt.Sprintf("%s, fenced by the move", standing.LogicalClusterPhase)
	case standing.Inactive:
		return fmt.Sprintf("%s, closed, but not by a move", standing.LogicalClusterPhase)
	case standing.Stamp != "":
		return fmt.Sprintf("%s, open: somebody took the move's fence away", standing.LogicalClusterPhase)
	}
	return fmt.Sprintf("%s, open", standing.LogicalClusterPhase)
}
