package workflows

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"
)

const (
	// patience is how long a step that is retried without end may take before the status says what holds it up.
	patience = 15 * time.Second
	// A step that must not be skipped is tried again after a permanent error: often enough to go on soon after a
	// person has mended the cause, seldom enough that two weeks of tries stay far below Temporal's limit of 51,200 events.
	firstPause   = 5 * time.Second
	longestPause = 10 * time.Minute
	// What the workflow itself retries is part of the time away: quick, and ended by maxTimeAway.
	firstRetry   = 100 * time.Millisecond
	longestRetry = 2 * time.Second
)

// insist repeats what must not be skipped until it is done: what is retryable the activity's own policy retries, and
// after a permanent error the next try waits for a person to mend the cause. ctx must be a disconnected one.
func (m *migration) insist(ctx workflow.Context, what string, attempt func(workflow.Context) error) {
	_ = m.insistWhile(ctx, func(error) bool { return true }, what, attempt) // whatever the error, it goes on
}

// insistWhile gives up on an error that is not worth it, and gives that.
func (m *migration) insistWhile(
	ctx workflow.Context, worthIt func(error) bool, what string, attempt func(workflow.Context) error,
) error {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := m.patiently(ctx, what, attempt)
		if err == nil || !worthIt(err) {
			return err
		}
		workflow.GetLogger(ctx).Error("Step must not be skipped and is tried again", "step", what, "pause", pause, "error", err)
		m.advise(ctx, "%s: %s. Mend the cause; it is tried again every %s", what, message(err), pause)
		m.stalled(ctx)
		if err := timer(ctx, Duration(pause), "Pause before the next try").Get(ctx, nil); err != nil {
			workflow.GetLogger(ctx).Error("Pause was cut short", "error", err)
		}
		m.advise(ctx, "")
	}
}

// retried makes every attempt anew where Temporal's own retries, which repeat an activity's input, will not do.
func retried[Out any](ctx workflow.Context, attempt func() (*Out, error)) (*Out, error) {
	for pause := firstRetry; ; pause = min(2*pause, longestRetry) {
		result, err := attempt()
		if err == nil || !passing(err) {
			return result, err
		}
		if err := timer(ctx, Duration(pause), "Pause before the next try").Get(ctx, nil); err != nil {
			return nil, err
		}
	}
}

// insistOn insists on an activity that has no result; ctx says where it runs.
func insistOn[In any](ctx workflow.Context, m *migration, activity func(context.Context, In) error, input In) {
	m.insist(ctx, summary(ctx), func(ctx workflow.Context) error { return do(ctx, activity, input) })
}

// insistOnResult insists on an activity's result; ctx says where it runs.
func insistOnResult[In, Out any](ctx workflow.Context, m *migration, activity func(context.Context, In) (*Out, error), input In) *Out {
	var result *Out
	m.insist(ctx, summary(ctx), func(ctx workflow.Context) (err error) {
		result, err = call(ctx, activity, input)
		return err
	})
	return result
}

// patiently makes one attempt, which watchPatience looks at.
func (m *migration) patiently(ctx workflow.Context, what string, attempt func(workflow.Context) error) error {
	m.waitsFor, m.waitsSince = what, workflow.Now(ctx)
	err := attempt(ctx)
	m.waitsFor = ""
	m.advise(ctx, "")
	return err
}

// watchPatience looks from time to time whether one attempt takes long, and says so in the status: nothing else would
// tell that it is being retried. It looks less and less often at the same one, and not at all while a person is waited for,
// for the sake of the history's length.
func (m *migration) watchPatience(ctx workflow.Context) {
	workflow.GoNamed(ctx, "patience", func(ctx workflow.Context) {
		pause := patience
		waits := func() bool { return m.waitsFor != "" }
		for workflow.Await(ctx, waits) == nil && timer(ctx, Duration(pause), "See whether something takes long").Get(ctx, nil) == nil {
			waited := workflow.Now(ctx).Sub(m.waitsSince)
			if m.waitsFor == "" || waited < patience {
				pause = patience
				continue
			}
			m.advise(ctx, "%s has taken %s. See its last failure and heartbeat among the pending activities, and that the shard's worker, etcd and kcp can be reached",
				m.waitsFor, waited.Round(time.Second))
			m.stalled(ctx)
			pause = min(2*pause, longestPause)
		}
	})
}

func summary(ctx workflow.Context) string { return workflow.GetActivityOptions(ctx).Summary }

// timer starts a timer whose summary people read in the web UI.
func timer(ctx workflow.Context, after Duration, summary string) workflow.Future {
	return workflow.NewTimerWithOptions(ctx, time.Duration(after), workflow.TimerOptions{Summary: summary})
}

// wait waits for a future that, unlike an activity's, does not end with ctx.
func wait(ctx workflow.Context, future workflow.Future) error {
	if err := workflow.Await(ctx, future.IsReady); err != nil {
		return err
	}
	return future.Get(ctx, nil)
}

// message is an error in its activity's own words.
func message(err error) string {
	text, _ := described(err)
	return text
}

func (m *migration) warn(format string, args ...any) {
	m.status.Warnings = append(m.status.Warnings, fmt.Sprintf(format, args...))
}
