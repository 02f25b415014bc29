package activities

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kcp-migrate/kcp-migrate/activities/objects"
)

// releaseAttempts bounds how often the API servers of a shard are made to drop a context before the move goes on without: the
// tenant is not served meanwhile, for some 50 ms an attempt.
const releaseAttempts = 20

// releaseWithin bounds the same where kcp's controllers do not act, or API servers take their time.
const releaseWithin = 8 * time.Second

// releasePatience is how long an API server's informer gets to see that the fence is off; that takes milliseconds.
const releasePatience = 100 * time.Millisecond

// ReleaseContext lets the origin forget that it cancelled the logical cluster's requests. Without it the origin's virtual
// workspaces of an APIExport that moved away answer 500 for good, and its garbage collector goes on asking for dependents
// until the tenant comes back, and deletes them (docs/kcp-findings.md, traps 4 and 7). The route leads here again until the destination is
// touched: the fence stands all the while, or the phase keeps all but members of system:masters out, so that nobody reads or
// writes what is not the tenant's any more.
func (s *Shard) ReleaseContext(ctx context.Context, input GuardInput) (*ReleaseResult, error) {
	result := &ReleaseResult{}
	err := heartbeating(ctx, func(ctx context.Context) error {
		several := len(s.API.ProbeFenced(ctx, input.Guard.LogicalCluster)) > 1
		began := time.Now()
		for attempt := 0; attempt < releaseAttempts && time.Since(began) < releaseWithin; attempt++ {
			stuck, err := s.release(ctx, input.Guard, several)
			if errors.Is(err, ErrNotFound) {
				return nil // an earlier attempt came so far that it was deleted
			}
			result.Stuck = stuck
			if err != nil || stuck == "" {
				return err
			}
			report(ctx, stuck)
		}
		return nil
	})
	if err != nil {
		return nil, permanent(err)
	}
	return result, nil
}

// release makes the API servers drop their contexts. Where there are several, only one whose own controller sees the
// LogicalCluster before the phase Deleting does, in a race with the others' (Trap 3 of docs/kcp-findings.md). Which has, an
// answer tells only where no fence comes before it: stuck names those that have not. One that does not answer is not waited for.
func (s *Shard) release(ctx context.Context, guard Guard, several bool) (stuck string, err error) {
	if stuck, err := s.dismiss(ctx, guard); err != nil || stuck != "" || !several {
		return stuck, err
	}
	if err := s.Store.NoteDropping(ctx, guard); err != nil { // kcp's controllers are let in
		return "", fmt.Errorf("note on shard %s that %s is dropped: %w", s.Name, guard.LogicalCluster, err)
	}
	_, err = s.editLogicalCluster(ctx, guard, guard.LogicalCluster, func(present *objects.LogicalCluster) error {
		present.Reserve()
		return nil
	})
	if err != nil {
		return "", err
	}
	probes := s.probeFor(ctx, releasePatience, func(ctx context.Context) []Probe {
		return s.API.ProbeCluster(ctx, guard.LogicalCluster)
	})
	_, err = s.editLogicalCluster(ctx, guard, guard.LogicalCluster, func(present *objects.LogicalCluster) error {
		present.Fence(string(guard.Token))
		return nil
	})
	if err != nil || !mayBeNudged(probes) {
		return "", err
	}
	return failing(probes), nil
}

// dismiss has kcp's controllers look at the LogicalCluster as one that is being deleted. Stuck is that none has acted on it.
func (s *Shard) dismiss(ctx context.Context, guard Guard) (stuck string, err error) {
	_, err = s.editLogicalCluster(ctx, guard, guard.LogicalCluster, func(present *objects.LogicalCluster) error {
		present.Fence(string(guard.Token)) // whoever may have taken it away
		present.Dismiss(time.Now())
		return nil
	})
	if err != nil {
		return "", err
	}
	patient, cancel := context.WithTimeout(ctx, controllerPatience)
	defer cancel()
	err = s.awaitPhase(patient, guard.LogicalCluster, objects.PhaseDeleting)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return fmt.Sprintf("kcp's controller has not acted on the LogicalCluster for %s", controllerPatience), nil
	}
	return "", err
}

// DropOriginLogicalCluster deletes the origin's LogicalCluster after the commit.
func (s *Shard) DropOriginLogicalCluster(ctx context.Context, input GuardInput) (*DropResult, error) {
	if err := s.deleteLogicalCluster(ctx, input.Guard, s.Store.DropLogicalCluster); err != nil {
		return nil, permanent(err)
	}
	revision, err := s.droppedAt(ctx, input.Guard.LogicalCluster)
	if err != nil {
		return nil, permanent(err)
	}
	return &DropResult{Revision: revision}, nil
}

