package activities_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/objects"
)

const recoveryRun = "7c1e-recovery"

func (s *shard) survey(t *testing.T) activities.Standing {
	standing, err := perform[activities.Standing](t, s, s.Survey, activities.SurveyInput{LogicalCluster: tenant})
	require.NoError(t, err)
	return standing
}

// take takes a shard's claim over from the usual run.
func (s *shard) take(t *testing.T, from string) (activities.Guard, error) {
	taken, err := perform[activities.TakeResult](t, s, s.TakeClaim, activities.TakeInput{
		Guard: activities.Guard{LogicalCluster: tenant, Token: activities.NewToken(recoveryRun)}, From: from,
		Info: activities.ClaimInfo{WorkflowID: "recover-consumer", RunID: recoveryRun, Recovers: run},
	})
	return activities.Guard{LogicalCluster: tenant, Token: taken.Token}, err
}

func TestSurvey_TellsWhatAMoveHasLeft(t *testing.T) {
	p := newPair(t)
	origin := p.origin.survey(t)
	require.Equal(t, first, origin.Claim.Token)
	require.True(t, origin.HasLogicalCluster)
	require.Equal(t, 4, origin.Keys)
	require.Empty(t, origin.Stamp)
	require.False(t, p.destination.survey(t).HasLogicalCluster)

	p.fill(t)
	origin, destination := p.origin.survey(t), p.destination.survey(t)
	require.Equal(t, fenced.Token, origin.Stamp)
	require.Equal(t, first, destination.Stamp)
	require.True(t, origin.Inactive && destination.Inactive)
	require.Equal(t, 4, destination.Keys)
	require.False(t, destination.Claim.Committed)

	verified := p.verify(t, first)
	landed := p.commit(t)
	require.Equal(t, landed.Revision, p.destination.survey(t).Claim.Landing.Revision)
	require.Empty(t, p.destination.survey(t).Stamp)
	require.Zero(t, p.origin.survey(t).Claim.DroppedAt)
	dropped, err := perform[activities.DropResult](t, p.origin, p.origin.DropOriginLogicalCluster, activities.GuardInput{Guard: fenced})
	require.NoError(t, err)
	require.Equal(t, dropped.Revision, p.origin.survey(t).Claim.DroppedAt)
	_, err = perform[any](t, p.origin, p.origin.DeleteOriginEntries, activities.DeleteInput{Guard: fenced, Revision: verified.OriginRevision})
	require.NoError(t, err)
}

// Whoever repeats it: kcp's controllers write at the origin in the meantime.
func TestDropOriginLogicalCluster_Repeated_TellsTheSameRevision(t *testing.T) {
	p := newPair(t)
	p.land(t)
	dropped, err := perform[activities.DropResult](t, p.origin, p.origin.DropOriginLogicalCluster, activities.GuardInput{Guard: fenced})
	require.NoError(t, err)
	p.origin.put(t, "/registry/core/configmaps/"+tenant+"/default/kube-root-ca.crt", "made by the origin's controllers")
	again, err := perform[activities.DropResult](t, p.origin, p.origin.DropOriginLogicalCluster, activities.GuardInput{Guard: fenced})
	require.NoError(t, err)
	require.Equal(t, dropped, again)
}

func TestSurvey_WithoutAClaim_IsNoError(t *testing.T) {
	require.Equal(t, activities.Standing{Shard: "shard-1", TransferAddress: "shard-1"}, newShard(t, "shard-1").survey(t))
}

