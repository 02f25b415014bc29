package main

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"
)

const (
	// defaultMaxTimeAway is the product's own.
	defaultMaxTimeAway = time.Minute
	// tolerance is for what the workflow cannot help: a workflow task that died with its worker (10 s), a sticky queue that nobody
	// polls any more (5 s), and the fault itself.
	tolerance = 20 * time.Second
)

// checkTimeAway reads in the history when the fence was asked for, and when the commit answered or the undo began.
func (b *bench) checkTimeAway(ctx context.Context, outcome *outcome) error {
	longest := defaultMaxTimeAway
	if outcome.schedule.order == Hurry {
		longest = hurried
	}
	var fenced, turned time.Time
	activities := map[int64]string{}
	events := b.temporal.GetWorkflowHistory(ctx, outcome.workflow, "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		if err != nil {
			return fmt.Errorf("read history of %s: %w", outcome.workflow, err)
		}
		at := event.GetEventTime().AsTime()
		if scheduled := event.GetActivityTaskScheduledEventAttributes(); scheduled != nil {
			name := scheduled.GetActivityType().GetName()
			activities[event.GetEventId()] = name
			if name == "FenceOrigin" && fenced.IsZero() {
				fenced = at
			}
			if name == "Seal" && turned.IsZero() {
				turned = at
			}
		}
		if completed := event.GetActivityTaskCompletedEventAttributes(); completed != nil &&
			activities[completed.GetScheduledEventId()] == "Commit" && turned.IsZero() {
			turned = at
		}
	}
	if fenced.IsZero() || turned.IsZero() {
		return nil
	}
	if away := turned.Sub(fenced); away > longest+tolerance {
		outcome.violate("8: neither a commit nor an undo came within %s of the fence, at most %s were given", away, longest)
	}
	return nil
}
