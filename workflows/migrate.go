package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// MigrateLogicalCluster moves one logical cluster from the shard it lives on to another: the story that the package
// comment tells.
func MigrateLogicalCluster(ctx workflow.Context, input Input) (*Result, error) {
	m := newMigration(ctx, input)
	forth, stop := workflow.WithCancel(ctx)
	m.stop = stop
	if err := m.setup(ctx); err != nil {
		return nil, err
	}
	err := m.run(ctx, forth)
	return m.finish(ctx, err)
}

// migration is the state of one move.
type migration struct {
	input  Input
	status Status
	info   *workflow.Info

	// Found by preflight.
	location        activities.Location
	boundResources  []activities.BoundResource
	transferAddress string
	inspectedAt     time.Time
	liftTo          int64

	// The tokens as last raised: an attempt may have raised one and died before it could say so.
	originToken      activities.Token
	destinationToken activities.Token

	reached    step
	waitsFor   string // what is attempted without end right now
	waitsSince time.Time
	approved   bool
	undoing    bool
	over       bool
	// destinationIsLost: a person's word, on which an undo does without the destination.
	destinationIsLost bool
	destinationIsLeft bool  // an undo could not empty it in order
	originIsTaken     bool  // somebody else has the origin's claim, or has deleted it: no fence can be lifted under this one
	cause             error // what stopped the way to the commit, where neither Temporal nor an activity did
	undoErr           error
	stop              workflow.CancelFunc // ends the way to the commit
	stopWaking        workflow.CancelFunc

	woken     workflow.Future
	informers informers
	fenceHeld workflow.Future // the plan's minimum fence is over

	fenceRevision  int64
	verified       activities.VerifyResult
	commitInput    activities.CommitInput
	commitRevision int64
	droppedAt      int64 // the origin's revision once its LogicalCluster was gone
	accounted      int64 // the origin's revision up to which stragglers have been told
	fates          map[activities.Ref]fate
	phaseSince     time.Time
}

func newMigration(ctx workflow.Context, input Input) *migration {
	info := workflow.GetInfo(ctx)
	// The original run's ID survives a reset of the workflow, and so does the claim that names it.
	token := activities.NewToken(info.OriginalRunID)
	m := &migration{input: input.withDefaults(), info: info, originToken: token, destinationToken: token, fates: map[activities.Ref]fate{}}
	m.status.LogicalCluster = input.LogicalCluster
	m.status.DestinationShard = input.DestinationShard
	m.status.DryRun = input.DryRun
	m.status.Phase = Preparing
	m.status.Step = notStarted.String()
	m.status.StartedAt = workflow.Now(ctx)
	m.phaseSince = m.status.StartedAt
	return m
}

func (m *migration) setup(ctx workflow.Context) error {
	if err := m.answerQueries(ctx); err != nil {
		return err
	}
	return m.takeOrders(ctx)
}

// run goes forth to the commit, which ctx's cancellation, an abort or an error may stop; then either back or, once the
// commit has landed, only onward.
func (m *migration) run(ctx, forth workflow.Context) error {
	if err := m.accept(); err != nil {
		return err
	}
	watching, watched := workflow.NewDisconnectedContext(ctx)
	defer watched()
	m.watchPatience(watching)
	err := m.goForth(forth)
	if err == nil && m.input.DryRun {
		return nil
	}
	onward, _ := workflow.NewDisconnectedContext(ctx)
	if err != nil {
		if m.cause != nil {
			err = m.cause
		}
		if committed := m.undo(onward); !committed {
			return err
		}
		m.warn("the move was to be taken back (%s), but its commit had landed", message(err))
	}
	m.goOnward(onward)
	return nil
}

// accept refuses what is wrong with the start itself.
func (m *migration) accept() error {
	if err := m.input.Validate(); err != nil {
		return err
	}
	return m.acceptTimeouts()
}

func (m *migration) acceptTimeouts() error {
	if timeout := m.timeout(); timeout > 0 {
		return activities.Refuse(activities.WorkflowTimeoutSet,
			"the workflow was started with a timeout of %s, which could end it halfway and leave the tenant fenced; start it without, and use maxTimeAway", timeout)
	}
	return nil
}

// noTimeout is how long a timeout must be to count as none. Servers and test environments that fill in a default use
// ten years.
const noTimeout = 10 * 365 * 24 * time.Hour