// droppedAt is the same however often it is asked, by whichever run: what kcp's controllers write at the origin in the
// meantime must not look like the tenant's.
func (s *Shard) droppedAt(ctx context.Context, logicalCluster string) (int64, error) {
	claim, err := s.Store.ReadClaim(ctx, logicalCluster)
	if err != nil {
		return 0, fmt.Errorf("read claim of %s on shard %s: %w", logicalCluster, s.Name, err)
	}
	if claim.DroppedAt > 0 {
		return claim.DroppedAt, nil
	}
	revision, err := s.Store.Revision(ctx) // somebody else has deleted it
	if err != nil {
		return 0, fmt.Errorf("read revision of shard %s: %w", s.Name, err)
	}
	return revision, nil
}

// deleteLogicalCluster deletes it, in one of the store's ways, whatever somebody edits meanwhile: its life goes on at the
// other shard.
func (s *Shard) deleteLogicalCluster(
	ctx context.Context, guard Guard, remove func(ctx context.Context, guard Guard, modRevision int64) error,
) error {
	for {
		present, err := s.Store.LogicalCluster(ctx, guard.LogicalCluster)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read LogicalCluster %s on shard %s: %w", guard.LogicalCluster, s.Name, err)
		}
		err = remove(ctx, guard, present.ModRevision)
		if errors.Is(err, ErrConflict) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return fmt.Errorf("delete LogicalCluster %s on shard %s: %w", guard.LogicalCluster, s.Name, err)
		}
		return nil
	}
}

// TouchDestination edits the destination's LogicalCluster so that every route index hears of it last: one whose last
// word came from the origin forgets the logical cluster when the origin's object goes. One that the tenant has deleted
// there is told.
func (s *Shard) TouchDestination(ctx context.Context, input GuardInput) (*TouchResult, error) {
	_, err := s.editLogicalCluster(ctx, input.Guard, input.Guard.LogicalCluster, func(present *objects.LogicalCluster) error {
		present.Touch(time.Now())
		return nil
	})
	return touched(err)
}

const (
	// holdEvery is how soon a route that the origin has turned is turned back.
	holdEvery = time.Second
	// holdFor is how long one activity may keep a worker's place from others: of a shard that dies, many may be held.
	holdFor = time.Minute
)

// HoldRoute touches the destination again and again, less and less often, for a minute: whoever edits the origin's
// LogicalCluster meanwhile, and whatever dies there, the tenant's clients are led to the destination again soon. It ends where the
// tenant was deleted.
func (s *Shard) HoldRoute(ctx context.Context, input GuardInput) (result *TouchResult, err error) {
	began := time.Now()
	err = heartbeating(ctx, func(ctx context.Context) error {
		for pause := holdEvery; ; pause += pause / 10 {
			if result, err = s.TouchDestination(ctx, input); err != nil || result.Gone || time.Since(began) > holdFor {
				return err
			}
			if err := sleep(ctx, pause); err != nil {
				return err
			}
		}
	})
	return result, err
}

// touched is what a touch has found.
func touched(err error) (*TouchResult, error) {
	if errors.Is(err, ErrNotFound) {
		return &TouchResult{Gone: true}, nil
	}
	if err != nil {
		return nil, permanent(err)
	}
	return &TouchResult{}, nil
}

// stragglersListed bounds how many stragglers one sweep tells, so that they fit into a payload of 512 KiB, above which Temporal
// warns, with what becomes of them; the next sweep tells more.
const stragglersListed = 500

// goneListed bounds how many deletions by others are named; nothing is done about them.
const goneListed = 200

// DeleteOriginEntries deletes at the origin what both sides agreed on, and returns what has changed since. It ends as soon as
// kcp's informers there are cut off anew, by whichever move: they would never notice what is deleted then.
func (s *Shard) DeleteOriginEntries(ctx context.Context, input DeleteInput) (*DeleteResult, error) {
	result := &DeleteResult{}
	err := heartbeating(ctx, func(ctx context.Context) error {
		began, err := s.Store.Revision(ctx)
		if err != nil {
			return fmt.Errorf("read revision of shard %s: %w", s.Name, err)
		}
		report(ctx, s.slowed)
		deleted, stragglers, err := s.Store.DeleteVerified(ctx, input.Guard, input.Revision, input.Cut)
		if errors.Is(err, ErrCutOff) {
			latest, err := s.Store.LatestCut(ctx)
			result.CutOff = max(latest, 1) // somebody has taken the note of it away
			return err
		}
		unknown := errors.Is(err, ErrDeletionsUnknown)
		if err != nil && !unknown {
			return fmt.Errorf("delete entries of %s on shard %s: %w", input.Guard.LogicalCluster, s.Name, err)
		}
		result.Revision, result.Deleted = began, deleted
		result.tell(stragglers, input.Accounted)
		if input.Accounted == 0 {
			result.tellGone(stragglers)
			result.DeletionsUnknown = unknown
		}
		return nil
	})
	if err != nil {
		return nil, permanent(err)
	}
	return result, nil
}

