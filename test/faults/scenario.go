package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/kcp-migrate/kcp-migrate/test/faults/point"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

const (
	// endDeadline is how long a move may take to end by itself; half of it would do.
	endDeadline = 2 * time.Minute
	// lingerDeadline is how long an attempt that wakes after its move may go on.
	lingerDeadline = 20 * time.Second
	// hurried is the longest time away of a hurried move: enough where nothing happens.
	hurried = 4 * time.Second
)

// outcome is how one case went.
type outcome struct {
	schedule schedule
	leg      leg
	workflow string
	hits     []string
	result   workflows.Result
	// failure is the type of a move's failure that was taken back.
	failure string
	took    time.Duration
	// stuck is of a move that did not end by itself: nothing else can be tried on that bench.
	stuck      bool
	violations []string
}

func (o *outcome) violate(format string, arguments ...any) {
	o.violations = append(o.violations, fmt.Sprintf(format, arguments...))
}

// play has a schedule happen to one move, and looks at what is left of it. An error is the bench's own.
func (b *bench) play(ctx context.Context, schedule schedule) (*outcome, error) {
	tenant := tenants[schedule.tenant]
	leg, err := b.locate(ctx, tenant)
	if err != nil {
		return nil, err
	}
	if err := b.prepareRevision(ctx, schedule, leg); err != nil {
		return nil, err
	}
	outcome := &outcome{schedule: schedule, leg: leg}
	observation, err := b.observe(ctx, schedule.tenant, leg)
	if err != nil {
		return nil, err
	}
	started := time.Now()
	if err := b.conduct(schedule, leg).move(ctx, outcome); err != nil {
		return nil, errors.Join(err, observation.stop())
	}
	outcome.took = time.Since(started)
	if outcome.stuck {
		return outcome, observation.stop()
	}
	if err := b.awaitReady(ctx); err != nil {
		return nil, errors.Join(err, observation.stop())
	}
	if err := observation.check(ctx, outcome); err != nil {
		return nil, err
	}
	return outcome, b.noteEmptied(ctx, outcome)
}

// conductor lets the blows of a schedule fall on one move.
type conductor struct {
	bench    *bench
	schedule schedule
	leg      leg
	id       string

	mutex    sync.Mutex
	pending  []blow
	hits     []string
	problems []error
	aborted  bool
	healing  sync.WaitGroup
	// over is closed when the move is.
	over chan struct{}
	// orphan is of a move whose workflow was terminated.
	orphan *orphan
	// lingering are the attempts that are held; a channel is closed when its attempt has ended after the move.
	lingering map[point.Point]chan struct{}
}

func (b *bench) conduct(schedule schedule, leg leg) *conductor {
	return &conductor{
		bench: b, schedule: schedule, leg: leg, pending: slices.Clone(schedule.blows),
		over: make(chan struct{}), lingering: map[point.Point]chan struct{}{},
	}
}

// move moves the tenant to the end, whichever.
func (c *conductor) move(ctx context.Context, outcome *outcome) error {
	c.id = fmt.Sprintf("case-%d-%d", c.schedule.number, time.Now().UnixNano())
	outcome.workflow = c.id
	c.bench.control.listen(func(at point.Point) { c.at(ctx, at) })
	defer c.bench.control.listen(nil)
	input := c.schedule.input
	input.LogicalCluster, input.DestinationShard = string(c.schedule.tenant), c.leg.destination
	if c.schedule.order == Hurry {
		input.MaxTimeAway = workflows.Duration(hurried)
	}
	run, err := c.bench.temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: c.id, TaskQueue: workflows.TaskQueue},
		workflows.MigrateLogicalClusterName, input)
	if err != nil {
		return fmt.Errorf("start move: %w", err)
	}
	ended := c.awaitEnd(ctx, run)
	var recovered client.WorkflowRun
	if c.orphan != nil {
		recovered, err = c.recover(ctx, outcome)
	}
	close(c.over)
	c.healing.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	outcome.hits = c.hits
	for _, missed := range c.pending {
		if !missed.optional || len(c.hits) == 0 {
			outcome.violate("missed: %s", missed)
		}
	}
	if !ended {
		outcome.stuck = true
		outcome.violate("the move did not end by itself within %s: %s", endDeadline, c.status(ctx, run))
		return errors.Join(c.problems...)
	}
	if c.orphan != nil {
		return errors.Join(append(c.problems, err, c.concludeRecovered(ctx, recovered, outcome))...)
	}
	return errors.Join(append(c.problems, c.conclude(ctx, run, outcome))...)
}

// awaitEnd asks again and again, whatever has happened to Temporal.
func (c *conductor) awaitEnd(ctx context.Context, run client.WorkflowRun) (ended bool) {
	ctx, cancel := context.WithTimeout(ctx, endDeadline)
	defer cancel()
	err := await(ctx, "the end of the move", func() error {
		ctx, cancel := context.WithTimeout(ctx, askDeadline)
		defer cancel()
		described, err := c.bench.temporal.DescribeWorkflow(ctx, run.GetID(), run.GetRunID())
		if err != nil {
			return err
		}
		if described.Status == enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
			return errors.New("it runs")
		}
		return nil
	})
	return err == nil
}

