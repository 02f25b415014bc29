package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"

	"github.com/kcp-migrate/kcp-migrate/test/faults/point"
)

// heartbeatTimeout is shorter than the product's, so that a bench does not spend its time waiting for the dead.
const heartbeatTimeout = 2 * time.Second

// failpoints tells the bench of every activity's beginning, midst and end, and waits there for its answer.
type failpoints struct {
	interceptor.WorkerInterceptorBase
	control string
	shard   string
}

// InterceptActivity puts the failpoints around an activity.
func (f *failpoints) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &watchedActivity{ActivityInboundInterceptorBase: interceptor.ActivityInboundInterceptorBase{Next: next}, failpoints: f}
}

type watchedActivity struct {
	interceptor.ActivityInboundInterceptorBase
	failpoints *failpoints
}

// ExecuteActivity stops before the activity, in its midst (see watchedStore), and after it: then its effect has landed and
// its answer is still unknown to Temporal.
func (w *watchedActivity) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	info := activity.GetInfo(ctx)
	at := point.Point{
		Shard: w.failpoints.shard, Activity: info.ActivityType.Name, Attempt: int(info.Attempt),
		Workflow: info.WorkflowExecution.ID,
	}
	announce := func(moment point.Moment) {
		at := at
		at.Moment = moment
		w.failpoints.announce(at)
	}
	announce(point.Before)
	midst := sync.OnceFunc(func() { announce(point.During) })
	result, err := w.Next.ExecuteActivity(context.WithValue(ctx, midstKey{}, midst), in)
	if err != nil {
		announce(point.Failed)
		return result, err
	}
	announce(point.After)
	return result, nil
}

// midstKey is under which an activity's context carries what announces its midst.
type midstKey struct{}

// inMidst is called when an activity has done something and has more to do.
func inMidst(ctx context.Context) {
	if announce, watched := ctx.Value(midstKey{}).(func()); watched {
		announce()
	}
}

// announce returns when the bench says so. A bench that is not there holds nothing up.
func (f *failpoints) announce(at point.Point) {
	body, err := json.Marshal(at)
	if err != nil {
		panic(err) // a struct of strings
	}
	response, err := http.Post(f.control, "application/json", bytes.NewReader(body))
	if err != nil {
		fmt.Fprintf(os.Stderr, "announce %s: %v\n", at, err)
		return
	}
	_ = response.Body.Close() // it is empty
}

// InterceptWorkflow shortens what a workflow waits for the dead.
func (f *failpoints) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &impatientWorkflow{interceptor.WorkflowInboundInterceptorBase{Next: next}}
}

type impatientWorkflow struct {
	interceptor.WorkflowInboundInterceptorBase
}

// Init puts the shorter timeout into what the workflow asks of Temporal.
func (w *impatientWorkflow) Init(outbound interceptor.WorkflowOutboundInterceptor) error {
	return w.Next.Init(&impatientCalls{interceptor.WorkflowOutboundInterceptorBase{Next: outbound}})
}

type impatientCalls struct {
	interceptor.WorkflowOutboundInterceptorBase
}

// ExecuteActivity shortens the heartbeat timeout of activities that have one.
func (c *impatientCalls) ExecuteActivity(ctx workflow.Context, activityType string, args ...any) workflow.Future {
	options := workflow.GetActivityOptions(ctx)
	if options.HeartbeatTimeout > 0 {
		options.HeartbeatTimeout = heartbeatTimeout
	}
	return c.Next.ExecuteActivity(workflow.WithActivityOptions(ctx, options), activityType, args...)
}
