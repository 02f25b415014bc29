package activities_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
	"github.com/kcp-migrate/kcp-migrate/activities/objects"
)

func requireRefused(t *testing.T, errorType string, err error) {
	t.Helper()
	var refusal *temporal.ApplicationError
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, errorType, refusal.Type(), refusal.Error())
	require.True(t, refusal.NonRetryable())
}

func TestFenceOrigin_StampsWaitsAndProvesTheCut(t *testing.T) {
	p := newPair(t)
	result := p.fence(t)
	present := p.origin.logicalCluster(t, tenant)
	require.True(t, present.Inactive())
	require.Equal(t, string(fenced.Token), present.Stamp())
	require.Equal(t, objects.PhaseInactive, present.Phase())
	require.Positive(t, result.Revision)
	require.Zero(t, result.Nudges)
}

func TestFenceOrigin_WhenAServerDoesNotCut_NudgesIt(t *testing.T) {
	p := newPair(t)
	p.origin.api.uncut.Store(2)
	require.Equal(t, 2, p.fence(t).Nudges)
}

func TestFenceOrigin_WhenAServerNeverCuts_IsRefused(t *testing.T) {
	p := newPair(t)
	p.origin.api.uncut.Store(1000)
	_, err := perform[any](t, p.origin, p.origin.FenceOrigin, activities.RaiseInput{Guard: guard, To: fenced.Token})
	requireRefused(t, activities.WatchesNotCut, err)
}

func TestFenceOrigin_FoundFencedByAnEarlierAttempt_StartsOver(t *testing.T) {
	p := newPair(t)
	p.fence(t)
	p.fence(t)
	require.True(t, p.origin.logicalCluster(t, tenant).Inactive())
	require.Len(t, p.origin.api.canaries, 2)
}

func TestFenceOrigin_OfAClusterThatIsNotReady_IsRefusedAndLeavesIt(t *testing.T) {
	p := newPair(t)
	p.origin.api.idle.Store(true)
	value := strings.ReplaceAll(logicalCluster("root"), `"Ready"`, `"Initializing"`)
	p.origin.put(t, layout.LogicalClusterKey(tenant), value)
	_, err := perform[any](t, p.origin, p.origin.FenceOrigin, activities.RaiseInput{Guard: guard, To: fenced.Token})
	requireRefused(t, activities.NotReady, err)
	require.Equal(t, value, p.origin.export(t, layout.LogicalClusterKey(tenant))[layout.LogicalClusterKey(tenant)])
}

func TestLiftFence_GivesTheTenantBackAsItWas(t *testing.T) {
	p := newPair(t)
	p.fence(t)
	p.origin.api.stuck.Store(60) // a server keeps its cancelled context until it is nudged
	_, err := perform[any](t, p.origin, p.origin.LiftFence, activities.GuardInput{Guard: fenced})
	require.NoError(t, err)
	present := p.origin.logicalCluster(t, tenant)
	require.False(t, present.Inactive())
	require.Empty(t, present.Stamp())
	require.Equal(t, objects.PhaseReady, present.Phase())
}

func TestLiftFence_OfAnotherMove_IsANoOp(t *testing.T) {
	p := newPair(t)
	p.fence(t)
	require.NoError(t, p.origin.store.Release(t.Context(), fenced))
	other := p.origin.claim(t, activities.NewToken("other"))
	_, err := perform[any](t, p.origin, p.origin.LiftFence, activities.GuardInput{Guard: other})
	require.NoError(t, err)
	require.True(t, p.origin.logicalCluster(t, tenant).Inactive())
}

func TestWakeShard_TakesSystemShardToInactiveAndBack(t *testing.T) {
	p := newPair(t)
	_, err := perform[any](t, p.origin, p.origin.WakeShard, activities.GuardInput{Guard: guard})
	require.NoError(t, err)
	require.EqualValues(t, 1, p.origin.api.wakes.Load())
	present := p.origin.logicalCluster(t, keyspace.SystemShard)
	require.False(t, present.Inactive())
	require.Equal(t, objects.PhaseReady, present.Phase())
}

func TestWakeShard_AfterOneThatDied_LiftsWhatItLeft(t *testing.T) {
	p := newPair(t)
	p.origin.put(t, layout.LogicalClusterKey(keyspace.SystemShard),
		strings.Replace(logicalCluster("root"), `"annotations":{`, `"annotations":{"core.kcp.io/inactive":"true","kcp-migrate.io/move":"dead/1",`, 1))
	_, err := perform[any](t, p.origin, p.origin.WakeShard, activities.GuardInput{Guard: guard})
	require.NoError(t, err)
	require.False(t, p.origin.logicalCluster(t, keyspace.SystemShard).Inactive())
}

