package activities

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
)

const (
	// heartbeatEvery is well below the shortest heartbeat timeout, which is seconds.
	heartbeatEvery = 500 * time.Millisecond
	// pollEvery is short because most waits are part of the tenant's time away; pollAtMost spares a server that
	// something is wrong with, after some ten seconds.
	pollEvery  = 10 * time.Millisecond
	pollAtMost = time.Second
	// nudgeEvery is how long an API server gets before it is told again; kcp's controllers react within 30 ms.
	nudgeEvery = 500 * time.Millisecond
	// nudgeAtMost bounds how patient one becomes with a shard that is slow.
	nudgeAtMost = 4 * time.Second
)

// beat is what the next heartbeat says.
type beat struct {
	mutex   sync.Mutex
	details any
}

type beatKey struct{}

// report sets what the heartbeats of the activity that ctx belongs to say from now on: how far a copy has come, what
// a wait is waiting for, or what a func() string says each time. People read it among the workflow's pending activities.
func report(ctx context.Context, details any) {
	if beat, beating := ctx.Value(beatKey{}).(*beat); beating {
		beat.mutex.Lock()
		defer beat.mutex.Unlock()
		beat.details = details
	}
}

func (b *beat) record(ctx context.Context) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	details := b.details
	if tell, changes := details.(func() string); changes {
		details = tell()
	}
	activity.RecordHeartbeat(ctx, details)
}

// heartbeating runs work while Temporal hears that it is alive.
func heartbeating(ctx context.Context, work func(context.Context) error) error {
	current := &beat{}
	ctx = context.WithValue(ctx, beatKey{}, current)
	done := make(chan struct{})
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		ticker := time.NewTicker(heartbeatEvery)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				current.record(ctx)
			}
		}
	}()
	defer func() {
		close(done)
		<-finished
	}()
	return work(ctx)
}

// until polls a condition until it holds. When ctx ends first the condition's last reason is part of the error.
func until(ctx context.Context, condition func(context.Context) (reason string, err error)) error {
	timer := time.NewTimer(pollEvery)
	defer timer.Stop()
	for pause := pollEvery; ; pause = min(pause+pause/10, pollAtMost) {
		reason, err := condition(ctx)
		if err == nil && reason == "" {
			return nil
		}
		report(ctx, reason)
		if ctx.Err() != nil {
			return errors.Join(fmt.Errorf("%s: %w", reason, ctx.Err()), err)
		}
		if err != nil {
			return err
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
}

// sleep is for where time itself is the condition.
func sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// mayBeNudged reports whether some server answers, and answers wrongly: the others a nudge cannot help.
func mayBeNudged(probes []Probe) bool {
	return slices.ContainsFunc(probes, func(probe Probe) bool { return !probe.OK && !probe.Unreachable })
}

// failing sums up the probes that did not get the wanted answers, empty when all did.
func failing(probes []Probe) string {
	var reasons []string
	for _, probe := range probes {
		if !probe.OK {
			reasons = append(reasons, probe.Server+": "+probe.Detail)
		}
	}
	return strings.Join(reasons, "; ")
}
