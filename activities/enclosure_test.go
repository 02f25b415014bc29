package activities_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// meddled calls a function right before a repair writes.
type meddled struct {
	activities.Source
	call func()
}

func (m meddled) Get(ctx context.Context, guard activities.Guard, refs []activities.Ref) ([]activities.Entry, error) {
	m.call()
	return m.Source.Get(ctx, guard, refs)
}

func TestVerifyEntries_WhenSomebodyOpensTheDestinationRightBeforeTheRepair_RepairsNothingAndTellsInTheNextAttempt(t *testing.T) {
	p := newPair(t)
	p.fill(t)
	p.origin.put(t, configMapOne, "late")
	p.destination.Dialer = direct{meddled{Source: activities.NewOrigin(p.origin.store), call: func() {
		p.destination.open(t)
		p.destination.put(t, configMapOne, "acknowledged")
	}}}
	input := activities.VerifyInput{Guard: guard, RaiseTo: first.Next(), Origin: p.ref}

	err := attempt(t, p.destination, p.destination.VerifyEntries, input)
	var failed *temporal.ApplicationError
	require.ErrorAs(t, err, &failed)
	require.False(t, failed.NonRetryable(), "another attempt looks again: %v", err)
	require.Equal(t, "acknowledged", p.destination.export(t, configMapOne)[configMapOne])

	input.Guard.Token, input.RaiseTo = input.RaiseTo, input.RaiseTo.Next()
	err = attempt(t, p.destination, p.destination.VerifyEntries, input)
	requireRefused(t, activities.FenceLost, err)
	require.ErrorContains(t, err, "default/one")
	require.Equal(t, "acknowledged", p.destination.export(t, configMapOne)[configMapOne])
}

// beingDeleted has an admin delete the LogicalCluster of a shard, with an owner or without one.
func (s *shard) beingDeleted(t *testing.T, owner string) {
	s.api.idle.Store(true)
	present := s.logicalCluster(t, tenant)
	value, err := present.Encode()
	require.NoError(t, err)
	text := strings.Replace(string(value), `"name":"cluster"`, `"deletionTimestamp":"2026-12-01T00:00:00Z","name":"cluster"`, 1)
	text = strings.Replace(text, `"status":{`, `"spec":{"owner":{"cluster":"root","name":"`+owner+`","uid":"uid"}},"status":{`, 1)
	s.put(t, layout.LogicalClusterKey(tenant), text)
	require.True(t, s.logicalCluster(t, tenant).BeingDeleted())
}

func TestMove_OfATenantDeletedAtTheDestinationBeforeTheCommit_SaysSoUnlessAWorkspaceDeletesItAgain(t *testing.T) {
	for name, test := range map[string]struct {
		delete  func(t *testing.T, destination *shard)
		refused bool
	}{
		"of no workspace": {func(t *testing.T, destination *shard) { destination.beingDeleted(t, "") }, true},
		"of a workspace":  {func(t *testing.T, destination *shard) { destination.beingDeleted(t, "consumer") }, false},
		"and gone": {func(t *testing.T, destination *shard) {
			_, err := destination.client.Delete(t.Context(), layout.LogicalClusterKey(tenant))
			require.NoError(t, err)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t)
			p.fill(t)
			p.verify(t, first)
			test.delete(t, p.destination)

			commit := activities.CommitInput{Guard: activities.Guard{LogicalCluster: tenant, Token: first.Next()}, RaiseTo: first.Next().Next(), Origin: p.ref}
			verify := activities.VerifyInput{Guard: commit.Guard, RaiseTo: commit.RaiseTo, Origin: p.ref}
			if !test.refused {
				require.NoError(t, attempt(t, p.destination, p.destination.Commit, commit))
				return
			}
			requireRefused(t, activities.BeingDeleted, attempt(t, p.destination, p.destination.Commit, commit))
			requireRefused(t, activities.BeingDeleted, attempt(t, p.destination, p.destination.VerifyEntries, verify))
		})
	}
}