// timeout is the shorter of the workflow's timeouts, 0 where it has none.
func (m *migration) timeout() time.Duration {
	shortest := time.Duration(noTimeout)
	for _, timeout := range []time.Duration{m.info.WorkflowRunTimeout, m.info.WorkflowExecutionTimeout} {
		if timeout > 0 {
			shortest = min(shortest, timeout)
		}
	}
	if shortest == noTimeout {
		return 0
	}
	return shortest
}

// goForth takes the steps that can be taken back. A pause holds between the first ones; none is accepted from the fence on.
func (m *migration) goForth(ctx workflow.Context) error {
	for _, row := range []struct {
		step step
		take func(workflow.Context) error
	}{
		{preflight, m.preflight},
		{claimOrigin, m.claimOrigin},
		{claimDestination, m.claimDestination},
		{readyDestination, m.readyDestination},
		{gate, m.gate},
		{fenceOrigin, m.fenceOrigin},
		{fenceDestination, m.fenceDestination},
		{copyEntries, m.copyEntries},
		{verifyEntries, m.verifyEntries},
		{commit, m.commit},
	} {
		if err := m.awaitResume(ctx); err != nil {
			return err
		}
		ended := m.begin(ctx, row.step)
		if err := row.take(ctx); err != nil {
			return err
		}
		ended()
		if m.input.DryRun {
			return nil
		}
	}
	return nil
}

// goOnward takes the steps after the commit's landing. None can fail: each is insisted on until it is done.
func (m *migration) goOnward(ctx workflow.Context) {
	m.landed(ctx)
	for _, row := range []struct {
		step step
		take func(workflow.Context)
	}{
		{serve, m.serve},
		{cleanUpOrigin, m.cleanUpOrigin},
		{finalizeDestination, m.finalizeDestination},
	} {
		ended := m.begin(ctx, row.step)
		row.take(ctx)
		ended()
	}
	m.enter(ctx, Completed)
}

// landed marks the point of no return. Where it was the seal that found the commit landed, the commit is asked once
// more for its revision, which a repeat only tells.
func (m *migration) landed(ctx workflow.Context) {
	m.status.Committed, m.status.Aborting, m.undoing = true, false, false
	m.stop()
	m.enter(ctx, OriginCleanup)
	if m.commitRevision > 0 {
		return
	}
	m.insist(ctx, "Ask for the revision of the commit", m.land)
}

// begin starts a step and gives what ends it. Reaching it is noted first: that is what an undo goes by.
func (m *migration) begin(ctx workflow.Context, step step) (ended func()) {
	started := workflow.Now(ctx)
	m.reached = step
	m.status.Step = step.String()
	m.waitsFor, m.waitsSince = step.String(), started
	m.show(ctx)
	return func() {
		m.waitsFor = ""
		m.status.Steps = append(m.status.Steps, Step{Name: step.String(), Took: Duration(workflow.Now(ctx).Sub(started))})
	}
}

// finish tells everyone who waits, and Temporal, how the move ended.
func (m *migration) finish(ctx workflow.Context, err error) (*Result, error) {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	if err != nil {
		m.enter(ctx, Failed)
	}
	m.over = true
	m.status.Step, m.status.Advice, m.status.Aborting = "", "", false
	m.show(ctx)
	m.count(ctx, err)
	if waitErr := workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) }); waitErr != nil {
		return nil, waitErr
	}
	if err != nil {
		return nil, m.failure(err)
	}
	return &m.status.Result, nil
}

// failure carries the result, so that clients can show what was undone.
func (m *migration) failure(cause error) error {
	if temporal.IsCanceledError(cause) {
		return temporal.NewCanceledError(m.status.Result)
	}
	message, errorType := described(cause)
	var failed *temporal.ActivityError // names the activity and the worker; anything else would only repeat the message
	if !errors.As(cause, &failed) {
		cause = nil
	}
	if m.undoErr != nil {
		message = fmt.Sprintf("%s; the undo is incomplete: %v", message, m.undoErr)
	}
	return temporal.NewApplicationErrorWithOptions(message, errorType, temporal.ApplicationErrorOptions{
		NonRetryable: true,
		Cause:        cause,
		Details:      []any{m.status.Result},
	})
}

// described gives an activity's own words and type, without Temporal's wrapping.
func described(err error) (message, errorType string) {
	var application *temporal.ApplicationError
	if errors.As(err, &application) {
		return application.Message(), application.Type()
	}
	return err.Error(), ""
}