// tell names the oldest of those that were not accounted for before. What one Txn wrote stays together, for the next sweep begins
// behind its revision. Nothing is sure of what was written while the sweep ran: it is told again.
func (r *DeleteResult) tell(stragglers []Straggler, accounted int64) {
	late := slices.DeleteFunc(slices.Clone(stragglers), func(found Straggler) bool {
		return found.Deleted || found.OriginRevision <= accounted
	})
	slices.SortStableFunc(late, func(a, b Straggler) int { return cmp.Compare(a.OriginRevision, b.OriginRevision) })
	end := min(len(late), stragglersListed)
	for end > 0 && end < len(late) && late[end].OriginRevision == late[end-1].OriginRevision {
		end++
	}
	r.Stragglers, r.More, r.Accounted = late[:end], len(late)-end, r.Revision
	if r.More > 0 {
		r.Accounted = min(r.Revision, late[end-1].OriginRevision)
	}
}

func (r *DeleteResult) tellGone(stragglers []Straggler) {
	for _, found := range stragglers {
		switch {
		case !found.Deleted:
		case len(r.Gone) == goneListed:
			r.MoreGone++
		default:
			found.Reason = "deleted at the origin after the verification; deletions are not carried"
			r.Gone = append(r.Gone, found)
		}
	}
}

// CarryStragglers brings late writes of the origin to the destination where nobody has written since the commit.
func (s *Shard) CarryStragglers(ctx context.Context, input CarryInput) (*CarryResult, error) {
	source, hangUp, err := s.Dialer.Dial(input.Origin.Address)
	if err != nil {
		return nil, fmt.Errorf("dial origin worker %s: %w", input.Origin.Address, err)
	}
	defer hangUp()
	result := &CarryResult{}
	err = heartbeating(ctx, func(ctx context.Context) (err error) {
		result.Stragglers, err = s.carry(ctx, source, input)
		return err
	})
	if err != nil {
		return nil, permanent(fmt.Errorf("carry stragglers of %s to shard %s: %w", input.Guard.LogicalCluster, s.Name, err))
	}
	return result, nil
}

func (s *Shard) carry(ctx context.Context, source Source, input CarryInput) ([]Straggler, error) {
	refs := make([]Ref, len(input.Stragglers))
	for i, straggler := range input.Stragglers {
		refs[i] = straggler.Ref
	}
	entries, err := source.Get(ctx, input.Origin.Guard, refs)
	if err != nil {
		return nil, fmt.Errorf("read stragglers of the origin: %w", err)
	}
	found := make(map[Ref]Entry, len(entries))
	for _, entry := range entries {
		found[entry.Ref] = entry
	}
	fates := make([]Straggler, 0, len(input.Stragglers))
	for _, straggler := range input.Stragglers {
		entry, exists := found[straggler.Ref]
		fate, err := s.carryOne(ctx, input, straggler, entry, exists)
		if err != nil {
			return nil, err
		}
		fates = append(fates, fate)
	}
	return fates, nil
}

func (s *Shard) carryOne(ctx context.Context, input CarryInput, straggler Straggler, entry Entry, exists bool) (Straggler, error) {
	straggler.OriginRevision = max(straggler.OriginRevision, entry.ModRevision)
	switch {
	case input.DroppedAt > 0 && straggler.OriginRevision > input.DroppedAt:
		straggler.Discarded = true
		straggler.Reason = "written at the origin by kcp's own controllers after its LogicalCluster had gone; deleted there"
		return straggler, nil
	case !exists:
		straggler.Reason = "written and deleted again at the origin"
		return straggler, nil
	}
	newest := input.CommitRevision
	if entry.CreateRevision > input.VerifiedRevision {
		newest = 0 // new at the origin: only where the destination has none
	}
	written, err := s.Store.PutIfUnchanged(ctx, input.Guard, entry, max(newest, straggler.DestinationRevision))
	if errors.Is(err, ErrTooLarge) {
		straggler.Reason = "too large for the destination's etcd; it was left at the origin"
		return straggler, nil
	}
	if err != nil {
		return straggler, fmt.Errorf("write straggler %s: %w", straggler.Ref, err)
	}
	straggler.Carried, straggler.DestinationRevision = written > 0, written
	if !straggler.Carried {
		straggler.Reason = "changed at the destination since the commit; it was left at the origin, compare both by hand"
	}
	return straggler, nil
}

// DropCarried deletes at the origin the stragglers that the destination has now, or needs not have. One that was
// written again since stays, to be looked at again.
func (s *Shard) DropCarried(ctx context.Context, input DropCarriedInput) error {
	return permanent(heartbeating(ctx, func(ctx context.Context) error {
		for _, straggler := range input.Stragglers {
			if !straggler.Carried && !straggler.Discarded {
				continue
			}
			entry := []Listed{{Ref: straggler.Ref, ModRevision: straggler.OriginRevision}}
			err := s.Store.DeleteRefs(ctx, input.Guard, entry)
			if err != nil && !errors.Is(err, ErrConflict) {
				return fmt.Errorf("delete straggler %s of %s on shard %s: %w", straggler.Ref, input.Guard.LogicalCluster, s.Name, err)
			}
		}
		return nil
	}))
}
