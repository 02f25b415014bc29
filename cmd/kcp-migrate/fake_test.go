package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/worker"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

var update = flag.Bool("update", false, "write the golden files anew")

const (
	consumerID  = "migrate-root:consumer"
	consumerRun = "run-1"
)

var startedAt = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// fakeTemporal is a Temporal with at most one move, and perhaps earlier ones.
type fakeTemporal struct {
	client.Client
	// workers is how many poll; without one no move is picked up.
	workers int
	// pickedUp is whether a worker takes the move.
	pickedUp bool
	info     *workflowpb.WorkflowExecutionInfo
	pending  []*workflowpb.PendingActivityInfo
	// earlier are moves that began before it, the latest first.
	earlier []*workflowpb.WorkflowExecutionInfo
	// paths are what the moves' histories tell, by workflow ID.
	paths  map[string]string
	status workflows.Status
	// ended is closed when the move is over.
	ended   chan struct{}
	result  workflows.Result
	failure error
	// answer is what an update's handle gives; nil blocks until the context ends.
	answer func() error
	// unanswered has updates and queries wait in vain.
	unanswered bool
	// hasty has the wait for a move's end break off a moment before its context ends, as Temporal's client may.
	hasty bool

	started   client.StartWorkflowOptions
	input     workflows.Input
	recovery  workflows.RecoverInput
	updated   client.UpdateWorkflowOptions
	cancelled []string
	queries   []string
}

func newFakeTemporal() *fakeTemporal {
	return &fakeTemporal{workers: 1, pickedUp: true, ended: make(chan struct{})}
}

// running gives the fake a move that is under way.
func (f *fakeTemporal) running(status workflows.Status) *fakeTemporal {
	f.info = executionInfo(consumerID, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, map[string]string{
		workflows.LogicalClusterAttribute:   "256hdo017n2m0br9",
		workflows.OriginShardAttribute:      "root",
		workflows.DestinationShardAttribute: "shard-1",
		workflows.PhaseAttribute:            string(status.Phase),
	})
	f.status = status
	return f
}

// over lets the move end.
func (f *fakeTemporal) over(result workflows.Result, failure error) *fakeTemporal {
	f.result, f.failure = result, failure
	close(f.ended)
	return f
}

func executionInfo(workflowID string, state enumspb.WorkflowExecutionStatus, attributes map[string]string) *workflowpb.WorkflowExecutionInfo {
	fields := map[string]*commonpb.Payload{}
	for name, value := range attributes {
		payload, err := converter.GetDefaultDataConverter().ToPayload(value)
		if err != nil {
			panic(err)
		}
		fields[name] = payload
	}
	info := &workflowpb.WorkflowExecutionInfo{
		Execution:        &commonpb.WorkflowExecution{WorkflowId: workflowID, RunId: consumerRun},
		Type:             &commonpb.WorkflowType{Name: workflows.MigrateLogicalClusterName},
		Status:           state,
		StartTime:        timestamppb.New(startedAt),
		SearchAttributes: &commonpb.SearchAttributes{IndexedFields: fields},
		HistoryLength:    eventsBeforePickup + 1,
	}
	if state != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		info.CloseTime = timestamppb.New(startedAt.Add(90 * time.Second))
	}
	return info
}

func (f *fakeTemporal) Close() {}

func (f *fakeTemporal) DescribeTaskQueue(context.Context, string, enumspb.TaskQueueType) (*workflowservice.DescribeTaskQueueResponse, error) {
	return &workflowservice.DescribeTaskQueueResponse{Pollers: make([]*taskqueuepb.PollerInfo, f.workers)}, nil
}

func (f *fakeTemporal) ExecuteWorkflow(_ context.Context, options client.StartWorkflowOptions, _ any, arguments ...any) (client.WorkflowRun, error) {
	if f.info != nil {
		return nil, serviceerror.NewWorkflowExecutionAlreadyStarted("already started", "", consumerRun)
	}
	f.started = options
	switch input := arguments[0].(type) {
	case workflows.Input:
		f.input = input
	case workflows.RecoverInput:
		f.recovery = input
	}
	f.info = executionInfo(options.ID, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, nil)
	if !f.pickedUp {
		f.info.HistoryLength = eventsBeforePickup
	}
	return fakeRun{f, options.ID}, nil
}

func (f *fakeTemporal) GetWorkflow(_ context.Context, workflowID, _ string) client.WorkflowRun {
	return fakeRun{f, workflowID}
}

func (f *fakeTemporal) DescribeWorkflow(_ context.Context, workflowID, _ string) (*client.WorkflowExecutionDescription, error) {
	for _, info := range f.all() {
		if info.GetExecution().GetWorkflowId() == workflowID {
			return &client.WorkflowExecutionDescription{
				RawResponse: &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: info, PendingActivities: f.pending},
			}, nil
		}
	}
	return nil, serviceerror.NewNotFound("workflow not found")
}

func (f *fakeTemporal) all() []*workflowpb.WorkflowExecutionInfo {
	if f.info == nil {
		return f.earlier
	}
	return append([]*workflowpb.WorkflowExecutionInfo{f.info}, f.earlier...)
}

