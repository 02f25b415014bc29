package activities

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kcp-migrate/kcp-migrate/activities/objects"
)

// cutNudges is how often a watch that was not cut is nudged before the move is undone.
const cutNudges = 5

// FenceOrigin keeps everyone out of the logical cluster: it writes the inactive annotation, waits until kcp has
// acknowledged it, and proves through every API server that open watches were cut. Every attempt raises the token
// first, so that none given up for dead can lift or write a fence behind its back. Its undo is LiftFence.
func (s *Shard) FenceOrigin(ctx context.Context, input RaiseInput) (*FenceResult, error) {
	var result *FenceResult
	err := heartbeating(ctx, func(ctx context.Context) error {
		if err := s.Store.RaiseToken(ctx, input.Guard, input.To); err != nil {
			return fmt.Errorf("raise token of %s on shard %s: %w", input.Guard.LogicalCluster, s.Name, err)
		}
		guard := Guard{LogicalCluster: input.Guard.LogicalCluster, Token: input.To}
		// Only a canary that stood before the fence proves the cut: an attempt that finds a fence of an earlier one starts over.
		if err := s.lift(ctx, guard); err != nil {
			return err
		}
		canaries, err := s.API.OpenCanaries(ctx, guard.LogicalCluster)
		if err != nil {
			return fmt.Errorf("open canary watches on shard %s: %w", s.Name, err)
		}
		defer canaries.Close()
		result, err = s.fence(ctx, guard, canaries)
		return err
	})
	if err != nil {
		return nil, permanentForward(err)
	}
	return result, nil
}

