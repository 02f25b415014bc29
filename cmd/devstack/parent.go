package main

import (
	"context"
	"os"
	"time"
)

// parentPollInterval is how late an orphan notices: short enough for a test's port or
// file not to be missed.
const parentPollInterval = 200 * time.Millisecond

// withParent ends the context when the parent process has ended. It asks for the
// parent's ID again and again, because the signal that Linux offers instead
// (PR_SET_PDEATHSIG) comes already when the parent's thread ends.
func withParent(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	parent := os.Getppid()
	go func() {
		ticker := time.NewTicker(parentPollInterval)
		defer ticker.Stop()
		for os.Getppid() == parent {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
		cancel()
	}()
	return ctx, cancel
}
