package activities

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/sdk/activity"

	"github.com/kcp-migrate/kcp-migrate/activities/objects"
)

// CopyEntries pulls every entry but the LogicalCluster from the origin and writes it here. It resumes behind what
// an earlier attempt is known to have written. Its undo is DropDestinationEntries.
func (s *Shard) CopyEntries(ctx context.Context, input CopyInput) (*CopyResult, error) {
	source, hangUp, err := s.Dialer.Dial(input.Origin.Address)
	if err != nil {
		return nil, fmt.Errorf("dial origin worker %s: %w", input.Origin.Address, err)
	}
	defer hangUp()
	run := &copyRun{shard: s, source: source, input: input, progress: resumeCopy(ctx, input)}
	err = heartbeating(ctx, run.toTheEnd)
	if err != nil {
		return nil, permanentForward(fmt.Errorf("copy %s to shard %s: %w", input.Guard.LogicalCluster, s.Name, err))
	}
	return &CopyResult{Revision: run.progress.Revision, Entries: run.progress.Entries, Bytes: run.progress.Bytes}, nil
}

// resumeCopy starts from the last heartbeat of an earlier attempt, if there was one.
func resumeCopy(ctx context.Context, input CopyInput) CopyProgress {
	var progress CopyProgress
	if activity.HasHeartbeatDetails(ctx) && activity.GetHeartbeatDetails(ctx, &progress) == nil && progress.Revision > 0 {
		return progress
	}
	return CopyProgress{Revision: input.Revision}
}

// copyRun is one attempt of a copy.
type copyRun struct {
	shard    *Shard
	source   Source
	input    CopyInput
	progress CopyProgress
}

// toTheEnd copies until the stream ends. Where the pinned revision was compacted it goes on at a newer one: the
// origin is fenced, and what a straggler changed meanwhile is found by the verification.
func (r *copyRun) toTheEnd(ctx context.Context) error {
	for {
		report(ctx, r.progress)
		err := r.stream(ctx)
		if !errors.Is(err, ErrCompacted) {
			return err
		}
		if r.progress.Revision, err = r.source.Revision(ctx, r.input.Origin.Guard); err != nil {
			return fmt.Errorf("read revision of the origin: %w", err)
		}
	}
}

func (r *copyRun) stream(ctx context.Context) error {
	start := r.progress
	request := ReadRequest{LogicalCluster: r.input.Guard.LogicalCluster, Revision: start.Revision}
	if start.Entries > 0 {
		request.After = &start.Last
	}
	entries := r.source.Read(ctx, r.input.Origin.Guard, request)
	return r.shard.Store.Write(ctx, r.input.Guard, entries, func(written Written) {
		r.progress.Slowed = r.shard.slowed()
		r.progress.Written = Written{Last: written.Last, Entries: start.Entries + written.Entries, Bytes: start.Bytes + written.Bytes}
		report(ctx, r.progress)
	})
}

// slowed says why moves at this shard are slowed down, and is empty where they are not.
func (s *Shard) slowed() string {
	reason := s.Store.Slowed()
	if reason == "" {
		return ""
	}
	return fmt.Sprintf("etcd of shard %s: %s", s.Name, reason)
}

// DropDestinationEntries deletes every entry of the logical cluster from a destination that was given up, once nobody is let in
// there any more.
func (s *Shard) DropDestinationEntries(ctx context.Context, input GuardInput) error {
	return permanent(heartbeating(ctx, func(ctx context.Context) error {
		if err := s.encloseAgain(ctx, input.Guard); err != nil {
			return err
		}
		return s.deleteEntries(ctx, input.Guard)
	}))
}

func (s *Shard) deleteEntries(ctx context.Context, guard Guard) error {
	report(ctx, s.slowed)
	if _, err := s.Store.DeleteAll(ctx, guard); err != nil {
		return fmt.Errorf("delete entries of %s on shard %s: %w", guard.LogicalCluster, s.Name, err)
	}
	return nil
}

// encloseAgain fences whatever LogicalCluster stands at a destination that was given up: its clients are to be refused, and not to
// see every entry deleted, nor to be served on both shards. Somebody may have opened it since, and have taken our stamp off it
// too. Whosever it is, it is not the tenant's: preflight found none, and no commit can land any more. Unlike the fence
// that it was written with, one that closes an open logical cluster leaves the shard blind.
func (s *Shard) encloseAgain(ctx context.Context, guard Guard) error {
	if err := s.requireUncommitted(ctx, guard); err != nil {
		return err
	}
	var before string
	_, err := s.editLogicalCluster(ctx, guard, guard.LogicalCluster, func(present *objects.LogicalCluster) error {
		before = present.Phase()
		if present.Inactive() {
			return errKeep
		}
		present.Fence(string(guard.Token))
		return nil
	})
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("close %s on shard %s: %w", guard.LogicalCluster, s.Name, err)
	}
	if err := s.awaitClosed(ctx, guard, before); err != nil {
		return err
	}
	if !mayBeNudged(s.API.ProbeWildcard(ctx)) {
		return nil
	}
	return s.wake(ctx, guard)
}

// awaitClosed waits for kcp to cut what is open. It does so for a logical cluster that was Ready: one that some controller has just
// made may stay Initializing for ever, and has no clients.
func (s *Shard) awaitClosed(ctx context.Context, guard Guard, before string) error {
	if before != objects.PhaseReady && before != objects.PhaseInactive {
		return nil
	}
	err := s.awaitPhase(ctx, guard.LogicalCluster, objects.PhaseInactive, objects.PhaseDeleting, objects.PhaseTerminating)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// requireUncommitted keeps an undo off a destination where the tenant lives. Without a claim the token is lost, which every
// write tells.
func (s *Shard) requireUncommitted(ctx context.Context, guard Guard) error {
	claim, err := s.Store.ReadClaim(ctx, guard.LogicalCluster)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("read claim of %s on shard %s: %w", guard.LogicalCluster, s.Name, err)
	}
	if claim.Committed {
		return Refuse(AlreadyCommitted, "the commit has landed: %s lives on shard %s, where nothing of it is deleted", guard.LogicalCluster, s.Name)
	}
	return nil
}

// SweepDestination deletes what kcp's controllers have made at a destination that was given up: what they missed there,
// even an empty LogicalCluster, made by an APIBinding's controller in mid-work (docs/kcp-findings.md).
func (s *Shard) SweepDestination(ctx context.Context, input GuardInput) error {
	return permanent(heartbeating(ctx, func(ctx context.Context) error {
		if err := s.dropLogicalCluster(ctx, input.Guard); err != nil {
			return err
		}
		return s.deleteEntries(ctx, input.Guard)
	}))
}
