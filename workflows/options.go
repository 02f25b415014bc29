package workflows

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// Activities are named through nil pointers: only their methods' names reach Temporal.
var (
	fleet *activities.Fleet
	shard *activities.Shard
)

const (
	// workerMissingAfter is how long a preflight waits for a shard's worker before it says that there is none.
	workerMissingAfter = 8 * time.Second
	// heartbeatTimeout is twenty of the activities' heartbeats.
	heartbeatTimeout = 10 * time.Second
)

// inspection is for preflight: nothing is changed yet, and a person would rather be told than wait. A cancelled one is
// waited for: a workflow that ends in the very task that accepts an abort loses the abort when an event, like the end of
// the inspection, comes between (Temporal fails that task with UnhandledCommand, and the Update with it).
var inspection = workflow.ActivityOptions{
	StartToCloseTimeout: time.Minute, // a digest of two million entries
	HeartbeatTimeout:    heartbeatTimeout,
	WaitForCancellation: true,
	RetryPolicy: &temporal.RetryPolicy{
		InitialInterval:    500 * time.Millisecond,
		BackoffCoefficient: 2,
		MaximumAttempts:    3,
	},
}

// glancing is for a shard that may be lost: that it does not answer is an answer, which a person waits for. A worker that
// is frozen may still take as many attempts as it had polls open; one beside it gets the next.
var glancing = workflow.ActivityOptions{
	ScheduleToStartTimeout: workerMissingAfter,
	StartToCloseTimeout:    20 * time.Second, // a list of 100,000 keys
	HeartbeatTimeout:       3 * time.Second,
	WaitForCancellation:    true,
	RetryPolicy: &temporal.RetryPolicy{
		InitialInterval:    500 * time.Millisecond,
		BackoffCoefficient: 1,
		MaximumAttempts:    6,
	},
}

// edit is for a few Txns: an attempt that takes longer has lost its worker.
var edit = workflow.ActivityOptions{
	StartToCloseTimeout: 10 * time.Second,
	RetryPolicy:         tireless,
}

// attempted is for what helps where it succeeds.
var attempted = workflow.ActivityOptions{
	StartToCloseTimeout: 10 * time.Second,
	RetryPolicy:         &temporal.RetryPolicy{MaximumAttempts: 3},
}

// taking is for a claim, the one write that no token can lock out later: a cancelled one is waited for, so that the
// release comes after it.
var taking = workflow.ActivityOptions{
	StartToCloseTimeout: 10 * time.Second,
	WaitForCancellation: true,
	RetryPolicy:         tireless,
}

// installing is for a CRD after the other; a provider with hundreds of schemas takes some seconds.
var installing = workflow.ActivityOptions{
	StartToCloseTimeout: time.Minute,
	RetryPolicy:         tireless,
}

// long is for all that grows with the tenant or waits for kcp; its heartbeats tell that the worker lives.
var long = workflow.ActivityOptions{
	StartToCloseTimeout: time.Hour,
	HeartbeatTimeout:    heartbeatTimeout,
	RetryPolicy:         tireless,
}

// renewing is for kcp's cache server, without which the move is whole all the same.
var renewing = workflow.ActivityOptions{
	ScheduleToCloseTimeout: 5 * time.Minute,
	HeartbeatTimeout:       heartbeatTimeout,
	RetryPolicy:            tireless,
}

// once is long, but the workflow itself makes the next attempt.
var once = workflow.ActivityOptions{
	StartToCloseTimeout: time.Hour,
	HeartbeatTimeout:    heartbeatTimeout,
	RetryPolicy:         &temporal.RetryPolicy{MaximumAttempts: 1},
}

// tireless retries without end: what another try cannot mend comes back as a permanent error. The first retries are
// quick because most of them are part of the tenant's time away.
var tireless = &temporal.RetryPolicy{
	InitialInterval:    100 * time.Millisecond,
	BackoffCoefficient: 2,
	MaximumInterval:    2 * time.Second,
}

// anywhere has an activity run on any worker. The summary is what the web UI shows.
func anywhere(ctx workflow.Context, options workflow.ActivityOptions, summary string) workflow.Context {
	options.TaskQueue = TaskQueue
	options.Summary = summary
	return workflow.WithActivityOptions(ctx, options)
}

// beside has an activity run on a worker of the shard.
func beside(ctx workflow.Context, shard string, options workflow.ActivityOptions, summary string) workflow.Context {
	options.TaskQueue = ShardTaskQueue(shard)
	options.Summary = summary
	return workflow.WithActivityOptions(ctx, options)
}

// call runs an activity to its result.
func call[In, Out any](ctx workflow.Context, activity func(context.Context, In) (*Out, error), input In) (*Out, error) {
	var result Out
	if err := workflow.ExecuteActivity(ctx, activity, input).Get(ctx, &result); err != nil {
		return nil, err
	}
	return &result, nil
}

// do runs an activity that has no result.
func do[In any](ctx workflow.Context, activity func(context.Context, In) error, input In) error {
	return workflow.ExecuteActivity(ctx, activity, input).Get(ctx, nil)
}

// passing reports whether another try may help: the error is neither permanent nor a cancellation.
func passing(err error) bool {
	var application *temporal.ApplicationError
	if errors.As(err, &application) && application.NonRetryable() {
		return false
	}
	return !temporal.IsCanceledError(err)
}

// isOutOfSpace reports whether a step waits for a person to make room in an etcd.
func isOutOfSpace(err error) bool {
	var application *temporal.ApplicationError
	return errors.As(err, &application) && application.Type() == activities.NoSpace
}
