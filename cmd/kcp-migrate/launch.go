package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

const (
	// pickupPatience is how long a move may wait for a worker before its starter is told that there is none.
	// A worker takes a move within milliseconds.
	pickupPatience = 8 * time.Second
	pickupInterval = 50 * time.Millisecond

	// eventsBeforePickup are WorkflowExecutionStarted and WorkflowTaskScheduled; a worker adds the third.
	eventsBeforePickup = 2
)

// launching is a workflow to be started.
type launching struct {
	workflowID   string
	workflowType string
	// summary is what the web UI shows.
	summary string
	input   any
}

// launchingMove is the start of a move, or of the plan of one.
func launchingMove(workflowID string, input workflows.Input) launching {
	return launching{workflowID, workflows.MigrateLogicalClusterName, fmt.Sprintf("%s to %s", input.LogicalCluster, input.DestinationShard), input}
}

// launch starts a workflow and returns once a worker has taken it: one that nobody polls cannot tell that itself.
// The run is nil where it was not started.
func launch(ctx context.Context, term terminal, temporal client.Client, start launching) (client.WorkflowRun, error) {
	queue, err := temporal.DescribeTaskQueue(ctx, workflows.TaskQueue, enumspb.TASK_QUEUE_TYPE_WORKFLOW)
	if err != nil {
		return nil, fmt.Errorf("look for workers on task queue %s: %w", workflows.TaskQueue, err)
	}
	if len(queue.GetPollers()) == 0 {
		return nil, refuseWithoutWorker()
	}
	run, err := temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID:                       start.workflowID,
		TaskQueue:                workflows.TaskQueue,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		// Without it the client would hand out the running workflow as if it were this one.
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		StaticSummary:                            start.summary,
	}, start.workflowType, start.input)
	if running := (*serviceerror.WorkflowExecutionAlreadyStarted)(nil); errors.As(err, &running) {
		return nil, activities.Refuse(activities.AlreadyMigrating,
			"workflow %[1]s is already running (run %[2]s): follow it with `%[3]s watch %[1]s`, or take it back with `%[3]s abort %[1]s`",
			start.workflowID, running.RunId, term.program)
	}
	if err != nil {
		return nil, fmt.Errorf("start workflow %s: %w", start.workflowID, err)
	}
	return run, awaitPickup(ctx, temporal, run)
}

// awaitPickup cancels what no worker takes. Terminating it would be unsafe: a worker might just have taken it.
func awaitPickup(ctx context.Context, temporal client.Client, run client.WorkflowRun) error {
	patience := time.NewTimer(pickupPatience)
	defer patience.Stop()
	ticks := time.NewTicker(pickupInterval)
	defer ticks.Stop()
	for {
		description, err := temporal.DescribeWorkflow(ctx, run.GetID(), run.GetRunID())
		if err != nil {
			return fmt.Errorf("describe workflow %s: %w", run.GetID(), err)
		}
		if description.RawResponse.GetWorkflowExecutionInfo().GetHistoryLength() > eventsBeforePickup {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-patience.C:
			if err := temporal.CancelWorkflow(ctx, run.GetID(), run.GetRunID()); err != nil {
				return fmt.Errorf("cancel workflow %s, which no worker takes: %w", run.GetID(), err)
			}
			return refuseWithoutWorker()
		case <-ticks.C:
		}
	}
}

func refuseWithoutWorker() error {
	return activities.Refuse(activities.ShardWorkerMissing,
		"no worker polls task queue %s: start one beside each shard with the worker command", workflows.TaskQueue)
}