func TestFenceDestination_WritesAClosedLogicalClusterFirst(t *testing.T) {
	p := newPair(t)
	p.fence(t)
	p.enclose(t)
	p.enclose(t) // a repeat finds its own
	present := p.destination.logicalCluster(t, tenant)
	require.True(t, present.Inactive())
	require.Equal(t, "shard-1", present.Shard())
	require.Equal(t, objects.PhaseInactive, present.Phase())
}

func TestFenceDestination_WhereKeysAreLeft_IsRefused(t *testing.T) {
	p := newPair(t)
	p.fence(t)
	p.destination.put(t, "/registry/core/configmaps/"+tenant+"/default/old", "x")
	_, err := perform[any](t, p.destination, p.destination.FenceDestination, activities.FenceDestinationInput{Guard: guard, Origin: p.ref})
	requireRefused(t, activities.DestinationNotEmpty, err)
	require.ErrorContains(t, err, "default/old")
}

func TestFenceDestination_WithoutTheOriginsFence_IsRefused(t *testing.T) {
	p := newPair(t)
	_, err := perform[any](t, p.destination, p.destination.FenceDestination, activities.FenceDestinationInput{Guard: guard, Origin: p.ref})
	requireRefused(t, activities.FenceLost, err)
}

func TestCopyVerifyCommitCleanup_MoveTheTenantAndNothingElse(t *testing.T) {
	p := newPair(t)
	fence := p.fence(t)
	before := p.origin.export(t, "/registry/")
	p.enclose(t)
	copied := p.copy(t, fence.Revision)
	require.EqualValues(t, 3, copied.Entries)
	verified := p.verify(t, first)
	require.True(t, verified.Match)
	require.EqualValues(t, 3, verified.Entries)
	committed := p.commit(t)
	require.Equal(t, committed, p.commit(t), "a repeat tells the same landing")
	present := p.destination.logicalCluster(t, tenant)
	require.False(t, present.Inactive())
	require.Equal(t, "root", present.Shard(), "the destination's controller corrects it and so hears that it changed")

	_, err := perform[any](t, p.origin, p.origin.DropOriginLogicalCluster, activities.GuardInput{Guard: fenced})
	require.NoError(t, err)
	deleted, err := perform[activities.DeleteResult](t, p.origin, p.origin.DeleteOriginEntries, activities.DeleteInput{Guard: fenced, Revision: verified.OriginRevision})
	require.NoError(t, err)
	require.EqualValues(t, 3, deleted.Deleted)
	require.Empty(t, deleted.Stragglers)

	after := p.origin.export(t, "/registry/")
	for key, value := range before {
		entry, err := layout.Parse(key)
		require.NoError(t, err)
		if entry.LogicalCluster == tenant {
			require.NotContains(t, after, key)
			continue
		}
		require.Equal(t, value, after[key], key)
	}
	require.NotContains(t, p.destination.export(t, "/registry/"), "/registry/core/configmaps/"+neighbour+"/"+tenant+"/x")
}

func TestVerifyEntries_RepairsPutsAndDeletesFromTheOrigin(t *testing.T) {
	p := newPair(t)
	p.fill(t)
	p.origin.put(t, "/registry/core/configmaps/"+tenant+"/default/one", "late")
	p.origin.put(t, "/registry/core/secrets/"+tenant+"/default/first", "new resource")
	_, err := p.origin.client.Delete(t.Context(), "/registry/core/configmaps/"+tenant+"/default/two")
	require.NoError(t, err)

	round := p.verify(t, first)
	require.False(t, round.Match)
	require.Equal(t, 2, round.RepairedPuts)
	require.Equal(t, 1, round.RepairedDeletes)
	require.Len(t, round.Differing, 3)
	require.True(t, p.verify(t, first.Next()).Match)
	require.Equal(t, p.origin.export(t, "/registry/core/configmaps/"+tenant+"/"), p.destination.export(t, "/registry/core/configmaps/"+tenant+"/"))
}

func TestVerifyEntries_AfterSomebodyLiftedTheFence_IsRefused(t *testing.T) {
	p := newPair(t)
	p.fill(t)
	p.origin.put(t, layout.LogicalClusterKey(tenant), logicalCluster("root"))
	_, err := perform[any](t, p.destination, p.destination.VerifyEntries, activities.VerifyInput{Guard: guard, RaiseTo: first.Next(), Origin: p.ref})
	requireRefused(t, activities.FenceLost, err)
}

