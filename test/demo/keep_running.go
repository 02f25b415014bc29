package main

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/kcp-migrate/kcp-migrate/test/installation"
)

// keepRunning tells a person what there is to try and waits for Ctrl-C.
func keepRunning(ctx context.Context, stack *installation.Installation, options options) error {
	program := filepath.Join(options.binDir, "kcp-migrate")
	say(`
Everything runs. To try:

  export TEMPORAL_ADDRESS=%s
  %s plan root:consumer shard-1
  %s start root:consumer shard-1 --wait
  %s list
  temporal workflow start --type MigrateLogicalCluster --task-queue kcp-migrate \
      --workflow-id migrate-consumer --input '{"logicalCluster":"root:consumer","destinationShard":"root"}'
  kubectl --kubeconfig %s get workspaces

Ctrl-C stops all.`, stack.TemporalAddress, program, program, program, stack.Kubeconfig)
	select {
	case <-ctx.Done():
		return nil
	case <-stack.Done():
		return errors.New("devstack ended")
	}
}
