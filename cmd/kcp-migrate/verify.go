package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/worker"
)

// VerifyOptions are what the verify command takes.
type VerifyOptions struct {
	terminal
	output          outputFormat
	logicalCluster  string
	originFile      string
	destinationFile string
	origin          *worker.Config
	destination     *worker.Config
}

// NewCmdVerify makes the verify command.
func NewCmdVerify(term terminal) *cobra.Command {
	o := &VerifyOptions{terminal: term}
	cmd := &cobra.Command{
		Use:   "verify LOGICAL-CLUSTER",
		Short: "Compare two shards' copies of a logical cluster",
		Long: `Compare two shards' copies of a logical cluster, read-only and straight through both etcds, and name the entries
that differ. The exit code is 0 where there is no difference and 1 where there is one. The LogicalCluster object itself,
which always differs, is left out, and so are differences of entries whose lease ends within 30 s.

A move compares both copies itself before it commits, and then deletes the origin's: after it there is nothing left to
compare. This is for two copies that should not be: after a shard's etcd was restored from a backup, after a move
was terminated, before --discard-leftovers. While the tenant is served, what it writes differs.`,
		Example: fmt.Sprintf("  %s verify root:org:ws --origin-config worker-root.yaml --destination-config worker-shard-1.yaml", term.program),
		Args:    usageArgs(cobra.ExactArgs(1)),
		RunE:    run(o),
	}
	o.output.addFlag(cmd.Flags())
	cmd.Flags().StringVar(&o.originFile, "origin-config", "", "config `file` of the origin's worker")
	cmd.Flags().StringVar(&o.destinationFile, "destination-config", "", "config `file` of the destination's worker")
	return cmd
}

// Complete takes the argument.
func (o *VerifyOptions) Complete(args []string) error {
	o.logicalCluster = args[0]
	return nil
}

// Validate reads both files, and refuses to compare a shard with nothing or with itself.
func (o *VerifyOptions) Validate() error {
	if o.originFile == "" || o.destinationFile == "" {
		return errors.New("--origin-config and --destination-config are both needed")
	}
	var err error
	if o.origin, err = worker.LoadConfig(o.originFile); err != nil {
		return err
	}
	if o.destination, err = worker.LoadConfig(o.destinationFile); err != nil {
		return err
	}
	if o.origin.Shard == o.destination.Shard {
		return fmt.Errorf("--origin-config and --destination-config are both of shard %s; give two shards' workers' config files", o.origin.Shard)
	}
	return nil
}

// Run compares what two workers' configurations lead to.
func (o *VerifyOptions) Run(ctx context.Context) error {
	logicalCluster, err := nameOf(ctx, o.origin, o.logicalCluster)
	if err != nil {
		return err
	}
	result, err := compareShards(ctx, logicalCluster, o.origin, o.destination)
	if err != nil {
		return err
	}
	if err := o.output.print(o.out, result, result.names(), result.print); err != nil {
		return err
	}
	if !result.Equal {
		return fmt.Errorf("verify %s: the copies on shards %s and %s differ", logicalCluster, o.origin.Shard, o.destination.Shard)
	}
	return nil
}

// nameOf turns a path into the name that keys are made of.
func nameOf(ctx context.Context, config *worker.Config, pathOrName string) (string, error) {
	if !strings.Contains(pathOrName, ":") {
		return pathOrName, nil
	}
	directory, err := worker.OpenDirectory(config)
	if err != nil {
		return "", err
	}
	return locate(ctx, directory, pathOrName)
}

func locate(ctx context.Context, directory activities.Directory, path string) (string, error) {
	location, err := directory.Locate(ctx, path)
	if errors.Is(err, activities.ErrNotFound) {
		return "", activities.Refuse(activities.LogicalClusterNotFound,
			"no workspace path %q; see `kubectl ws tree` for what there is, or give the logical cluster's name", path)
	}
	if err != nil {
		return "", fmt.Errorf("find logical cluster %s: %w", path, err)
	}
	return location.LogicalCluster, nil
}

func compareShards(ctx context.Context, logicalCluster string, origin, destination *worker.Config) (result *comparison, err error) {
	originStore, hangUp, err := worker.OpenStore(ctx, origin)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, hangUp()) }()
	destinationStore, hangUpToo, err := worker.OpenStore(ctx, destination)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, hangUpToo()) }()
	one, other := shardCopy{origin.Shard, originStore}, shardCopy{destination.Shard, destinationStore}
	if err := requireEither(ctx, logicalCluster, one, other); err != nil {
		return nil, err
	}
	return compare(ctx, logicalCluster, one, other)
}