// open takes the fence away, as an admin of the tenant may, and waits until the shard has heard of it.
func (s *shard) open(t *testing.T) {
	present := s.logicalCluster(t, tenant)
	value, err := present.Encode()
	require.NoError(t, err)
	s.put(t, layout.LogicalClusterKey(tenant), strings.Replace(string(value), `"core.kcp.io/inactive":"true",`, "", 1))
	require.Eventually(t, func() bool { return s.logicalCluster(t, tenant).Phase() == objects.PhaseReady }, time.Minute, 5*time.Millisecond)
}

func TestVerifyEntries_AfterSomebodyOpenedTheDestination_IsRefusedAndNamesWhatDiffers(t *testing.T) {
	p := newPair(t)
	p.fill(t)
	p.destination.open(t)
	written := "/registry/core/configmaps/" + tenant + "/default/written"
	p.destination.put(t, written, "acknowledged")

	_, err := perform[any](t, p.destination, p.destination.VerifyEntries, activities.VerifyInput{Guard: guard, RaiseTo: first.Next(), Origin: p.ref})

	requireRefused(t, activities.FenceLost, err)
	require.ErrorContains(t, err, "default/written")
	require.NotEmpty(t, p.destination.export(t, written))
}

func TestDropDestinationEntries_OfOneThatSomebodyOpened_ClosesItFirstAndWakesTheShard(t *testing.T) {
	p := newPair(t)
	p.fill(t)
	p.destination.open(t)

	_, err := perform[any](t, p.destination, p.destination.DropDestinationEntries, activities.GuardInput{Guard: guard})

	require.NoError(t, err)
	require.Empty(t, p.destination.export(t, "/registry/core/configmaps/"+tenant+"/"))
	present := p.destination.logicalCluster(t, tenant)
	require.True(t, present.Inactive())
	require.Equal(t, objects.PhaseInactive, present.Phase())
	require.False(t, p.destination.api.blind.Load(), "the other tenants' wildcard requests are answered")
}

func TestCopyEntries_OfAnAttemptGivenUpForDead_WritesNothing(t *testing.T) {
	p := newPair(t)
	fence := p.fence(t)
	p.enclose(t)
	require.NoError(t, p.destination.store.RaiseToken(t.Context(), guard, first.Next()))
	_, err := perform[any](t, p.destination, p.destination.CopyEntries, activities.CopyInput{Guard: guard, Origin: p.ref, Revision: fence.Revision})
	requireRefused(t, activities.TokenLost, err)
	require.Empty(t, p.destination.export(t, "/registry/core/configmaps/"))
}

func TestSeal_BeforeTheCommit_KeepsItFromLanding(t *testing.T) {
	p := newPair(t)
	p.fill(t)
	p.verify(t, first)
	held := activities.Guard{LogicalCluster: tenant, Token: first.Next()}
	sealed, err := perform[activities.SealResult](t, p.destination, p.destination.Seal, activities.RaiseInput{Guard: held, To: held.Token.Next().Next()})
	require.NoError(t, err)
	require.False(t, sealed.Committed)
	_, err = perform[any](t, p.destination, p.destination.Commit, activities.CommitInput{Guard: held, RaiseTo: held.Token.Next(), Origin: p.ref})
	requireRefused(t, activities.TokenLost, err)
	require.True(t, p.destination.logicalCluster(t, tenant).Inactive())
}

func TestSeal_AfterTheCommit_SaysSo(t *testing.T) {
	p := newPair(t)
	p.land(t)
	held := activities.Guard{LogicalCluster: tenant, Token: first.Next()}
	sealed, err := perform[activities.SealResult](t, p.destination, p.destination.Seal, activities.RaiseInput{Guard: held, To: held.Token.Next().Next()})
	require.NoError(t, err)
	require.True(t, sealed.Committed)
}

func TestDropDestination_LeavesNothingOfTheTenant(t *testing.T) {
	p := newPair(t)
	p.fill(t)
	for _, activity := range []any{p.destination.DropDestinationLogicalCluster, p.destination.DropDestinationEntries} {
		for range 2 {
			_, err := perform[any](t, p.destination, activity, activities.GuardInput{Guard: guard})
			require.NoError(t, err)
		}
	}
	p.destination.requireNothing(t)
}

