// Package worker runs beside a shard: it takes moves from Temporal, and does for its shard what they ask.
package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	temporalworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"golang.org/x/sync/errgroup"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/transfer"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

const (
	// startPatience is how long etcd, kcp and Temporal together may take to answer before a worker gives up.
	startPatience = 9 * time.Second
	// stopPatience is how long a stopping worker lets its activities end. What takes longer is told to stop and
	// goes on, from its last heartbeat, on another worker.
	stopPatience = 5 * time.Second
	// heartbeatInterval bounds what a retried copy does again.
	heartbeatInterval = time.Second
	// takeover is how long a move waits for the worker that decided its last step before another one goes on with it: most of a
	// move's steps are part of the time away. One that is only slow has the move taken from it, and read anew.
	takeover = 2 * time.Second
	// pollers is how many polls are open at once, so that no step of a move waits for a poll to be opened.
	pollers = 4
	// maxActivities bounds how many moves a worker is busy with at once, and so its memory.
	maxActivities = 50
)

// Run works beside a shard until ctx is done. Errors before that are of a type where a person can mend the cause.
func Run(ctx context.Context, config *Config, logOutput io.Writer, options ...Option) (err error) {
	logger, err := config.newLogger(logOutput)
	if err != nil {
		return err
	}
	registry, metrics, err := newMetrics(logger)
	if err != nil {
		return err
	}
	systems, err := dial(ctx, config, logger, metrics)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, systems.close()) }()
	assembled := assemble(systems, options)
	transfers, err := listenForTransfers(config, assembled.store)
	if err != nil {
		return err
	}
	health, err := startHealth(config.HealthListen, registry, logger, systems.checks()...)
	if err != nil {
		return errors.Join(err, transfers.listener.Close())
	}
	defer func() { err = errors.Join(err, health.stop()) }()
	logger.Info("worker starts", "transferAddress", transfers.address, "healthAddress", health.address(),
		"taskQueue", workflows.ShardTaskQueue(config.Shard))
	err = serve(ctx, config, assembled, transfers)
	logger.Info("worker stopped")
	return err
}

// serve runs until ctx is done or one part fails.
func serve(ctx context.Context, config *Config, assembled *assembly, transfers *transfers) error {
	group, ctx := errgroup.WithContext(ctx)
	fatal := make(chan error, 2)
	fleet := newFleetWorker(assembled, fatal)
	shard := newShardWorker(config, assembled, transfers, fatal)
	group.Go(func() error { return transfers.server.Serve(ctx, transfers.listener) })
	group.Go(func() error {
		select {
		case err := <-fatal:
			return fmt.Errorf("poll Temporal: %w", err)
		case <-ctx.Done():
			return nil
		}
	})
	// Whoever sees the shard's queue polled may start a move at once: the moves' own queue comes first.
	for _, one := range []temporalworker.Worker{fleet, shard} {
		if err := one.Start(); err != nil {
			group.Go(func() error { return fmt.Errorf("start Temporal worker: %w", err) })
			break
		}
		group.Go(func() error { <-ctx.Done(); one.Stop(); return nil })
	}
	return group.Wait()
}

// newFleetWorker takes moves, and the activities that any shard's worker can do.
func newFleetWorker(assembled *assembly, fatal chan<- error) temporalworker.Worker {
	fleet := temporalworker.New(assembled.temporal, workflows.TaskQueue, workerOptions(assembled, fatal))
	fleet.RegisterWorkflowWithOptions(workflows.MigrateLogicalCluster,
		workflow.RegisterOptions{Name: workflows.MigrateLogicalClusterName})
	fleet.RegisterWorkflowWithOptions(workflows.RecoverLogicalCluster,
		workflow.RegisterOptions{Name: workflows.RecoverLogicalClusterName})
	fleet.RegisterActivity(&activities.Fleet{Directory: assembled.directory, Runs: runs{assembled.temporal}})
	return fleet
}

// newShardWorker takes the activities that only this shard's workers can do.
func newShardWorker(config *Config, assembled *assembly, transfers *transfers, fatal chan<- error) temporalworker.Worker {
	options := workerOptions(assembled, fatal)
	options.DisableWorkflowWorker = true
	shard := temporalworker.New(assembled.temporal, workflows.ShardTaskQueue(config.Shard), options)
	shard.RegisterActivity(&activities.Shard{
		Name:            config.Shard,
		Store:           assembled.store,
		API:             assembled.api,
		Cache:           assembled.cache,
		Dialer:          transfers.dialer,
		Protocols:       transfer.Protocols,
		TransferAddress: transfers.address,
	})
	return shard
}

func workerOptions(assembled *assembly, fatal chan<- error) temporalworker.Options {
	return temporalworker.Options{
		Interceptors:                       assembled.interceptors,
		MaxConcurrentWorkflowTaskPollers:   pollers,
		MaxConcurrentActivityTaskPollers:   pollers,
		MaxConcurrentActivityExecutionSize: maxActivities,
		MaxHeartbeatThrottleInterval:       heartbeatInterval,
		WorkerStopTimeout:                  stopPatience,
		StickyScheduleToStartTimeout:       takeover,
		OnFatalError:                       func(err error) { fatal <- err },
	}
}
