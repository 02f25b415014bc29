package etcd

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

// limitedBurst is how long what has not been used of a limit may be caught up with.
const limitedBurst = 100 * time.Millisecond

// pace is what every read, write and deletion of a move waits for: what an operator allows, and the brake.
type pace struct {
	maxEntries, maxBytes int
	entries, bytes       *rate.Limiter
	// brake is nil where there is none.
	brake *brake
}

func newPaceOf(config Config) *pace {
	return &pace{
		maxEntries: config.MaxEntriesPerSecond, entries: newLimit(config.MaxEntriesPerSecond),
		maxBytes: config.MaxBytesPerSecond, bytes: newLimit(config.MaxBytesPerSecond),
	}
}

func newLimit(perSecond int) *rate.Limiter {
	if perSecond <= 0 {
		return rate.NewLimiter(rate.Inf, 0)
	}
	return rate.NewLimiter(rate.Limit(perSecond), max(1, int(float64(perSecond)*limitedBurst.Seconds())))
}

// begin says that a move is at work until end is called.
func (p *pace) begin() (end func()) {
	if p.brake == nil {
		return func() {}
	}
	return p.brake.begin()
}

// wait holds back a request for so many entries and bytes.
func (p *pace) wait(ctx context.Context, entries, bytes int) error {
	if err := spend(ctx, p.entries, entries); err != nil {
		return err
	}
	if err := spend(ctx, p.bytes, bytes); err != nil {
		return err
	}
	if p.brake == nil {
		return nil
	}
	return p.brake.wait(ctx, entries, bytes)
}

// spend waits for n, which may be more than what the limiter gives at once.
func spend(ctx context.Context, limiter *rate.Limiter, n int) error {
	for n > 0 && limiter.Limit() != rate.Inf {
		part := min(n, limiter.Burst())
		if err := limiter.WaitN(ctx, part); err != nil {
			return err
		}
		n -= part
	}
	return nil
}

// Slowed says why the moves at this etcd are slowed down, and is empty where they are not.
func (s *Store) Slowed() string {
	if s.pace.brake == nil {
		return ""
	}
	return s.pace.brake.reason()
}
