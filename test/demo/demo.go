package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/kcp-migrate/kcp-migrate/test/installation"
)

// tenant is the workspace that moves; devstack fills it with some of everything.
const tenant = "root:consumer"

// leg is one move of the tenant.
type leg struct{ origin, destination string }

func (l leg) String() string { return l.origin + "->" + l.destination }

// run plays the demo in a folder of its own, which is kept, with the logs, when something went wrong.
func run(ctx context.Context, options options) (failure error) {
	dir, err := os.MkdirTemp("", "kcp-migrate-demo-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer func() {
		if failure == nil {
			failure = os.RemoveAll(dir)
			return
		}
		failure = fmt.Errorf("%w\nlogs are in %s", failure, dir)
	}()
	return play(ctx, dir, options)
}

func play(ctx context.Context, dir string, options options) (failure error) {
	say("Starting devstack: a Temporal server with its web UI, two shards and a front door (logs in %s)", dir)
	stack, err := installation.Start(ctx, installation.Options{
		BinDir: options.binDir, Dir: dir, Entries: options.entries, KCP: options.kcp, FixedPorts: options.keepRunning,
	})
	if err != nil {
		return err
	}
	defer func() { failure = errors.Join(failure, stack.Stop()) }()
	if err := startWorkers(ctx, stack); err != nil {
		return err
	}
	say("Temporal web UI: %s", stack.UIURL)
	if options.keepRunning {
		return keepRunning(ctx, stack, options)
	}
	return moveThereAndBack(ctx, stack)
}

func startWorkers(ctx context.Context, stack *installation.Installation) error {
	for _, shard := range stack.Shards {
		say("Starting a worker beside shard %s", shard.Name)
		if _, err := stack.StartWorker(ctx, shard.Name); err != nil {
			return err
		}
	}
	return nil
}

// moveThereAndBack moves the tenant while a writer, watches and a poller work on it.
func moveThereAndBack(ctx context.Context, stack *installation.Installation) error {
	watcher, err := stack.StartWatcher(ctx, tenant)
	if err != nil {
		return err
	}
	defer watcher.Stop()
	writer, err := stack.StartWriter(ctx, tenant)
	if err != nil {
		return err
	}
	defer writer.Stop()

	var reports []report
	for _, leg := range []leg{{"root", "shard-1"}, {"shard-1", "root"}} {
		report, err := move(ctx, stack, leg, writer, watcher)
		if err != nil {
			return fmt.Errorf("move %s %s: %w", tenant, leg, err)
		}
		reports = append(reports, report)
	}
	writer.Stop()
	lost, err := writer.Verify(ctx)
	if err != nil {
		return err
	}
	return conclude(reports, writer.Acknowledged(), lost)
}

// move moves the tenant once and compares both shards before and after.
func move(ctx context.Context, stack *installation.Installation, leg leg, writer *installation.Writer, watcher *installation.Watcher) (report, error) {
	say("Moving %s: shard %s -> shard %s", tenant, leg.origin, leg.destination)
	before, err := exportBoth(ctx, stack, leg)
	if err != nil {
		return report{}, err
	}
	poller, err := stack.StartPoller(ctx, tenant)
	if err != nil {
		return report{}, err
	}
	result, err := stack.Move(ctx, os.Stderr, tenant, leg.destination)
	if err != nil {
		poller.Stop()
		return report{}, err
	}
	delays, err := watcher.Probe(ctx, "seen-on-"+leg.destination)
	availability := poller.Stop()
	if err != nil {
		return report{}, err
	}
	after, err := exportBoth(ctx, stack, leg)
	if err != nil {
		return report{}, err
	}
	return report{
		leg: leg, result: result, availability: availability, delays: delays,
		falseDeletes: watcher.FalseDeletes(writer.Deleted()), comparison: compare(result.LogicalCluster, before, after),
	}, nil
}

func exportBoth(ctx context.Context, stack *installation.Installation, leg leg) (exports, error) {
	var both exports
	group, ctx := errgroup.WithContext(ctx)
	for name, export := range map[string]*installation.Export{leg.origin: &both.origin, leg.destination: &both.destination} {
		group.Go(func() error {
			shard, err := stack.Shard(name)
			if err != nil {
				return err
			}
			*export, err = shard.Export(ctx)
			return err
		})
	}
	return both, group.Wait()
}

func say(format string, arguments ...any) {
	fmt.Printf(format+"\n", arguments...)
}