func (s *shard) requireNothing(t *testing.T) {
	keys, err := s.store.Keys(t.Context(), tenant, 1)
	require.NoError(t, err)
	require.Empty(t, keys)
}

// unstamp puts a LogicalCluster there that no move can tell for its own any more.
func (s *shard) unstamp(t *testing.T, phase string) {
	present, err := objects.ParseLogicalCluster([]byte(logicalCluster(s.Name)))
	require.NoError(t, err)
	present.SetPhase(phase)
	value, err := present.Encode()
	require.NoError(t, err)
	s.put(t, layout.LogicalClusterKey(tenant), string(value))
	require.Eventually(t, func() bool { return s.logicalCluster(t, tenant).Phase() != objects.PhaseInactive }, waitFor, time.Millisecond)
}

// An admin of the tenant may take the fence's stamp away too, and what a controller has just made need not become Ready.
func TestDropDestination_OfOneThatBearsNoStamp_ClosesItFirst(t *testing.T) {
	for _, phase := range []string{objects.PhaseReady, objects.PhaseInactive, "Initializing"} {
		t.Run(phase, func(t *testing.T) {
			p := newPair(t)
			p.fill(t)
			p.destination.unstamp(t, phase)

			require.NoError(t, attempt(t, p.destination, p.destination.DropDestinationEntries, activities.GuardInput{Guard: guard}))
			require.True(t, p.destination.logicalCluster(t, tenant).Inactive(), "closed before the origin opens")
			require.False(t, p.destination.api.blind.Load(), "the other tenants' wildcard requests are answered")
			require.NoError(t, attempt(t, p.destination, p.destination.DropDestinationLogicalCluster, activities.GuardInput{Guard: guard}))
			p.destination.requireNothing(t)
		})
	}
}

func TestDropDestination_OnceCommitted_LeavesTheTenantAlone(t *testing.T) {
	p := newPair(t)
	p.land(t)
	before := p.destination.awaitReady(t)
	held := activities.GuardInput{Guard: activities.Guard{LogicalCluster: tenant, Token: first.Next().Next()}}
	for _, activity := range []any{
		p.destination.DropDestinationEntries, p.destination.DropDestinationLogicalCluster, p.destination.SweepDestination, p.destination.DiscardLeftovers,
	} {
		require.Error(t, attempt(t, p.destination, activity, held))
	}
	require.Equal(t, before, p.destination.awaitReady(t))
}

func TestDiscardLeftovers_WhereALogicalClusterTurnedUp_IsRefused(t *testing.T) {
	p := newPair(t)
	leftover := "/registry/core/configmaps/" + tenant + "/default/left"
	p.destination.put(t, leftover, "in use")
	p.destination.put(t, layout.LogicalClusterKey(tenant), logicalCluster("shard-1"))

	requireRefused(t, activities.DestinationNotEmpty, attempt(t, p.destination, p.destination.DiscardLeftovers, activities.GuardInput{Guard: guard}))

	require.NotEmpty(t, p.destination.export(t, leftover))
	require.False(t, p.destination.logicalCluster(t, tenant).Inactive())
}

func TestStragglers_AreCarriedOnlyWhereTheDestinationIsUntouched(t *testing.T) {
	p := newPair(t)
	p.fill(t)
	verified := p.verify(t, first)
	committed := p.commit(t)
	configMaps := "/registry/core/configmaps/" + tenant + "/default/"
	p.origin.put(t, configMaps+"one", "straggler")
	p.origin.put(t, configMaps+"two", "straggler")
	p.origin.put(t, configMaps+"new", "straggler")
	p.destination.put(t, configMaps+"two", "tenant's own")
	_, err := p.origin.client.Delete(t.Context(), "/registry/acme.io/gizmos/customresources/"+tenant+"/big")
	require.NoError(t, err)

	deleted, err := perform[activities.DeleteResult](t, p.origin, p.origin.DeleteOriginEntries, activities.DeleteInput{Guard: fenced, Revision: verified.OriginRevision})
	require.NoError(t, err)
	require.Len(t, deleted.Stragglers, 3)
	require.Equal(t, "big", deleted.Gone[0].Ref.Suffix)
	carried, err := perform[activities.CarryResult](t, p.destination, p.destination.CarryStragglers, activities.CarryInput{
		Guard: activities.Guard{LogicalCluster: tenant, Token: first.Next().Next()}, Origin: p.ref,
		VerifiedRevision: verified.OriginRevision, CommitRevision: committed.Revision, Stragglers: deleted.Stragglers,
	})
	require.NoError(t, err)
	fates := map[string]bool{}
	for _, straggler := range carried.Stragglers {
		fates[straggler.Ref.Suffix] = straggler.Carried
		require.Equal(t, straggler.Carried, straggler.Reason == "")
	}
	require.Equal(t, map[string]bool{"default/one": true, "default/two": false, "default/new": true}, fates)
	require.Equal(t, map[string]string{configMaps + "one": "straggler", configMaps + "two": "tenant's own", configMaps + "new": "straggler"},
		p.destination.export(t, configMaps))
}

