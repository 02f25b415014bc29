package workflows_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// claimOf is a claim of a move that has come as far as its token tells.
func claimOf(move string, token activities.Token) *activities.Claim {
	return &activities.Claim{Token: token, ClaimInfo: activities.ClaimInfo{
		WorkflowID: "migrate-ws", RunID: token.Run(), Recovers: move, OriginShard: origin, DestinationShard: destination,
	}}
}

// sheets are two shards on which a recovery looks: the tenant is fenced and half copied, unless a test changes that.
type sheets struct{ origin, destination activities.Standing }

func halfway(change func(*sheets)) *sheets {
	s := &sheets{
		origin: activities.Standing{
			Shard: origin, Claim: claimOf("", "dead-run/2"), HasLogicalCluster: true, Inactive: true, Stamp: "dead-run/2", Keys: 10,
		},
		destination: activities.Standing{
			Shard: destination, Claim: claimOf("", "dead-run/1"), HasLogicalCluster: true, Inactive: true, Stamp: "dead-run/1", Keys: 5,
		},
	}
	if change != nil {
		change(s)
	}
	return s
}

func (s *sheets) commit() {
	s.destination.Inactive, s.destination.Stamp = false, ""
	s.destination.Claim.Committed, s.destination.Claim.Landing = true, &activities.Landing{Revision: 4_500, VerifiedRevision: 9_150}
}

func landingOf(destination activities.Standing) int64 {
	if destination.Claim != nil && destination.Claim.Landing != nil {
		return destination.Claim.Landing.Revision
	}
	return 0
}

// recoverFrom runs a recovery that finds what the sheets say; nothing that it does changes them.
func recoverFrom(t *testing.T, found *sheets, input workflows.RecoverInput) *world {
	w := recovering(t, remains{shards: shards{tokens: map[string]int{}, written: landingOf(found.destination)}})
	w.sheets = found
	input.OriginShard, input.DestinationShard = origin, destination
	w.env.ExecuteWorkflow(workflows.RecoverLogicalClusterName, input)
	return w
}

func TestRecover_WhatNoClaimCanDecide_IsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		found *sheets
		input workflows.RecoverInput
		why   string
	}{
		"nothing at all": {halfway(func(s *sheets) {
			s.origin = activities.Standing{Shard: origin, HasLogicalCluster: true, Keys: 10}
			s.destination = activities.Standing{Shard: destination}
		}), undoing, activities.NothingToRecover},
		"claims of different moves": {halfway(func(s *sheets) {
			s.origin.Claim = claimOf("", "another-run/1")
		}), undoing, activities.TwoCopies},
		"a claim of a move between other shards": {halfway(func(s *sheets) {
			s.origin.Claim.DestinationShard = "shard-7"
		}), undoing, activities.AlreadyMigrating},
		"uncommitted, open at the destination": {halfway(func(s *sheets) {
			s.destination.Inactive, s.destination.Stamp = false, ""
		}), undoing, activities.TwoCopies},
		"uncommitted, gone at the origin": {halfway(func(s *sheets) {
			s.origin.HasLogicalCluster, s.origin.Stamp, s.origin.Keys = false, "", 0
		}), undoing, activities.LogicalClusterNotFound},
		"committed, and undone without the destination": {halfway(func(s *sheets) {
			s.commit()
			s.origin = activities.Standing{Shard: origin, HasLogicalCluster: true, Keys: 10}
		}), resuming, activities.TwoCopies},
		"only a claim left behind, to be resumed": {halfway(func(s *sheets) {
			s.origin = activities.Standing{Shard: origin}
			s.destination.Inactive, s.destination.Stamp = false, ""
		}), resuming, activities.NothingToRecover},
		"no answer from the origin": {halfway(func(s *sheets) { s.origin.Unreachable = "gone" }), undoing, activities.Unreachable},
	} {
		t.Run(name, func(t *testing.T) {
			w := recoverFrom(t, c.found, c.input)
			w.requireRefused(c.why)
			require.NotContains(t, w.calls, "TakeClaim@shard-1/1")
		})
	}
}

func TestRecover_ClaimsOfARecoveryThatDiedToo_BelongTogether(t *testing.T) {
	w := recoverFrom(t, halfway(func(s *sheets) {
		s.destination.Claim = claimOf("dead-run", "dead-recovery/1")
	}), undoing)
	require.Equal(t, workflows.Undone, w.result().Phase)
}

func TestRecover_ClaimLeftBehindWhereTheTenantLives_IsOnlyReleased(t *testing.T) {
	w := recoverFrom(t, halfway(func(s *sheets) {
		s.origin = activities.Standing{Shard: origin}
		s.destination.Inactive, s.destination.Stamp = false, ""
	}), undoing)
	require.Equal(t, workflows.Undone, w.result().Phase)
	require.Equal(t, []string{"Seal@shard-1/1→2", "Release@shard-1/2", "Release@root/1"}, w.calls[len(w.calls)-3:])
}

func TestRecover_DiedBetweenTheTwoReleases_ReleasesTheOther(t *testing.T) {
	w := recoverFrom(t, halfway(func(s *sheets) {
		s.commit()
		s.origin = activities.Standing{Shard: origin}
	}), resuming)
	require.Equal(t, workflows.Completed, w.result().Phase)
}
