package installation

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/kcp-migrate/kcp-migrate/workflows"
)

const (
	// temporalNamespace is the one devstack registers.
	temporalNamespace = "default"
	// workerDeadline bounds a worker's start: it dials etcd, kcp and Temporal.
	workerDeadline = time.Minute
)

// StartWorker starts a worker process beside a shard and returns once it polls the shard's queue.
func (i *Installation) StartWorker(ctx context.Context, shardName string, flags ...string) (*Process, error) {
	shard, err := i.Shard(shardName)
	if err != nil {
		return nil, err
	}
	started := time.Now()
	log := filepath.Join(i.logs, fmt.Sprintf("worker-%s-%d.log", shardName, len(i.beside)+1))
	arguments := append([]string{"worker", "--config", shard.WorkerConfig}, flags...)
	worker, err := StartProcess(log, filepath.Join(i.binDir, "kcp-migrate"), arguments...)
	if err != nil {
		return nil, err
	}
	i.beside = append(i.beside, worker)
	ctx, cancel := context.WithTimeout(ctx, workerDeadline)
	defer cancel()
	if err := i.awaitPoller(ctx, workflows.ShardTaskQueue(shardName), started, worker); err != nil {
		return nil, fmt.Errorf("await worker of shard %s: %w", shardName, err)
	}
	return worker, nil
}

// Temporal dials the installation's Temporal server.
func (i *Installation) Temporal(ctx context.Context) (client.Client, error) {
	return client.DialContext(ctx, client.Options{HostPort: i.TemporalAddress, Namespace: temporalNamespace})
}

// awaitPoller waits until somebody has polled the queue since a worker's start: Temporal remembers earlier pollers for minutes.
func (i *Installation) awaitPoller(ctx context.Context, queue string, since time.Time, worker *Process) error {
	temporal, err := i.Temporal(ctx)
	if err != nil {
		return err
	}
	defer temporal.Close()
	return await(ctx, func() (bool, error) {
		select {
		case <-worker.Done():
			return false, fmt.Errorf("it ended: %w", worker.Failure())
		default:
		}
		response, err := temporal.WorkflowService().DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
			Namespace:     temporalNamespace,
			TaskQueue:     &taskqueue.TaskQueue{Name: queue},
			TaskQueueType: enums.TASK_QUEUE_TYPE_ACTIVITY,
		})
		if err != nil {
			return false, err
		}
		for _, poller := range response.GetPollers() {
			if poller.GetLastAccessTime().AsTime().After(since) {
				return true, nil
			}
		}
		return false, nil
	})
}
