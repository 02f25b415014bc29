package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kcp-migrate/kcp-migrate/worker"
)

// WorkerOptions are what the worker command takes.
type WorkerOptions struct {
	terminal
	config worker.Config
}

// NewCmdWorker makes the worker command.
func NewCmdWorker(term terminal) *cobra.Command {
	o := &WorkerOptions{terminal: term}
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Work beside a shard",
		Long: `Work beside a shard: take moves from Temporal, and do for this shard what they ask. Each shard needs one worker
or more. A worker that cannot reach its etcd, kcp or Temporal within 10 s says so and ends.

A setting comes from the flag, or else from KCP_MIGRATE_<FLAG>, or else from the config file, or else is the default.
The config file is flat YAML; its keys are the flags' names.`,
		Example: fmt.Sprintf(`  %[1]s worker --config worker-shard-1.yaml
  KCP_MIGRATE_LOG_LEVEL=debug %[1]s worker --config worker-shard-1.yaml --health-listen 127.0.0.1:8080`, term.program),
		Args: usageArgs(cobra.NoArgs),
		RunE: begin(o),
	}
	o.config.AddFlags(cmd.Flags())
	return cmd
}

// Complete has no arguments to take.
func (o *WorkerOptions) Complete([]string) error { return nil }

// Validate names what is missing.
func (o *WorkerOptions) Validate() error { return o.config.Validate() }

// Run works until the process is told to stop.
func (o *WorkerOptions) Run(ctx context.Context) error { return worker.Run(ctx, &o.config, o.err) }