func TestStragglers_WhoseEntryTheTenantDeletedSince_StayDeleted(t *testing.T) {
	p := newPair(t)
	p.fill(t)
	verified := p.verify(t, first)
	committed := p.commit(t)
	key := "/registry/core/configmaps/" + tenant + "/default/one"
	p.origin.put(t, key, "straggler")
	_, err := p.destination.client.Delete(t.Context(), key)
	require.NoError(t, err)
	carried, err := perform[activities.CarryResult](t, p.destination, p.destination.CarryStragglers, activities.CarryInput{
		Guard: activities.Guard{LogicalCluster: tenant, Token: first.Next().Next()}, Origin: p.ref,
		VerifiedRevision: verified.OriginRevision, CommitRevision: committed.Revision,
		Stragglers: []activities.Straggler{{Ref: activities.Ref{Family: keyspace.Family{Group: "core", Resource: "configmaps"}, Suffix: "default/one"}}},
	})
	require.NoError(t, err)
	require.False(t, carried.Stragglers[0].Carried)
	require.Empty(t, p.destination.export(t, key))
}

func TestStragglers_WrittenOnceTheOriginHasNoLogicalCluster_AreDeletedAndNeverCarried(t *testing.T) {
	p := newPair(t)
	p.fill(t)
	verified := p.verify(t, first)
	committed := p.commit(t)
	configMaps := "/registry/core/configmaps/" + tenant + "/default/"
	dropped, err := perform[activities.DropResult](t, p.origin, p.origin.DropOriginLogicalCluster, activities.GuardInput{Guard: fenced})
	require.NoError(t, err)
	p.origin.put(t, configMaps+"one", "a controller's")
	p.origin.put(t, configMaps+"kube-root-ca.crt", "a controller's")
	deleted, err := perform[activities.DeleteResult](t, p.origin, p.origin.DeleteOriginEntries, activities.DeleteInput{Guard: fenced, Revision: verified.OriginRevision})
	require.NoError(t, err)
	require.Len(t, deleted.Stragglers, 2)
	before := p.destination.export(t, "/registry/")

	carried, err := perform[activities.CarryResult](t, p.destination, p.destination.CarryStragglers, activities.CarryInput{
		Guard: activities.Guard{LogicalCluster: tenant, Token: first.Next().Next()}, Origin: p.ref,
		VerifiedRevision: verified.OriginRevision, CommitRevision: committed.Revision, DroppedAt: dropped.Revision, Stragglers: deleted.Stragglers,
	})
	require.NoError(t, err)
	for _, straggler := range carried.Stragglers {
		require.True(t, straggler.Discarded && !straggler.Carried, straggler)
		require.Contains(t, straggler.Reason, "controllers")
	}
	require.Equal(t, before, p.destination.export(t, "/registry/"))
	_, err = perform[any](t, p.origin, p.origin.DropCarried, activities.DropCarriedInput{Guard: fenced, Stragglers: carried.Stragglers})
	require.NoError(t, err)
	require.Empty(t, p.origin.export(t, configMaps))
}

func TestStragglers_WrittenTwice_AreCarriedTwice(t *testing.T) {
	p := newPair(t)
	p.fill(t)
	verified := p.verify(t, first)
	committed := p.commit(t)
	key := "/registry/core/configmaps/" + tenant + "/default/one"
	straggler := activities.Straggler{Ref: activities.Ref{Family: keyspace.Family{Group: "core", Resource: "configmaps"}, Suffix: "default/one"}}
	for _, value := range []string{"late", "later", "later"} { // the last is a repeat whose answer was lost
		p.origin.put(t, key, value)
		carried, err := perform[activities.CarryResult](t, p.destination, p.destination.CarryStragglers, activities.CarryInput{
			Guard: activities.Guard{LogicalCluster: tenant, Token: first.Next().Next()}, Origin: p.ref,
			VerifiedRevision: verified.OriginRevision, CommitRevision: committed.Revision, Stragglers: []activities.Straggler{straggler},
		})
		require.NoError(t, err)
		require.True(t, carried.Stragglers[0].Carried)
		require.Equal(t, value, p.destination.export(t, key)[key])
		straggler.DestinationRevision = carried.Stragglers[0].DestinationRevision
	}
}

