package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

const (
	// lookInterval is how often a move is looked at: often enough for a move of a second, and next to no work for its worker.
	lookInterval = 300 * time.Millisecond
	// lookPatience is how long one look may take.
	lookPatience = 2 * time.Second

	copyActivity = "CopyEntries"
)

// follow shows a move's progress on stderr until it is over and then its result on stdout.
// Neither the end of ctx nor timeout touches the move.
func follow(ctx context.Context, term terminal, temporal client.Client, run client.WorkflowRun, format outputFormat, timeout time.Duration) error {
	waiting, stop := ctx, func() {}
	if timeout > 0 {
		waiting, stop = context.WithTimeout(ctx, timeout)
	}
	defer stop()
	progress := newProgress(term.err, format)
	result, err := awaitEnd(waiting, temporal, run, progress)
	progress.end()
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("look on %s: stopped; the move goes on. Come back with: %s watch %s", run.GetID(), term.program, run.GetID())
	}
	if timeout > 0 && outOfTime(waiting, err) {
		return stillRunningError{workflowID: run.GetID()}
	}
	return finish(term, run.GetID(), result, err, format)
}

// finish prints the result, also of a move that failed, and gives the failure.
func finish(term terminal, workflowID string, result workflows.Result, err error, format outputFormat) error {
	var failure *moveError
	if err != nil {
		failure = newMoveError(err)
		result = failure.result
	}
	if result.LogicalCluster != "" {
		err := format.print(term.out, result, []string{workflowID}, func(out *tabwriter.Writer) { printResult(out, &result) })
		if err != nil {
			return fmt.Errorf("print result of %s: %w", workflowID, err)
		}
	}
	if failure != nil {
		return failure
	}
	return nil
}

// awaitEnd hands every look at the move to progress and gives the move's end. Looks that fail are not its end:
// they only leave progress where it was.
func awaitEnd(ctx context.Context, temporal client.Client, run client.WorkflowRun, progress progress) (workflows.Result, error) {
	type end struct {
		result workflows.Result
		err    error
	}
	ended := make(chan end, 1)
	go func() {
		var e end
		e.err = run.Get(ctx, &e.result)
		ended <- e
	}()
	ticks := time.NewTicker(lookInterval)
	defer ticks.Stop()
	lastAnswer := time.Now()
	for {
		look, err := lookAt(ctx, temporal, run.GetID(), run.GetRunID())
		if err == nil {
			lastAnswer = look.At
			progress.show(look)
		} else if time.Since(lastAnswer) > answerPatience {
			progress.warn(fmt.Sprintf("no worker answers for %s: start one with the worker command, the move then goes on", run.GetID()))
			lastAnswer = time.Now()
		}
		select {
		case e := <-ended:
			return e.result, e.err
		case <-ticks.C:
		}
	}
}

// look is a move at one moment.
type look struct {
	workflows.Status
	At time.Time
	// Copied is how far the running copy has come, nil when none runs.
	Copied *activities.CopyProgress
	// WaitsFor says what running activities wait for, and why those failed that are tried again.
	WaitsFor []string
}

func lookAt(ctx context.Context, temporal client.Client, workflowID, runID string) (look, error) {
	ctx, stop := context.WithTimeout(ctx, lookPatience)
	defer stop()
	now := look{At: time.Now()}
	if err := queryStatus(ctx, temporal, workflowID, runID, &now.Status); err != nil {
		return look{}, err
	}
	description, err := temporal.DescribeWorkflow(ctx, workflowID, runID)
	if err != nil {
		return look{}, fmt.Errorf("describe workflow %s: %w", workflowID, err)
	}
	return now, now.readActivities(description.RawResponse.GetPendingActivities())
}

func (l *look) readActivities(pending []*workflowpb.PendingActivityInfo) error {
	for _, activity := range pending {
		name := activity.GetActivityType().GetName()
		if failure := activity.GetLastFailure(); failure != nil {
			l.WaitsFor = append(l.WaitsFor, fmt.Sprintf("%s, attempt %d after: %s", name, activity.GetAttempt(), failure.GetMessage()))
		}
		if err := l.readHeartbeat(name, activity.GetHeartbeatDetails()); err != nil {
			return fmt.Errorf("read heartbeat of %s: %w", name, err)
		}
	}
	return nil
}

