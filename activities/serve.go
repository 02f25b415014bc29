package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kcp-migrate/kcp-migrate/activities/objects"
)

// errNotServable says that there is nothing to wait for: the cluster is gone, being deleted or fenced by somebody.
var errNotServable = errors.New("logical cluster is not to be served")

// AwaitServing waits until every API server of the destination serves the logical cluster, its bound resources
// and wildcard lists.
func (s *Shard) AwaitServing(ctx context.Context, input ServeInput) (*ServeResult, error) {
	result := &ServeResult{}
	err := heartbeating(ctx, noDetails, func(ctx context.Context) (err error) {
		result.Nudges, err = s.awaitServing(ctx, input.Guard, input.Resources)
		return err
	})
	if err != nil {
		return nil, permanent(err)
	}
	result.ServingAt = time.Now()
	return result, nil
}

// awaitServing nudges until all API servers answer: only a server whose own controller sees the phase Inactive
// without the annotation drops its cancelled contexts, and with several servers that is a race.
func (s *Shard) awaitServing(ctx context.Context, guard Guard, resources []BoundResource) (nudges int, err error) {
	for {
		reason, err := s.serves(ctx, guard.LogicalCluster, resources)
		if errors.Is(err, errNotServable) || err == nil && reason == "" {
			return nudges, nil
		}
		if err != nil || ctx.Err() != nil {
			return nudges, errors.Join(fmt.Errorf("await shard %s serving %s: %s: %w", s.Name, guard.LogicalCluster, reason, ctx.Err()), err)
		}
		if err := s.nudgeOpen(ctx, guard); err != nil {
			return nudges, err
		}
		nudges++
	}
}

// serves polls for one nudge's time and gives the reason why it is still waiting, empty when all is served.
func (s *Shard) serves(ctx context.Context, logicalCluster string, resources []BoundResource) (string, error) {
	waiting, cancel := context.WithTimeout(ctx, nudgeEvery)
	defer cancel()
	last := "no answer yet"
	err := until(waiting, func(waiting context.Context) (string, error) {
		reason, err := s.servable(waiting, logicalCluster)
		if err != nil {
			return last, err
		}
		if reason == "" {
			reason = failing(s.API.ProbeServing(waiting, logicalCluster))
		}
		if reason == "" && len(resources) > 0 {
			reason = failing(s.API.ProbeResources(waiting, logicalCluster, resources))
		}
		last = reason
		return reason, nil
	})
	if err != nil && !errors.Is(err, errNotServable) && waiting.Err() != nil {
		return last, nil
	}
	return last, err
}

// servable gives the phase that is still in the way.
func (s *Shard) servable(ctx context.Context, logicalCluster string) (string, error) {
	parsed, _, err := s.readLogicalCluster(ctx, logicalCluster)
	if errors.Is(err, ErrNotFound) {
		return "", errNotServable
	}
	if err != nil {
		return "", err
	}
	if parsed.Inactive() || parsed.BeingDeleted() {
		return "", errNotServable
	}
	if phase := parsed.Phase(); phase != objects.PhaseReady {
		return "phase is " + phase, nil
	}
	return "", nil
}

// nudgeOpen writes the phase Inactive once more, without the annotation: every API server's controller sees it,
// and drops what it had cancelled.
func (s *Shard) nudgeOpen(ctx context.Context, guard Guard) error {
	_, err := s.editLogicalCluster(ctx, guard, guard.LogicalCluster, func(present *objects.LogicalCluster) error {
		if present.Inactive() || present.BeingDeleted() {
			return errKeep
		}
		present.SetPhase(objects.PhaseInactive)
		return nil
	})
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}