func TestDropDestination_WhoseFenceATenantRemoved_IsDroppedAllTheSame(t *testing.T) {
	p := newPair(t)
	p.fence(t)
	p.destination.api.idle.Store(true)
	p.enclose(t)
	present := p.destination.logicalCluster(t, tenant)
	present.SetPhase(objects.PhaseReady)
	value, err := present.Encode()
	require.NoError(t, err)
	p.destination.put(t, layout.LogicalClusterKey(tenant), strings.Replace(string(value), `"core.kcp.io/inactive":"true",`, "", 1))
	require.False(t, p.destination.logicalCluster(t, tenant).Inactive())
	_, err = perform[any](t, p.destination, p.destination.DropDestinationLogicalCluster, activities.GuardInput{Guard: guard})
	require.NoError(t, err)
	require.Empty(t, p.destination.export(t, layout.LogicalClusterKey(tenant)))
}

func TestLiftFence_AfterAnAttemptThatDiedBeforeTheProof_ProvesItAllTheSame(t *testing.T) {
	p := newPair(t)
	p.fence(t)
	p.origin.put(t, layout.LogicalClusterKey(tenant), logicalCluster("root")) // lifted, and the attempt died
	p.origin.api.stuck.Store(10)
	_, err := perform[any](t, p.origin, p.origin.LiftFence, activities.GuardInput{Guard: fenced})
	require.NoError(t, err)
	require.Negative(t, p.origin.api.stuck.Load(), "every stuck answer was waited out")
}

func TestCommit_BindingMadeAfterPreflight_BringsItsCRD(t *testing.T) {
	p := newPair(t)
	p.origin.put(t, layout.BoundCRDKey(schemaUID), establishedCRD)
	p.origin.put(t, "/registry/apis.kcp.io/apibindings/customresources/"+tenant+"/late",
		`{"kind":"APIBinding","status":{"boundResources":[{"group":"wild.west","resource":"cowboys","schema":{"UID":"`+schemaUID+`"}}]}}`)
	p.land(t)
	require.NotEmpty(t, p.destination.export(t, layout.BoundCRDKey(schemaUID)))
}

func TestCommit_BindingWhoseCRDIsGone_DoesNotLand(t *testing.T) {
	p := newPair(t)
	p.origin.put(t, "/registry/apis.kcp.io/apibindings/customresources/"+tenant+"/late",
		`{"kind":"APIBinding","status":{"boundResources":[{"group":"wild.west","resource":"cowboys","schema":{"UID":"`+schemaUID+`"}}]}}`)
	p.fill(t)
	p.verify(t, first)
	_, err := perform[any](t, p.destination, p.destination.Commit, activities.CommitInput{
		Guard: activities.Guard{LogicalCluster: tenant, Token: first.Next()}, RaiseTo: first.Next().Next(), Origin: p.ref,
	})
	requireRefused(t, activities.BoundResourceMissing, err)
	require.True(t, p.destination.logicalCluster(t, tenant).Inactive())
}

func TestReleaseContext_HasTheOriginForgetTheCluster_UnderTheFence(t *testing.T) {
	p := newPair(t)
	p.fence(t)

	_, err := perform[any](t, p.origin, p.origin.ReleaseContext, activities.GuardInput{Guard: fenced})
	require.NoError(t, err)

	present := p.origin.logicalCluster(t, tenant)
	require.True(t, present.Inactive(), "nobody may read or write at the origin after the commit")
	require.Equal(t, objects.PhaseDeleting, present.Phase())
	require.Equal(t, int64(1), p.origin.api.released.Load())
	require.Equal(t, string(fenced.Token), present.Stamp())
}

