package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/temporal"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/worker"
)

const exitCodesHelp = `
Exit codes:
  0    done
  1    error, or an undo that could not take everything back
  2    usage: a flag, an argument or a setting is wrong
  3    refused; nothing was changed
  4    aborted, or undone after the tenant was away: it is back on its origin shard
  5    still running after --timeout
  130  interrupted; a move that runs goes on
`

// options are what every command is made of.
type options interface {
	// Complete takes the arguments in.
	Complete(args []string) error
	// Validate refuses what can be refused without asking anyone.
	Validate() error
	Run(ctx context.Context) error
}

func newRootCommand(term terminal) *cobra.Command {
	root := &cobra.Command{
		Use:   strings.ReplaceAll(term.program, " ", "-"),
		Short: "Move logical clusters between kcp's shards",
		Long: `Move logical clusters between kcp's shards through a durable Temporal workflow: at every moment the
tenant is whole and usable on exactly one of them.

A worker stands beside each shard; the other commands start, follow and steer moves through Temporal.
Every flag may also come from the environment, as KCP_MIGRATE_<FLAG> (KCP_MIGRATE_TEMPORAL_ADDRESS for
--temporal-address); what the command line says counts more. A worker reads a config file as well, which counts least.`,
		Example: fmt.Sprintf(`  %[1]s worker --config worker-shard-1.yaml
  %[1]s plan root:org:ws shard-1
  %[1]s start root:org:ws shard-1 --wait`, term.program),
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: term.program},
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          usageArgs(cobra.NoArgs),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return asUsage(cmd, worker.Complete(cmd.Flags(), term.lookupEnv))
		},
	}
	root.SetOut(term.out)
	root.SetErr(term.err)
	root.SetUsageTemplate(root.UsageTemplate() + exitCodesHelp)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return asUsage(cmd, err) })
	root.AddCommand(
		NewCmdWorker(term), NewCmdPlan(term), NewCmdStart(term), NewCmdStatus(term), NewCmdList(term), NewCmdWatch(term),
		NewCmdPause(term), NewCmdResume(term), NewCmdApprove(term), NewCmdAbort(term), NewCmdRecover(term), NewCmdVerify(term),
		NewCmdVersion(term), NewCmdCompletion(term))
	root.SetHelpCommand(newCmdHelp(term))
	return root
}

// execute runs the command line and gives the exit code.
func execute(ctx context.Context, term terminal, args []string) int {
	root := newRootCommand(term)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil {
		printError(term, err)
	}
	return exitCode(ctx, err)
}

// run gives cobra the steps of a command.
func run(o options) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := o.Complete(args); err != nil {
			return asUsage(cmd, err)
		}
		if err := o.Validate(); err != nil {
			return asUsage(cmd, err)
		}
		return o.Run(cmd.Context())
	}
}

// begin is run for what begins something: where a system cannot be reached, that is refused.
func begin(o options) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := run(o)(cmd, args)
		var application *temporal.ApplicationError
		if errors.As(err, &application) && application.Type() == activities.Unreachable && cmd.Context().Err() == nil {
			return refusedError{err}
		}
		return err
	}
}

func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error { return asUsage(cmd, check(cmd, args)) }
}
