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
	err := heartbeating(ctx, func(ctx context.Context) (err error) {
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
// without the annotation drops its cancelled contexts, and with several servers that is a race. Each nudge makes
// every server's controller work, so a slow shard is given more time after each.
func (s *Shard) awaitServing(ctx context.Context, guard Guard, resources []BoundResource) (nudges int, err error) {
	for patience := nudgeEvery; ; patience = min(2*patience, nudgeAtMost) {
		err := s.awaitReady(ctx, guard.LogicalCluster)
		if errors.Is(err, errNotServable) {
			return nudges, nil
		}
		if err != nil {
			return nudges, err
		}
		probes := s.probeFor(ctx, patience, func(ctx context.Context) []Probe {
			probes := s.API.ProbeServing(ctx, guard.LogicalCluster)
			if failing(probes) == "" && len(resources) > 0 {
				return s.API.ProbeResources(ctx, guard.LogicalCluster, resources)
			}
			return probes
		})
		if failing(probes) == "" {
			return nudges, nil
		}
		if ctx.Err() != nil {
			return nudges, fmt.Errorf("await shard %s serving %s: %s: %w", s.Name, guard.LogicalCluster, failing(probes), ctx.Err())
		}
		if !mayBeNudged(probes) {
			continue
		}
		if err := s.nudgeOpen(ctx, guard); err != nil {
			return nudges, err
		}
		nudges++
	}
}

// awaitReady waits for the phase Ready, or gives errNotServable where it cannot come.
func (s *Shard) awaitReady(ctx context.Context, logicalCluster string) error {
	last := "unknown"
	err := s.Store.AwaitLogicalCluster(ctx, logicalCluster, func(present *Object) (bool, error) {
		if present == nil {
			return false, errNotServable
		}
		parsed, err := objects.ParseLogicalCluster(present.Value)
		if err != nil {
			return false, err
		}
		if parsed.Inactive() || parsed.BeingDeleted() {
			return false, errNotServable
		}
		last = parsed.Phase()
		return last == objects.PhaseReady, nil
	})
	if err != nil {
		return fmt.Errorf("await LogicalCluster %s on shard %s ready, its phase is %s: %w", logicalCluster, s.Name, last, err)
	}
	return nil
}

// probeFor repeats a probe until all servers pass it, or so long, and gives the last answers. A request has the
// time of ctx, not of the patience: one that is cut short would say nothing about its server.
func (s *Shard) probeFor(ctx context.Context, patience time.Duration, probe func(context.Context) []Probe) []Probe {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var probes []Probe
	_ = until(waiting, func(context.Context) (string, error) { // the probes tell what its error would
		probes = probe(ctx)
		return failing(probes), nil
	})
	return probes
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
