package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kcp-migrate/kcp-migrate/worker"
)

// VerifyOptions are what the verify command takes.
type VerifyOptions struct {
	terminal
	output          outputFormat
	logicalCluster  string
	originFile      string
	destinationFile string
}

// NewCmdVerify makes the verify command.
func NewCmdVerify(term terminal) *cobra.Command {
	o := &VerifyOptions{terminal: term}
	cmd := &cobra.Command{
		Use:   "verify LOGICAL-CLUSTER",
		Short: "Compare two shards' copies of a logical cluster",
		Long: `Compare two shards' copies of a logical cluster, read-only and straight through both etcds, and name the entries
that differ. The exit code is 0 where there is no difference and 1 where there is one. The LogicalCluster object itself,
which always differs, is left out, and so are differences of entries whose lease ends within 30 s.`,
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

// Validate refuses to compare with nothing.
func (o *VerifyOptions) Validate() error {
	if o.originFile == "" || o.destinationFile == "" {
		return errors.New("--origin-config and --destination-config are both needed")
	}
	return nil
}

// Run compares what two workers' configurations lead to.
func (o *VerifyOptions) Run(ctx context.Context) error {
	origin, err := worker.LoadConfig(o.originFile)
	if err != nil {
		return err
	}
	destination, err := worker.LoadConfig(o.destinationFile)
	if err != nil {
		return err
	}
	logicalCluster, err := nameOf(ctx, origin, o.logicalCluster)
	if err != nil {
		return err
	}
	result, err := compareShards(ctx, logicalCluster, origin, destination)
	if err != nil {
		return err
	}
	if err := o.output.print(o.out, result, result.names(), result.print); err != nil {
		return err
	}
	if !result.Equal {
		return fmt.Errorf("verify %s: the copies on shards %s and %s differ", logicalCluster, origin.Shard, destination.Shard)
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
	location, err := directory.Locate(ctx, pathOrName)
	if err != nil {
		return "", fmt.Errorf("find logical cluster %s: %w", pathOrName, err)
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
	return compare(ctx, logicalCluster, shardCopy{origin.Shard, originStore}, shardCopy{destination.Shard, destinationStore})
}