// readHeartbeat takes in how far a copy has come, and what any other activity says that it waits for.
func (l *look) readHeartbeat(activity string, details *commonpb.Payloads) error {
	if len(details.GetPayloads()) == 0 {
		return nil
	}
	payload := details.GetPayloads()[0]
	if activity == copyActivity {
		l.Copied = &activities.CopyProgress{}
		if err := converter.GetDefaultDataConverter().FromPayload(payload, l.Copied); err != nil {
			return err
		}
		if l.Copied.Slowed != "" {
			l.WaitsFor = append(l.WaitsFor, activity+": "+l.Copied.Slowed)
		}
		return nil
	}
	var reason any
	if err := converter.GetDefaultDataConverter().FromPayload(payload, &reason); err != nil {
		return err
	}
	if text, isText := reason.(string); isText && text != "" {
		l.WaitsFor = append(l.WaitsFor, activity+": "+text)
	}
	return nil
}

func queryStatus(ctx context.Context, temporal client.Client, workflowID, runID string, status *workflows.Status) error {
	answer, err := temporal.QueryWorkflow(ctx, workflowID, runID, workflows.StatusQuery)
	if err != nil {
		return fmt.Errorf("query status of %s: %w", workflowID, err)
	}
	if err := answer.Get(status); err != nil {
		return fmt.Errorf("read status of %s: %w", workflowID, err)
	}
	return nil
}

func printResult(out *tabwriter.Writer, result *workflows.Result) {
	property(out, "Logical cluster", nameAndPath(result.LogicalCluster, result.Path))
	property(out, "From", result.OriginShard)
	property(out, "To", result.DestinationShard)
	property(out, "Phase", string(result.Phase))
	if result.Entries > 0 {
		property(out, "Entries", fmt.Sprintf("%s (%s)", countText(result.Entries), bytesText(result.Bytes)))
	}
	property(out, "SHA-256", result.SHA256)
	if result.TimeAway > 0 {
		property(out, "Time away", durationText(time.Duration(result.TimeAway)))
	}
	printSteps(out, result.Steps)
	list(out, "Stragglers", stragglerLines(result))
	list(out, "Warnings", result.Warnings)
	list(out, "Undone", result.Undone)
	list(out, "Not undone, see docs/operations.md", result.NotUndone)
}

func printSteps(out io.Writer, steps []workflows.Step) {
	if len(steps) == 0 {
		return
	}
	fmt.Fprintln(out)
	row(out, "STEP", "TOOK")
	for _, step := range steps {
		row(out, step.Name, durationText(time.Duration(step.Took)))
	}
}

// stragglerLines name what a person must know. What kcp's controllers wrote where nobody lives any more is only counted, and so is
// what the result has no room to name.
func stragglerLines(result *workflows.Result) []string {
	var lines []string
	named := workflows.StragglerCounts{}
	for _, straggler := range result.Stragglers {
		fate := "carried to the destination"
		switch {
		case straggler.Discarded:
			named.Discarded++
			continue
		case straggler.Carried:
			named.Carried++
		default:
			named.NotCarried++
			fate = "not carried: " + straggler.Reason
		}
		write := "written"
		if straggler.Deleted {
			write = "deleted"
		}
		lines = append(lines, fmt.Sprintf("%s, %s at the origin after verification, %s", straggler.Ref, write, fate))
	}
	counts := result.StragglerCounts
	if more := counts.NotCarried - named.NotCarried; more > 0 {
		lines = append(lines, fmt.Sprintf("%s more were NOT carried; the results of DeleteOriginEntries and CarryStragglers in the workflow's history name them, see docs/operations.md",
			countText(int64(more))))
	}
	if more := counts.Carried - named.Carried; more > 0 {
		lines = append(lines, countText(int64(more))+" more were carried to the destination")
	}
	if counts.Discarded > 0 {
		lines = append(lines, fmt.Sprintf("%s entries that kcp's own controllers wrote after the origin's LogicalCluster had gone were deleted there", countText(int64(counts.Discarded))))
	}
	return lines
}