// status is the step that a stuck move hangs at.
func (c *conductor) status(ctx context.Context, run client.WorkflowRun) string {
	ctx, cancel := context.WithTimeout(ctx, askDeadline)
	defer cancel()
	var status workflows.Status
	answer, err := c.bench.temporal.QueryWorkflow(ctx, run.GetID(), run.GetRunID(), workflows.StatusQuery)
	if err != nil || answer.Get(&status) != nil {
		return "its status cannot be asked for"
	}
	return fmt.Sprintf("at step %q, %s", status.Step, status.Advice)
}

// conclude reads the result, of a failed move out of its failure.
func (c *conductor) conclude(ctx context.Context, run client.WorkflowRun, outcome *outcome) error {
	err := run.Get(ctx, &outcome.result)
	if err == nil {
		return nil
	}
	var failure *temporal.ApplicationError
	if !errors.As(err, &failure) {
		return fmt.Errorf("read result of the move: %w", err)
	}
	outcome.failure = failure.Type()
	if outcome.failure == "" {
		outcome.violate("the move failed without a type: %v", err)
	}
	if failure.HasDetails() {
		return failure.Details(&outcome.result)
	}
	return nil
}

// at lets a blow fall if it is due. The worker that got here waits for it.
func (c *conductor) at(ctx context.Context, reached point.Point) {
	if reached.Workflow != c.id {
		return
	}
	if c.schedule.needs(anUndo) && reached.Activity == "CopyEntries" && reached.Moment == point.After {
		c.abort(ctx)
	}
	c.noteEnd(reached)
	c.noteOrphan(reached)
	blow, due := c.take(reached)
	if !due {
		return
	}
	if blow.fault == Linger {
		c.linger(ctx, blow, reached)
		return
	}
	if blow.fault == Terminate {
		c.terminate(ctx, blow, reached)
		return
	}
	if blow.fault == Meddle {
		c.note(fmt.Sprintf("hit=%q %s at %s", blow.step, blow.fault, reached), blow.meddle(ctx))
		return
	}
	heal, err := c.bench.strike(blow.fault, blow.part, c.leg)
	c.note(fmt.Sprintf("hit=%q %s at %s", blow.step, blow.fault, reached), err)
	c.healing.Go(func() {
		select {
		case <-time.After(blow.hold):
		case <-ctx.Done():
		}
		c.note("", heal())
	})
	c.orderAbort(ctx)
}

func (c *conductor) orderAbort(ctx context.Context) {
	if c.schedule.order == Abort {
		c.healing.Go(func() { c.abort(ctx) })
	}
}

// linger holds the attempt until the move is over, and sees that it ends soon then.
func (c *conductor) linger(ctx context.Context, blow blow, reached point.Point) {
	awake := make(chan struct{})
	c.mutex.Lock()
	c.lingering[attemptOf(reached)] = awake
	c.mutex.Unlock()
	c.note(fmt.Sprintf("hit=%q %s at %s", blow.step, blow.fault, reached), nil)
	c.orderAbort(ctx)
	c.healing.Go(func() {
		<-c.over
		select {
		case <-awake:
		case <-time.After(lingerDeadline):
			c.note("", fmt.Errorf("attempt %s did not end within %s of the move's end", reached, lingerDeadline))
		}
	})
	<-c.over
}

// noteEnd sees whether the attempt that was held has ended.
func (c *conductor) noteEnd(reached point.Point) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	awake, held := c.lingering[attemptOf(reached)]
	if held && c.isOver() && (reached.Moment == point.After || reached.Moment == point.Failed) {
		close(awake)
		delete(c.lingering, attemptOf(reached))
	}
}

// attemptOf leaves out where in the attempt it is.
func attemptOf(reached point.Point) point.Point {
	reached.Moment = ""
	return reached
}

func (c *conductor) isOver() bool {
	select {
	case <-c.over:
		return true
	default:
		return false
	}
}

// take gives the blow that is due at a point, once.
func (c *conductor) take(reached point.Point) (blow, bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	index := slices.IndexFunc(c.pending, func(pending blow) bool { return pending.is(reached, c.leg) })
	if index < 0 {
		return blow{}, false
	}
	due := c.pending[index]
	c.pending = slices.Delete(c.pending, index, index+1)
	return due, true
}

func (c *conductor) note(hit string, problem error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if hit != "" {
		c.hits = append(c.hits, hit)
	}
	if problem != nil {
		c.problems = append(c.problems, problem)
	}
}

// abort asks for it until Temporal has taken the order, or the move refuses it because it is over or has committed.
func (c *conductor) abort(ctx context.Context) {
	c.mutex.Lock()
	before := c.aborted
	c.aborted = true
	c.mutex.Unlock()
	if before {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, endDeadline)
	defer cancel()
	err := await(ctx, "the abort", func() error {
		ctx, cancel := context.WithTimeout(ctx, askDeadline)
		defer cancel()
		_, err := c.bench.temporal.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
			WorkflowID: c.id, UpdateName: workflows.AbortUpdate, Args: []any{workflows.AbortRequest{Reason: "the bench wants it"}},
			WaitForStage: client.WorkflowUpdateStageAccepted,
		})
		var refused *temporal.ApplicationError
		var gone *serviceerror.NotFound
		if err == nil || errors.As(err, &refused) || errors.As(err, &gone) {
			return nil
		}
		return err
	})
	c.note("", err)
}
