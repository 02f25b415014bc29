package main

import (
	"context"
	"slices"
	"time"

	"go.temporal.io/api/enums/v1"
)

// Where the time away begins and ends, and what it is called where no activity ran.
const (
	firstAway = "FenceOrigin"
	lastAway  = "AwaitServing"
	between   = "between activities"
)

// activityRun is one completed activity of a workflow.
type activityRun struct {
	name                          string
	scheduled, started, completed time.Time
}

// activityRuns reads a workflow's history.
func (s *stack) activityRuns(ctx context.Context, workflowID, runID string) ([]activityRun, error) {
	history := s.temporal.GetWorkflowHistory(ctx, workflowID, runID, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	runs := map[int64]*activityRun{}
	var order []int64
	for history.HasNext() {
		event, err := history.Next()
		if err != nil {
			return nil, err
		}
		at := event.GetEventTime().AsTime()
		if scheduled := event.GetActivityTaskScheduledEventAttributes(); scheduled != nil {
			runs[event.GetEventId()] = &activityRun{name: scheduled.GetActivityType().GetName(), scheduled: at}
			order = append(order, event.GetEventId())
		}
		if started := event.GetActivityTaskStartedEventAttributes(); started != nil {
			runs[started.GetScheduledEventId()].started = at
		}
		if completed := event.GetActivityTaskCompletedEventAttributes(); completed != nil {
			runs[completed.GetScheduledEventId()].completed = at
		}
	}
	var complete []activityRun
	for _, id := range order {
		if !runs[id].completed.IsZero() {
			complete = append(complete, *runs[id])
		}
	}
	return complete, nil
}

// breakDown says how long each activity ran while the tenant was away, and how long none did: that is Temporal's share. What
// runs beside others counts in full, so the parts may add up to more than the whole.
func breakDown(runs []activityRun) map[string]float64 {
	from, to := awayWindow(runs)
	parts := map[string]float64{}
	var inside []activityRun
	for _, run := range runs {
		run.started, run.completed = later(run.started, from), sooner(run.completed, to)
		if run.completed.After(run.started) {
			parts[run.name] += run.completed.Sub(run.started).Seconds()
			inside = append(inside, run)
		}
	}
	if to.After(from) {
		parts[between] = (to.Sub(from) - covered(inside)).Seconds()
	}
	return parts
}

func awayWindow(runs []activityRun) (from, to time.Time) {
	for _, run := range runs {
		if run.name == firstAway && from.IsZero() {
			from = run.scheduled
		}
		if run.name == lastAway && to.IsZero() {
			to = run.completed
		}
	}
	return from, to
}

// covered is how long at least one of them ran.
func covered(runs []activityRun) time.Duration {
	slices.SortFunc(runs, func(a, b activityRun) int { return a.started.Compare(b.started) })
	var total time.Duration
	var until time.Time
	for _, run := range runs {
		if run.completed.After(until) {
			total += run.completed.Sub(later(run.started, until))
			until = run.completed
		}
	}
	return total
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func sooner(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
