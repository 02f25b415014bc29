package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/test/faults/point"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// orphan is an attempt whose workflow was terminated while it was at work.
type orphan struct {
	attempt point.Point
	once    sync.Once
	ended   chan struct{}
}

func (o *orphan) end() { o.once.Do(func() { close(o.ended) }) }

// terminate ends the move's workflow as a careless person would, while one of its activities is at work.
func (c *conductor) terminate(ctx context.Context, blow blow, reached point.Point) {
	left := &orphan{attempt: attemptOf(reached), ended: make(chan struct{})}
	if reached.Moment == point.After {
		left.end()
	}
	c.mutex.Lock()
	c.orphan = left
	c.mutex.Unlock()
	err := c.bench.temporal.TerminateWorkflow(ctx, c.id, "", "the fault bench wants to recover it")
	c.note(fmt.Sprintf("hit=%q %s at %s", blow.step, blow.fault, reached), err)
}

// noteOrphan sees whether the attempt that lost its workflow has ended.
func (c *conductor) noteOrphan(reached point.Point) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	over := reached.Moment == point.After || reached.Moment == point.Failed
	if c.orphan != nil && over && attemptOf(reached) == c.orphan.attempt {
		c.orphan.end()
	}
}

// recover does what docs/operations.md says, until there is nothing to recover and the attempt that lost its workflow, which may
// go on meanwhile, has ended. The last recovery that had something to do is the end of the move; nil where none had.
func (c *conductor) recover(ctx context.Context, outcome *outcome) (last client.WorkflowRun, err error) {
	ctx, cancel := context.WithTimeout(ctx, endDeadline)
	defer cancel()
	action := workflows.TakeBack
	for number := 1; ; number++ {
		run, failure, err := c.bench.recoverAs(ctx, fmt.Sprintf("%s-recovery-%d", c.id, number),
			workflows.RecoverInput{LogicalCluster: tenants[c.schedule.tenant], Action: action})
		if err != nil {
			return last, err
		}
		switch failure {
		case activities.NothingToRecover:
			if c.awaitOrphan(ctx) {
				return last, nil
			}
		case activities.AlreadyCommitted:
			action = workflows.Resume
		case "":
			last = run
		default:
			outcome.violate("the move could not be recovered: %s", failure)
			return last, nil
		}
	}
}

// recoverAs gives the type of a recovery's failure, empty where it has done what it was asked for.
func (b *bench) recoverAs(ctx context.Context, id string, input workflows.RecoverInput) (run client.WorkflowRun, failure string, err error) {
	run, err = b.temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: workflows.TaskQueue}, workflows.RecoverLogicalClusterName, input)
	if err != nil {
		return nil, "", fmt.Errorf("start recovery: %w", err)
	}
	err = run.Get(ctx, nil)
	var refusal *temporal.ApplicationError
	if errors.As(err, &refusal) {
		return run, refusal.Type(), nil
	}
	return run, "", err
}

// awaitOrphan reports whether the attempt had ended before.
func (c *conductor) awaitOrphan(ctx context.Context) (before bool) {
	select {
	case <-c.orphan.ended:
		return true
	default:
	}
	select {
	case <-c.orphan.ended:
	case <-ctx.Done():
	case <-time.After(lingerDeadline):
		c.note("", fmt.Errorf("attempt %s did not end within %s of its workflow's end", c.orphan.attempt, lingerDeadline))
		c.orphan.end()
	}
	return false
}

// concludeRecovered reads how the move ended by its last recovery or, where there was nothing to recover, by where the tenant is.
func (c *conductor) concludeRecovered(ctx context.Context, last client.WorkflowRun, outcome *outcome) error {
	if last == nil {
		leg, err := c.bench.locate(ctx, tenants[c.schedule.tenant])
		if err != nil {
			return err
		}
		if leg.origin == c.leg.destination {
			outcome.result.Phase = workflows.Completed
		}
	} else if err := last.Get(ctx, &outcome.result); err != nil {
		return fmt.Errorf("read result of the recovery: %w", err)
	}
	if outcome.result.Phase != workflows.Completed {
		outcome.failure = enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED.String()
	}
	return nil
}