func (f *fakeTemporal) GetWorkflowHistory(_ context.Context, workflowID, _ string, _ bool, _ enumspb.HistoryEventFilterType) client.HistoryEventIterator {
	result, err := converter.GetDefaultDataConverter().ToPayloads(activities.ResolveResult{Location: activities.Location{Path: f.paths[workflowID]}})
	if err != nil {
		panic(err)
	}
	return &fakeHistory{events: []*historypb.HistoryEvent{
		{EventId: 5, Attributes: &historypb.HistoryEvent_ActivityTaskScheduledEventAttributes{
			ActivityTaskScheduledEventAttributes: &historypb.ActivityTaskScheduledEventAttributes{ActivityType: &commonpb.ActivityType{Name: "Resolve"}},
		}},
		{EventId: 7, Attributes: &historypb.HistoryEvent_ActivityTaskCompletedEventAttributes{
			ActivityTaskCompletedEventAttributes: &historypb.ActivityTaskCompletedEventAttributes{ScheduledEventId: 5, Result: result},
		}},
	}}
}

type fakeHistory struct{ events []*historypb.HistoryEvent }

func (h *fakeHistory) HasNext() bool { return len(h.events) > 0 }

func (h *fakeHistory) Next() (*historypb.HistoryEvent, error) {
	event := h.events[0]
	h.events = h.events[1:]
	return event, nil
}

func (f *fakeTemporal) ListWorkflow(_ context.Context, request *workflowservice.ListWorkflowExecutionsRequest) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	f.queries = append(f.queries, request.Query)
	response := &workflowservice.ListWorkflowExecutionsResponse{}
	for _, info := range f.all() {
		running := info.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
		if strings.Contains(request.Query, "ExecutionStatus = 'Running'") && !running || strings.Contains(request.Query, "ExecutionStatus != 'Running'") && running {
			continue
		}
		response.Executions = append(response.Executions, info)
	}
	return response, nil
}

func (f *fakeTemporal) QueryWorkflow(ctx context.Context, _, _ string, _ string, _ ...any) (converter.EncodedValue, error) {
	if f.unanswered {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	payloads, err := converter.GetDefaultDataConverter().ToPayloads(f.status)
	return client.NewValue(payloads), err
}

func (f *fakeTemporal) CancelWorkflow(_ context.Context, workflowID, _ string) error {
	f.cancelled = append(f.cancelled, workflowID)
	return nil
}

func (f *fakeTemporal) UpdateWorkflow(ctx context.Context, options client.UpdateWorkflowOptions) (client.WorkflowUpdateHandle, error) {
	if f.unanswered {
		deadline, _ := ctx.Deadline()
		// Temporal's own answer comes a moment earlier than the end of ctx.
		time.Sleep(time.Until(deadline) - time.Millisecond)
		return nil, client.NewWorkflowUpdateServiceTimeoutOrCanceledError(context.DeadlineExceeded)
	}
	if f.info.GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return nil, serviceerror.NewNotFound("workflow execution already completed")
	}
	f.updated = options
	return fakeUpdate{answer: f.answer}, nil
}

// fakeUpdate is an accepted or rejected update.
type fakeUpdate struct {
	client.WorkflowUpdateHandle
	answer func() error
}

func (f fakeUpdate) Get(ctx context.Context, _ any) error {
	if f.answer == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	return f.answer()
}

// fakeRun is the one move.
type fakeRun struct {
	*fakeTemporal
	id string
}

func (r fakeRun) GetID() string { return r.id }

func (r fakeRun) GetRunID() string { return consumerRun }

func (r fakeRun) GetFirstExecutionRunID() string { return consumerRun }

func (r fakeRun) Get(ctx context.Context, value any) error {
	var hurry <-chan time.Time
	if deadline, limited := ctx.Deadline(); limited && r.hasty {
		hurry = time.After(time.Until(deadline) - time.Millisecond)
	}
	select {
	case <-r.ended:
	case <-hurry:
		return serviceerror.NewDeadlineExceeded("context deadline exceeded")
	case <-ctx.Done():
		return ctx.Err()
	}
	if r.failure == nil {
		*value.(*workflows.Result) = r.result
	}
	return r.failure
}

func (r fakeRun) GetWithOptions(ctx context.Context, value any, _ client.WorkflowRunGetOptions) error {
	return r.Get(ctx, value)
}

// outcome is what a run of the command line left behind.
type outcome struct {
	code     int
	out, err string
}

// typeIn runs the command line as a person would.
func typeIn(ctx context.Context, temporal client.Client, arguments ...string) outcome {
	return typeInWith(ctx, nil, temporal, arguments...)
}

func typeInWith(ctx context.Context, environment map[string]string, temporal client.Client, arguments ...string) outcome {
	return typeInWhere(ctx, environment, func() (client.Client, error) { return temporal, nil }, arguments...)
}

func typeInWhere(ctx context.Context, environment map[string]string, dial func() (client.Client, error), arguments ...string) outcome {
	var out, err bytes.Buffer
	term := terminal{
		program: "kcp-migrate", out: &out, err: &err,
		lookupEnv: func(name string) (string, bool) { value, found := environment[name]; return value, found },
		dial:      func(context.Context, *worker.TemporalConfig) (client.Client, error) { return dial() },
	}
	code := execute(ctx, term, arguments)
	return outcome{code, out.String(), err.String()}
}

// requireGolden compares text with a file in testdata.
func requireGolden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), text)
}

func readJSON[T any](t *testing.T, text string) T {
	t.Helper()
	var value T
	require.NoError(t, json.Unmarshal([]byte(text), &value), text)
	return value
}