func TestReleaseContext_WhenOneOfTwoServersMissesIt_GoesOnUntilItHasDroppedItToo(t *testing.T) {
	p := newPair(t)
	p.fence(t)
	const missed = 5
	p.origin.api.missesReleases.Store(missed)

	_, err := perform[any](t, p.origin, p.origin.ReleaseContext, activities.GuardInput{Guard: fenced})
	require.NoError(t, err)

	require.Equal(t, int64(missed), p.origin.api.released.Load())
	claim, err := p.origin.store.ReadClaim(t.Context(), tenant)
	require.NoError(t, err)
	require.NotZero(t, claim.DroppedAt, "what kcp's controllers write meanwhile is not the tenant's")
	present := p.origin.logicalCluster(t, tenant)
	require.True(t, present.Inactive(), "nobody may read or write at the origin after the commit")
	require.Equal(t, string(fenced.Token), present.Stamp())
}

func TestReleaseContext_WhoseControllerDoesNotAct_TellsAndLeavesItFenced(t *testing.T) {
	p := newPair(t)
	p.fence(t)
	p.origin.api.idle.Store(true)

	released, err := perform[activities.ReleaseResult](t, p.origin, p.origin.ReleaseContext, activities.GuardInput{Guard: fenced})
	require.NoError(t, err)

	require.Contains(t, released.Stuck, "has not acted")
	require.True(t, p.origin.logicalCluster(t, tenant).Inactive(), "nobody may read or write at the origin after the commit")
}

func TestDropCarried_DeletesWhatWasCarriedAndSparesWhatWasWrittenSince(t *testing.T) {
	p := newPair(t)
	configMaps := "/registry/core/configmaps/" + tenant + "/default/"
	listed, err := p.origin.store.List(t.Context(), tenant, []keyspace.Family{{Group: "core", Resource: "configmaps"}}, p.revision(t))
	require.NoError(t, err)
	var stragglers []activities.Straggler
	for _, entry := range listed {
		stragglers = append(stragglers, activities.Straggler{Ref: entry.Ref, Carried: true, OriginRevision: entry.ModRevision})
	}
	p.origin.put(t, configMaps+"two", "written since")
	_, err = perform[any](t, p.origin, p.origin.DropCarried, activities.DropCarriedInput{Guard: guard, Stragglers: stragglers})
	require.NoError(t, err)
	require.Equal(t, map[string]string{configMaps + "two": "written since"}, p.origin.export(t, configMaps))
}

func (p pair) revision(t *testing.T) int64 {
	revision, err := p.origin.store.Revision(t.Context())
	require.NoError(t, err)
	return revision
}

func TestWakeShard_WhileAServerDoesNotAnswer_TogglesOnlyOnce(t *testing.T) {
	p := newPair(t)
	p.origin.api.silent.Store(100)
	_, err := perform[any](t, p.origin, p.origin.WakeShard, activities.GuardInput{Guard: guard})
	require.NoError(t, err)
	require.EqualValues(t, 1, p.origin.api.wakes.Load())
}

// The controller is late, and never sees that system:shard was fenced.
func TestWakeShard_WhoseFenceSomebodyLiftsTooSoon_TogglesAgain(t *testing.T) {
	p := newPair(t)
	p.origin.api.blind.Store(true)
	p.origin.api.idle.Store(true)
	woken := make(chan error)
	go func() {
		_, err := p.origin.env.ExecuteActivity(p.origin.WakeShard, activities.GuardInput{Guard: guard})
		woken <- err
	}()
	require.Eventually(t, func() bool { return p.origin.logicalCluster(t, keyspace.SystemShard).Inactive() }, time.Minute, time.Millisecond)
	p.origin.put(t, layout.LogicalClusterKey(keyspace.SystemShard), logicalCluster("root"))
	p.origin.api.idle.Store(false)

	require.NoError(t, <-woken)
	require.False(t, p.origin.api.blind.Load())
	require.False(t, p.origin.logicalCluster(t, keyspace.SystemShard).Inactive())
}

func TestWakeShard_WhoseControllerDoesNotAct_GivesTheLockBackAndIsTriedAgain(t *testing.T) {
	p := newPair(t)
	p.origin.api.idle.Store(true)
	_, err := perform[any](t, p.origin, p.origin.WakeShard, activities.GuardInput{Guard: guard})
	require.ErrorContains(t, err, "await phase Inactive of LogicalCluster system:shard on shard root, now Ready")
	require.False(t, p.origin.logicalCluster(t, keyspace.SystemShard).Inactive())

	p.origin.api.idle.Store(false)
	_, err = perform[any](t, p.origin, p.origin.WakeShard, activities.GuardInput{Guard: guard})
	require.NoError(t, err)
}

