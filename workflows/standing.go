package workflows

import (
	"cmp"
	"errors"
	"fmt"

	"go.temporal.io/sdk/temporal"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// claims are those that stand, the destination's first: it decides.
func (s *Standing) claims() []*activities.Claim {
	var claims []*activities.Claim
	for _, one := range []activities.Standing{s.Destination, s.Origin} {
		if one.Claim != nil {
			claims = append(claims, one.Claim)
		}
	}
	return claims
}

// moved is whether the fence was ever asked for: every attempt at one raises the origin's token first.
func (s *Standing) moved() bool {
	origin := s.Origin
	return !s.leftBehind() && (origin.Stamp != "" || s.Destination.Keys > 0 || origin.Claim != nil && origin.Claim.Token.Number() > 1)
}

// leftBehind is a claim at a destination where the tenant lives: a claim that a worker of a dead move made after all
// else was over.
func (s *Standing) leftBehind() bool {
	return !s.Committed && s.Destination.Claim != nil && s.opensAtDestination() && s.Origin.Claim == nil && s.Origin.Keys == 0
}

// opensAtDestination is a LogicalCluster at the destination that no uncommitted move can have written.
func (s *Standing) opensAtDestination() bool {
	return s.Destination.HasLogicalCluster && s.Destination.Stamp == ""
}

// allow refuses, with a typed error, what would not be safe or would do nothing as things stand. It is pure, and asked
// twice: before anything is changed, and again when both claims are held and nothing can change any more.
func (s *Standing) allow(input RecoverInput) error {
	for _, refuse := range []func(RecoverInput) error{s.refuseUnreachable, s.refuseClaims, s.refuseWorkflows} {
		if err := refuse(input); err != nil {
			return err
		}
	}
	switch {
	case s.Committed:
		return s.refuseCommitted(input)
	case input.DestinationIsLost:
		return s.refuseWithoutDestination()
	}
	return s.refuseUncommitted(input)
}

func (s *Standing) refuseUnreachable(input RecoverInput) error {
	origin, destination := s.Origin, s.Destination
	switch {
	case origin.Unreachable != "":
		return activities.Refuse(activities.Unreachable, "nothing can be done without origin shard %s: %s", origin.Shard, origin.Unreachable)
	case input.DestinationIsLost && (destination.Unreachable == "" || s.Route == destination.Shard):
		return activities.Refuse(activities.DestinationAnswers, "shard %s is not lost: it, or the front-proxies for it, gave an answer just now; undo without destinationIsLost", destination.Shard)
	case !input.DestinationIsLost && destination.Unreachable != "":
		return activities.Refuse(activities.Unreachable,
			"only destination shard %s can say whether the commit has landed, and it cannot be asked: %s. Bring it and its worker back; only where it never comes back, undo with destinationIsLost",
			destination.Shard, destination.Unreachable)
	}
	return nil
}

// refuseClaims refuses where there are none, and where they do not belong together.
func (s *Standing) refuseClaims(RecoverInput) error {
	claims := s.claims()
	if len(claims) == 0 && s.Origin.Stamp == "" {
		return activities.Refuse(activities.NothingToRecover, "no move has a claim of it on shards %s and %s, and none has left its fence", s.Origin.Shard, s.Destination.Shard)
	}
	for _, claim := range claims {
		if claim.OriginShard != s.Origin.Shard || claim.DestinationShard != s.Destination.Shard {
			return activities.Refuse(activities.AlreadyMigrating, "a claim is of another move, by workflow %s from shard %s to %s; recover that one first, by naming these shards",
				claim.WorkflowID, claim.OriginShard, claim.DestinationShard)
		}
	}
	if len(claims) == 2 && claims[0].Move() != claims[1].Move() {
		return activities.Refuse(activities.TwoCopies, "shards %s and %s are claimed by different moves, of runs %s and %s; %s",
			s.Destination.Shard, s.Origin.Shard, claims[0].Move(), claims[1].Move(), byHand)
	}
	return nil
}

// refuseWorkflows refuses while a workflow may be at work that a claim names. It spares people a mess rather than the
// tenant a danger: where a claim is taken from a workflow that lives, that one can do nothing more.
func (s *Standing) refuseWorkflows(input RecoverInput) error {
	for _, found := range s.Workflows {
		switch {
		case found.Running:
			return activities.Refuse(activities.AlreadyMigrating,
				"workflow %[1]s, which holds a claim, is running: there is nothing to recover. Follow it with `kcp-migrate watch %[1]s`, or take it back with `kcp-migrate abort %[1]s`", found.WorkflowID)
		case found.Name == "" && !input.WorkflowIsLost:
			return activities.Refuse(activities.WorkflowUnknown,
				"this Temporal namespace does not know workflow %s (run %s), which holds a claim; make sure that it runs in no other, then go on with workflowIsLost", found.WorkflowID, found.RunID)
		}
	}
	return nil
}

// byHand is for what no claim can decide.
const byHand = "only a person can tell which of the two is the tenant's: compare them with `kcp-migrate verify`, see docs/operations.md"

func (s *Standing) refuseCommitted(input RecoverInput) error {
	origin, destination := s.Origin, s.Destination
	if origin.Claim == nil && origin.Keys > 0 {
		return activities.Refuse(activities.TwoCopies,
			"the commit has landed on shard %s, but shard %s, which the move no longer claims, holds %d keys of the tenant; %s", destination.Shard, origin.Shard, origin.Keys, byHand)
	}
	if input.Action == TakeBack {
		return activities.Refuse(activities.AlreadyCommitted,
			"the commit has landed: the tenant lives on shard %s and may have written there; finish the move with `kcp-migrate recover … --resume`", destination.Shard)
	}
	return nil
}

// refuseWithoutDestination keeps an origin closed that is no longer whole.
func (s *Standing) refuseWithoutDestination() error {
	if s.Origin.HasLogicalCluster && (s.Origin.Claim == nil || s.Origin.Claim.DroppedAt == 0) {
		return nil
	}
	return activities.Refuse(activities.AlreadyCommitted,
		"the commit has landed: shard %s has begun to delete what it held of the tenant, and cannot serve it any more; restore shard %s from a backup", s.Origin.Shard, s.Destination.Shard)
}

func (s *Standing) refuseUncommitted(input RecoverInput) error {
	origin, destination := s.Origin, s.Destination
	switch {
	case s.leftBehind() && input.Action == Resume:
		return activities.Refuse(activities.NothingToRecover, "the tenant lives on shard %s; only a claim was left there: undo gives it back", destination.Shard)
	case s.leftBehind():
		return nil
	case s.opensAtDestination():
		return activities.Refuse(activities.TwoCopies, "no commit of this move has landed on shard %s, but there is a LogicalCluster that the move has not written; %s", destination.Shard, byHand)
	case !origin.HasLogicalCluster:
		return activities.Refuse(activities.LogicalClusterNotFound,
			"no commit has landed, but shard %s has no LogicalCluster any more; what shard %s holds, %d keys, may be all there is of the tenant: look before anything is deleted", origin.Shard, destination.Shard, destination.Keys)
	}
	return nil
}

// advise says what a person can do as things stand.
func (s *Standing) advise(logicalCluster string, input RecoverInput) string {
	command := "`kcp-migrate recover " + logicalCluster
	if input.WorkflowIsLost {
		command += " --workflow-is-lost"
	}
	undo, resume := input, input
	undo.Action, resume.Action = TakeBack, Resume
	undoErr, resumeErr := s.allow(undo), s.allow(resume)
	switch {
	case undoErr == nil && resumeErr == nil:
		return fmt.Sprintf("no commit has landed: the tenant belongs to shard %s. %s --undo` takes the move back; %s --resume` takes it back and moves the tenant anew", s.Origin.Shard, command, command)
	case resumeErr == nil:
		return fmt.Sprintf("the commit has landed: the tenant belongs to shard %s. %s --resume` finishes the move", s.Destination.Shard, command)
	case undoErr == nil:
		return fmt.Sprintf("the tenant lives on shard %s, and only a claim was left there. %s --undo` gives it back", s.Destination.Shard, command)
	}
	var refusal *temporal.ApplicationError
	if errors.As(resumeErr, &refusal) {
		return refusal.Message()
	}
	return resumeErr.Error()
}

// path is the workspace's, as whichever shard knows it.
func (s *Standing) path() string {
	for _, claim := range s.claims() {
		if claim.Path != "" {
			return claim.Path
		}
	}
	return cmp.Or(s.Origin.Path, s.Destination.Path)
}