func (s *Shard) fence(ctx context.Context, guard Guard, canaries Canaries) (*FenceResult, error) {
	fencedAt := time.Now()
	_, err := s.editLogicalCluster(ctx, guard, guard.LogicalCluster, func(present *objects.LogicalCluster) error {
		if present.BeingDeleted() {
			return Refuse(BeingDeleted, "logical cluster %s is being deleted; let the deletion end", guard.LogicalCluster)
		}
		if present.Inactive() || present.Phase() != objects.PhaseReady {
			return Refuse(NotReady, "logical cluster %s has phase %q, inactive annotation %t; it can be moved when it is Ready",
				guard.LogicalCluster, present.Phase(), present.Inactive())
		}
		present.Fence(string(guard.Token))
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := s.awaitPhase(ctx, guard.LogicalCluster, objects.PhaseInactive); err != nil {
		return nil, err
	}
	nudges, err := s.proveCut(ctx, guard, canaries)
	if err != nil {
		return nil, err
	}
	revision, err := s.Store.Revision(ctx)
	if err != nil {
		return nil, fmt.Errorf("read revision of shard %s: %w", s.Name, err)
	}
	return &FenceResult{FencedAt: fencedAt, Revision: revision, Nudges: nudges}, nil
}

// proveCut waits for the canaries. An API server whose controller first saw the phase already Inactive cuts nothing:
// the phase set back to Ready under the annotation makes every server look again.
func (s *Shard) proveCut(ctx context.Context, guard Guard, canaries Canaries) (int, error) {
	for nudges := 0; ; nudges++ {
		uncut, err := awaitCut(ctx, canaries)
		if err != nil {
			return nudges, fmt.Errorf("await cut of canary watches on shard %s: %w", s.Name, err)
		}
		if len(uncut) == 0 {
			return nudges, nil
		}
		if nudges == cutNudges {
			return nudges, Refuse(WatchesNotCut, "API servers %s of shard %s keep watches of a fenced logical cluster open; where they elect a leader (--enable-leader-election) only that one cuts any: turn it off, else restart them, and start the move again",
				strings.Join(uncut, ", "), s.Name)
		}
		if err := s.nudgeFenced(ctx, guard); err != nil {
			return nudges, err
		}
	}
}

// awaitCut waits for one nudge's time.
func awaitCut(ctx context.Context, canaries Canaries) ([]string, error) {
	waiting, cancel := context.WithTimeout(ctx, nudgeEvery)
	defer cancel()
	uncut, err := canaries.AwaitCut(waiting)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return uncut, nil
	}
	return uncut, err
}

func (s *Shard) nudgeFenced(ctx context.Context, guard Guard) error {
	_, err := s.editLogicalCluster(ctx, guard, guard.LogicalCluster, func(present *objects.LogicalCluster) error {
		if !fencedBy(present, guard.Token) {
			return fmt.Errorf("nudge fence of %s on shard %s: %w", guard.LogicalCluster, s.Name, ErrNotFenced)
		}
		present.SetPhase(objects.PhaseReady)
		return nil
	})
	if err != nil {
		return err
	}
	return s.awaitPhase(ctx, guard.LogicalCluster, objects.PhaseInactive)
}

// fencedBy reports whether the fence of the token's move stands.
func fencedBy(present *objects.LogicalCluster, token Token) bool {
	return present.Inactive() && stampedBy(present, token)
}

// stampedBy reports whether the token's move fenced the object, whoever has removed the annotation since.
func stampedBy(present *objects.LogicalCluster, token Token) bool {
	return token.SameRun(Token(present.Stamp()))
}

// LiftFence gives the tenant back to the origin and waits until every API server serves it.
func (s *Shard) LiftFence(ctx context.Context, input GuardInput) error {
	return permanent(heartbeating(ctx, func(ctx context.Context) error {
		if err := s.lift(ctx, input.Guard); err != nil {
			return err
		}
		// An attempt that died may have lifted it without this proof.
		_, err := s.awaitServing(ctx, input.Guard, nil)
		return err
	}))
}

// lift is a no-op for a cluster that this move has not fenced.
func (s *Shard) lift(ctx context.Context, guard Guard) error {
	revision, err := s.editLogicalCluster(ctx, guard, guard.LogicalCluster, func(present *objects.LogicalCluster) error {
		if !stampedBy(present, guard.Token) {
			return errKeep
		}
		present.Lift()
		return nil
	})
	if errors.Is(err, ErrNotFound) || err == nil && revision == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = s.awaitServing(ctx, guard, nil)
	return err
}

// TouchOrigin writes the fenced LogicalCluster of the origin once more, stamped with the token as it is now, so that every
// route index hears of the origin last before the destination's object is deleted: a front-proxy that hears of such a
// deletion from the shard that had the last word forgets the path of the workspace with it (docs/kcp-findings.md). One that
// is not fenced any more is only touched; one that is gone is told.
func (s *Shard) TouchOrigin(ctx context.Context, input GuardInput) (*TouchResult, error) {
	_, err := s.editLogicalCluster(ctx, input.Guard, input.Guard.LogicalCluster, func(present *objects.LogicalCluster) error {
		if fencedBy(present, input.Guard.Token) {
			present.Fence(string(input.Guard.Token))
			return nil
		}
		present.Touch(time.Now())
		return nil
	})
	return touched(err)
}

// FenceDestination writes the destination's LogicalCluster before any other entry, already inactive, so that the
// destination's controllers leave the half-filled cluster alone. Its undo is DropDestinationLogicalCluster.
func (s *Shard) FenceDestination(ctx context.Context, input FenceDestinationInput) error {
	return permanentForward(heartbeating(ctx, func(ctx context.Context) error {
		if err := s.enclose(ctx, input); err != nil {
			return err
		}
		return until(ctx, func(ctx context.Context) (string, error) {
			return failing(s.API.ProbeFenced(ctx, input.Guard.LogicalCluster)), nil
		})
	}))
}

func (s *Shard) enclose(ctx context.Context, input FenceDestinationInput) error {
	origin, hangUp, err := s.Dialer.Dial(input.Origin.Address)
	if err != nil {
		return fmt.Errorf("dial origin worker %s: %w", input.Origin.Address, err)
	}
	defer hangUp()
	logicalCluster := input.Guard.LogicalCluster
	parsed, _, err := s.readLogicalCluster(ctx, logicalCluster)
	if err == nil && fencedBy(parsed, input.Guard.Token) {
		return nil // an earlier attempt wrote it
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	keys, err := s.Store.Keys(ctx, logicalCluster, leftoversListed)
	if err != nil {
		return fmt.Errorf("list keys of %s on shard %s: %w", logicalCluster, s.Name, err)
	}
	if len(keys) > 0 {
		return Refuse(DestinationNotEmpty, "shard %s holds keys of %s: %s", s.Name, logicalCluster, strings.Join(keys, ", "))
	}
	present, err := origin.LogicalCluster(ctx, input.Origin.Guard)
	if err != nil {
		return fmt.Errorf("read LogicalCluster %s from %s: %w", logicalCluster, input.Origin.Address, err)
	}
	value, err := changed(present.Value, func(object *objects.LogicalCluster) error {
		object.Enclose(string(input.Guard.Token), s.Name)
		return nil
	})
	if err != nil {
		return err
	}
	if _, err := s.Store.EditLogicalCluster(ctx, input.Guard, logicalCluster, 0, value); err != nil {
		return fmt.Errorf("create LogicalCluster %s on shard %s: %w", logicalCluster, s.Name, err)
	}
	return nil
}

// DropDestinationLogicalCluster deletes the LogicalCluster of a destination that was given up, whoever has edited it since
// FenceDestination wrote it.
func (s *Shard) DropDestinationLogicalCluster(ctx context.Context, input GuardInput) error {
	return permanent(s.dropLogicalCluster(ctx, input.Guard))
}

// dropLogicalCluster is for an undo. One that is gone is no error.
func (s *Shard) dropLogicalCluster(ctx context.Context, guard Guard) error {
	if err := s.requireUncommitted(ctx, guard); err != nil {
		return err
	}
	return s.deleteLogicalCluster(ctx, guard, s.Store.DeleteLogicalCluster)
}