func TestTouchOrigin_StampsTheFenceAgain_AndNothingElse(t *testing.T) {
	p := newPair(t)
	p.fence(t)
	before := p.origin.logicalCluster(t, tenant)
	raised := activities.Guard{LogicalCluster: tenant, Token: fenced.Token.Next()}
	require.NoError(t, p.origin.store.RaiseToken(t.Context(), fenced, raised.Token))
	_, err := perform[any](t, p.origin, p.origin.TouchOrigin, activities.GuardInput{Guard: raised})
	require.NoError(t, err)
	after := p.origin.logicalCluster(t, tenant)
	require.Equal(t, string(raised.Token), after.Stamp())
	before.Fence(string(raised.Token))
	require.Equal(t, before, after)
}

// Whether the fence stands or not, the destination's LogicalCluster is deleted next.
func TestTouchOrigin_WithoutItsFence_TouchesTheTenantAndFencesNothing(t *testing.T) {
	p := newPair(t)
	_, err := perform[any](t, p.origin, p.origin.TouchOrigin, activities.GuardInput{Guard: guard})
	require.NoError(t, err)
	after := p.origin.logicalCluster(t, tenant)
	require.NotEmpty(t, after.MovedAt())
	require.False(t, after.Inactive())
	require.Empty(t, after.Stamp())
}

func TestTouch_OfALogicalClusterThatIsGone_TellsSo(t *testing.T) {
	p := newPair(t)
	_, err := p.origin.client.Delete(t.Context(), "/registry/core.kcp.io/logicalclusters/customresources/"+tenant+"/cluster")
	require.NoError(t, err)
	for _, touch := range []any{p.origin.TouchOrigin, p.origin.TouchDestination} {
		touched, err := perform[activities.TouchResult](t, p.origin, touch, activities.GuardInput{Guard: guard})
		require.NoError(t, err)
		require.True(t, touched.Gone)
	}
}

func TestHoldRoute_TouchesAgainAndAgain_UntilTheTenantIsDeleted(t *testing.T) {
	p := newPair(t)
	ended := make(chan activities.TouchResult)
	go func() {
		var result activities.TouchResult
		if value, err := p.origin.env.ExecuteActivity(p.origin.HoldRoute, activities.GuardInput{Guard: guard}); err == nil {
			_ = value.Get(&result) // else it is not gone
		}
		ended <- result
	}()
	for range 2 {
		before := p.origin.logicalCluster(t, tenant).MovedAt()
		require.Eventually(t, func() bool { return p.origin.logicalCluster(t, tenant).MovedAt() != before }, time.Minute, 10*time.Millisecond)
	}
	_, err := p.origin.client.Delete(t.Context(), layout.LogicalClusterKey(tenant))
	require.NoError(t, err)
	require.True(t, (<-ended).Gone)
}

func TestSweepDestination_DeletesWhatControllersMadeAnew_ButNothingOnceCommitted(t *testing.T) {
	p := newPair(t)
	p.destination.api.idle.Store(true)
	p.destination.put(t, layout.LogicalClusterKey(tenant), logicalCluster("shard-1"))
	p.destination.put(t, "/registry/core/configmaps/"+tenant+"/default/made-anew", "a controller's")
	_, err := perform[any](t, p.destination, p.destination.SweepDestination, activities.GuardInput{Guard: guard})
	require.NoError(t, err)
	left, err := p.destination.store.Keys(t.Context(), tenant, 10)
	require.NoError(t, err)
	require.Empty(t, left)

	q := newPair(t)
	fence := q.fence(t)
	q.enclose(t)
	q.copy(t, fence.Revision)
	q.verify(t, first)
	q.commit(t)
	_, err = perform[any](t, q.destination, q.destination.SweepDestination, activities.GuardInput{Guard: activities.Guard{LogicalCluster: tenant, Token: first.Next().Next()}})
	require.Error(t, err)
	require.False(t, q.destination.logicalCluster(t, tenant).Inactive(), "the tenant lives here")
}

func TestSweepDestination_WithoutAClaim_IsNotTriedForEver(t *testing.T) {
	p := newPair(t)
	p.destination.put(t, "/registry/core/configmaps/"+tenant+"/default/made-anew", "a controller's")
	require.NoError(t, p.destination.store.Release(t.Context(), guard))

	_, err := perform[any](t, p.destination, p.destination.SweepDestination, activities.GuardInput{Guard: guard})

	requireRefused(t, activities.TokenLost, err)
	require.NotEmpty(t, p.destination.export(t, "/registry/core/configmaps/"+tenant+"/"))
}
