package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
	"github.com/kcp-migrate/kcp-migrate/activities/objects"
)

const (
	wakeLock = "wake"
	// wakeCleanup bounds what a cancelled wake may still take to lift system:shard's fence.
	wakeCleanup = 5 * time.Second
)

// WakeShard cures a shard that went blind when a logical cluster of it was fenced: kcp cancels all wildcard
// requests then, its own informers' included, until some logical cluster of that shard goes from Inactive to
// Ready. Every shard has system:shard of its own for that. One wake at a time per shard.
func (s *Shard) WakeShard(ctx context.Context, input GuardInput) (*WakeResult, error) {
	result := &WakeResult{}
	err := heartbeating(ctx, func(ctx context.Context) (err error) {
		if err := s.wake(ctx, input.Guard); err != nil {
			return err
		}
		if result.Cut, err = s.Store.LatestCut(ctx); err != nil {
			return fmt.Errorf("read latest cut on shard %s: %w", s.Name, err)
		}
		return nil
	})
	if err != nil {
		return nil, permanent(err)
	}
	return result, nil
}

func (s *Shard) wake(ctx context.Context, guard Guard) error {
	unlock, err := s.Store.Lock(ctx, wakeLock)
	if err != nil {
		return fmt.Errorf("lock wake of shard %s: %w", s.Name, err)
	}
	defer unlock()
	for patience := nudgeEvery; ; patience = min(2*patience, nudgeAtMost) {
		if err := s.toggleSystemShard(ctx, guard); err != nil {
			return err
		}
		probes := s.probeFor(ctx, patience, s.API.ProbeWildcard)
		for failing(probes) != "" && !mayBeNudged(probes) && ctx.Err() == nil {
			// A toggle cuts every tenant's wildcard watches, and cannot bring back a server that does not answer.
			probes = s.probeFor(ctx, nudgeAtMost, s.API.ProbeWildcard)
		}
		if failing(probes) == "" {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("await wildcard lists on shard %s: %s: %w", s.Name, failing(probes), ctx.Err())
		}
	}
}

// AwaitInformers waits until the shard's own informers, those of every API server, are connected again after the latest
// cut. kcp's informers never notice what was deleted while they were cut off (docs/kcp-findings.md, Trap 6), so nothing of
// the tenant may be deleted before. Each informer waits for a time of its own: that all have come back, the workflow
// concludes from how long these took.
func (s *Shard) AwaitInformers(ctx context.Context, input GuardInput) (*InformersResult, error) {
	result := &InformersResult{}
	err := heartbeating(ctx, func(ctx context.Context) (err error) {
		if result.Cut, err = s.awaitInformers(ctx, input.Guard.LogicalCluster); err != nil {
			return err
		}
		if result.OthersSince, err = s.Store.OthersSince(ctx, input.Guard.LogicalCluster); err != nil {
			return fmt.Errorf("find other moves on shard %s: %w", s.Name, err)
		}
		return nil
	})
	if err != nil {
		return nil, permanent(err)
	}
	return result, nil
}

// awaitInformers gives the cut that they have come back from. It looks anew where another came meanwhile.
func (s *Shard) awaitInformers(ctx context.Context, logicalCluster string) (int64, error) {
	for {
		cut, err := s.settledCut(ctx)
		if err != nil {
			return 0, err
		}
		if err := s.API.AwaitInformers(ctx, logicalCluster); err != nil {
			return 0, fmt.Errorf("await informers of shard %s: %w", s.Name, err)
		}
		latest, err := s.Store.LatestCut(ctx)
		if err != nil {
			return 0, fmt.Errorf("read latest cut on shard %s: %w", s.Name, err)
		}
		if latest == cut {
			return cut, nil
		}
	}
}

// settledCut waits until kcp must have acted on what was noted last: an informer that is about to be cut off would pass for
// one that has come back.
func (s *Shard) settledCut(ctx context.Context) (int64, error) {
	for before := int64(-1); ; {
		latest, err := s.Store.LatestCut(ctx)
		if err != nil {
			return 0, fmt.Errorf("read latest cut on shard %s: %w", s.Name, err)
		}
		if latest == before {
			return latest, nil
		}
		before = latest
		if err := sleep(ctx, nudgeEvery); err != nil {
			return 0, err
		}
	}
}

// toggleSystemShard takes system:shard to Inactive and back; it never leaves it fenced, whatever ends ctx.
func (s *Shard) toggleSystemShard(ctx context.Context, guard Guard) error {
	_, err := s.editLogicalCluster(ctx, guard, keyspace.SystemShard, func(present *objects.LogicalCluster) error {
		if present.Inactive() {
			return errKeep // a wake that died left it so
		}
		present.Fence(string(guard.Token))
		return nil
	})
	if err != nil {
		return err
	}
	waited := s.awaitToggled(ctx)
	lifting, cancel := context.WithTimeout(context.WithoutCancel(ctx), wakeCleanup)
	defer cancel()
	if err := s.liftSystemShard(lifting, guard); err != nil {
		return errors.Join(waited, err)
	}
	if waited != nil {
		return waited
	}
	patient, cancelled := context.WithTimeout(ctx, controllerPatience)
	defer cancelled()
	return s.awaitPhase(patient, keyspace.SystemShard, objects.PhaseReady)
}

// awaitToggled waits until kcp's controller has made system:shard Inactive. Where somebody has taken the annotation away again
// that may never come: whether the shard is awake all the same its answers tell.
func (s *Shard) awaitToggled(ctx context.Context) error {
	patient, cancel := context.WithTimeout(ctx, controllerPatience)
	defer cancel()
	return s.awaitLogicalCluster(patient, keyspace.SystemShard, "phase "+objects.PhaseInactive, func(present *objects.LogicalCluster) bool {
		return present.Phase() == objects.PhaseInactive || !present.Inactive()
	})
}

// liftSystemShard lifts system:shard's fence even where an undo has raised this move's token in the meantime.
func (s *Shard) liftSystemShard(ctx context.Context, guard Guard) error {
	for {
		_, err := s.editLogicalCluster(ctx, guard, keyspace.SystemShard, func(present *objects.LogicalCluster) error {
			if !present.Inactive() {
				return errKeep
			}
			present.Lift()
			return nil
		})
		if !errors.Is(err, ErrTokenLost) {
			return err
		}
		claim, claimErr := s.Store.ReadClaim(ctx, guard.LogicalCluster)
		if claimErr != nil || !claim.Token.SameRun(guard.Token) || claim.Token == guard.Token {
			return errors.Join(err, claimErr)
		}
		guard.Token = claim.Token
	}
}