func TestTakeClaim_OfAHalfFilledMove_LeadsBackUnderTheNewToken(t *testing.T) {
	p := newPair(t)
	before := p.origin.export(t, "/registry/")
	fence := p.fence(t)
	p.enclose(t)
	p.copy(t, fence.Revision)

	inDestination, err := p.destination.take(t, run)
	require.NoError(t, err)
	inOrigin, err := p.origin.take(t, run)
	require.NoError(t, err)
	require.Equal(t, string(inOrigin.Token), p.origin.logicalCluster(t, tenant).Stamp())
	require.Equal(t, string(inDestination.Token), p.destination.logicalCluster(t, tenant).Stamp())

	// What the dead run may still have at hand does nothing any more.
	for _, late := range []struct {
		shard    *shard
		activity any
		input    any
	}{
		{p.destination, p.destination.DropDestinationEntries, activities.GuardInput{Guard: guard}},
		{p.origin, p.origin.LiftFence, activities.GuardInput{Guard: fenced}},
		{p.origin, p.origin.FenceOrigin, activities.RaiseInput{Guard: fenced, To: "0f9d5b5c-run/99"}},
		{p.destination, p.destination.CopyEntries, activities.CopyInput{Guard: guard, Origin: p.ref, Revision: fence.Revision}},
		{p.origin, p.origin.WakeShard, activities.GuardInput{Guard: fenced}},
	} {
		_, err := perform[any](t, late.shard, late.activity, late.input)
		if err != nil {
			continue
		}
		require.True(t, p.origin.logicalCluster(t, tenant).Inactive(), "an activity that finds nothing of its own is done")
	}

	for _, back := range []struct {
		shard    *shard
		activity any
		guard    activities.Guard
	}{
		{p.destination, p.destination.DropDestinationEntries, inDestination},
		{p.destination, p.destination.DropDestinationLogicalCluster, inDestination},
		{p.origin, p.origin.LiftFence, inOrigin},
		{p.destination, p.destination.Release, inDestination},
		{p.origin, p.origin.Release, inOrigin},
	} {
		_, err := perform[any](t, back.shard, back.activity, activities.GuardInput{Guard: back.guard})
		require.NoError(t, err)
	}
	require.Empty(t, p.destination.export(t, "/registry/core/"))
	require.Empty(t, p.origin.export(t, "/kcp-migrate/migrations/"))
	after := p.origin.export(t, "/registry/")
	require.Equal(t, objects.PhaseReady, p.origin.logicalCluster(t, tenant).Phase())
	delete(before, layout.LogicalClusterKey(tenant))
	delete(after, layout.LogicalClusterKey(tenant))
	require.Equal(t, before, after)
}

// Front-proxies lead to the shard whose LogicalCluster they heard of last, and with it they forget the tenant's path.
func TestTakeClaim_AfterTheCommit_LeavesTheOriginsLogicalClusterAlone(t *testing.T) {
	p := newPair(t)
	p.land(t)
	before := p.origin.export(t, layout.LogicalClusterKey(tenant))
	taken, err := perform[activities.TakeResult](t, p.origin, p.origin.TakeClaim, activities.TakeInput{
		Guard: activities.Guard{LogicalCluster: tenant, Token: activities.NewToken(recoveryRun)}, From: run, Committed: true,
		Info: activities.ClaimInfo{RunID: recoveryRun, Recovers: run},
	})
	require.NoError(t, err)
	require.Equal(t, before, p.origin.export(t, layout.LogicalClusterKey(tenant)))

	_, err = perform[any](t, p.origin, p.origin.ReleaseContext, activities.GuardInput{Guard: activities.Guard{LogicalCluster: tenant, Token: taken.Token}})
	require.NoError(t, err)
	require.Equal(t, objects.PhaseDeleting, p.origin.logicalCluster(t, tenant).Phase(), "a provider's context is released all the same")
}

func TestTakeClaim_ThatChangedHands_IsRefusedAndLeavesTheFence(t *testing.T) {
	p := newPair(t)
	p.fence(t)
	_, err := p.origin.take(t, "another")
	requireRefused(t, activities.ClaimChanged, err)
	require.Equal(t, string(fenced.Token), p.origin.logicalCluster(t, tenant).Stamp())
}

func TestFindShards_OfALogicalClusterThatNoFrontProxyKnows_NeedsItsName(t *testing.T) {
	directory := &scriptedDirectory{locateErr: fmt.Errorf("locate: %w", activities.ErrNotFound)}
	fleet, env := fleet(directory)
	_, err := env.ExecuteActivity(fleet.FindShards, activities.FindInput{LogicalCluster: "root:consumer"})
	requireRefused(t, activities.LogicalClusterNotFound, err)

	value, err := env.ExecuteActivity(fleet.FindShards, activities.FindInput{LogicalCluster: tenant})
	require.NoError(t, err)
	var found activities.FindResult
	require.NoError(t, value.Get(&found))
	require.Equal(t, activities.FindResult{Location: activities.Location{LogicalCluster: tenant}, Shards: []string{"root", "shard-1"}}, found)
}

// knownRuns are the workflows that Temporal knows.
type knownRuns map[string]activities.RunState

func (k knownRuns) State(_ context.Context, workflowID string) (activities.RunState, error) {
	state, known := k[workflowID]
	if !known {
		return state, activities.ErrNotFound
	}
	return state, nil
}

func TestFindWorkflow_ThatTemporalDoesNotKnow_IsNoError(t *testing.T) {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestActivityEnvironment()
	terminated := activities.RunState{Name: "Terminated"}
	fleet := &activities.Fleet{Runs: knownRuns{"migrate-consumer": terminated}}
	env.RegisterActivity(fleet)
	for workflowID, want := range map[string]activities.RunState{"migrate-consumer": terminated, "migrate-other": {}} {
		value, err := env.ExecuteActivity(fleet.FindWorkflow, activities.WorkflowInput{WorkflowID: workflowID})
		require.NoError(t, err)
		var state activities.RunState
		require.NoError(t, value.Get(&state))
		require.Equal(t, want, state)
	}
}
