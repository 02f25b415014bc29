package activities_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// latestCut is 0 where none was noted.
func (s *shard) latestCut(t *testing.T) int64 {
	t.Helper()
	cut, err := s.store.LatestCut(t.Context())
	require.NoError(t, err)
	return cut
}

func TestWholeMove_NotesEveryCutOfInformersAndNothingElse(t *testing.T) {
	p := newPair(t)
	destination := activities.GuardInput{Guard: activities.Guard{LogicalCluster: tenant, Token: first.Next().Next()}}
	var fence activities.FenceResult
	var verified activities.VerifyResult
	do := func(on *shard, activity any, input any) func() {
		return func() {
			_, err := perform[any](t, on, activity, input)
			require.NoError(t, err)
		}
	}
	for _, step := range []struct {
		name string
		do   func()
		cuts *shard
	}{
		{"fence origin", func() { fence = p.fence(t) }, p.origin},
		{"wake origin", do(p.origin, p.origin.WakeShard, activities.GuardInput{Guard: fenced}), p.origin},
		{"fence destination", func() { p.enclose(t) }, nil},
		{"copy", func() { p.copy(t, fence.Revision) }, nil},
		{"verify", func() { verified = p.verify(t, first) }, nil},
		{"commit", func() { p.commit(t); p.destination.awaitReady(t) }, p.destination},
		{"release context", do(p.origin, p.origin.ReleaseContext, activities.GuardInput{Guard: fenced}), nil},
		{"touch destination", do(p.destination, p.destination.TouchDestination, destination), nil},
		{"drop LogicalCluster", do(p.origin, p.origin.DropOriginLogicalCluster, activities.GuardInput{Guard: fenced}), nil},
		{"delete entries", func() {
			do(p.origin, p.origin.DeleteOriginEntries, activities.DeleteInput{Guard: fenced, Revision: verified.OriginRevision, Cut: p.origin.latestCut(t)})()
		}, nil},
	} {
		before := map[*shard]int64{p.origin: p.origin.latestCut(t), p.destination: p.destination.latestCut(t)}
		step.do()
		for one, cut := range before {
			require.Equal(t, one == step.cuts, one.latestCut(t) > cut, "%s on shard %s", step.name, one.Name)
		}
	}
}

func TestReleaseContext_ThroughTwoServers_NotesNoCut(t *testing.T) {
	p := newPair(t)
	p.fence(t)
	cut := p.origin.latestCut(t)
	p.origin.api.missesReleases.Store(3)
	_, err := perform[any](t, p.origin, p.origin.ReleaseContext, activities.GuardInput{Guard: fenced})
	require.NoError(t, err)
	require.Equal(t, cut, p.origin.latestCut(t))
}

func TestLiftFence_ThatHasToNudge_NotesACutForEachNudge(t *testing.T) {
	p := newPair(t)
	p.fence(t)
	cut := p.origin.latestCut(t)
	p.origin.api.stuck.Store(60)
	_, err := perform[any](t, p.origin, p.origin.LiftFence, activities.GuardInput{Guard: fenced})
	require.NoError(t, err)
	response, err := p.origin.client.Get(t.Context(), "/kcp-migrate/cut/registry")
	require.NoError(t, err)
	require.Greater(t, response.Kvs[0].Version, int64(2), "the fence, the lift and a nudge")
	require.Greater(t, response.Kvs[0].ModRevision, cut)
}

func TestWakeShard_TellsTheCutThatItsInformersComeBackFrom(t *testing.T) {
	p := newPair(t)
	p.fence(t)
	woken, err := perform[activities.WakeResult](t, p.origin, p.origin.WakeShard, activities.GuardInput{Guard: fenced})
	require.NoError(t, err)
	require.Equal(t, p.origin.latestCut(t), woken.Cut)
}

func TestDeleteOriginEntries_WhenAnotherTenantWasFencedSince_DeletesNothingAndTellsTheCut(t *testing.T) {
	l := committedLife(t)
	held := l.holds(3)
	_, err := perform[any](t, l.origin, l.origin.DropOriginLogicalCluster, activities.GuardInput{Guard: held})
	require.NoError(t, err)
	woken, err := perform[activities.WakeResult](t, l.origin, l.origin.WakeShard, activities.GuardInput{Guard: held})
	require.NoError(t, err)
	l.origin.fenceNeighbour(t)
	before := l.origin.export(t, "/registry/core/configmaps/"+tenant+"/")
	require.NotEmpty(t, before)

	input := activities.DeleteInput{Guard: held, Revision: l.verified.OriginRevision, Cut: woken.Cut}
	swept, err := perform[activities.DeleteResult](t, l.origin, l.origin.DeleteOriginEntries, input)
	require.NoError(t, err)
	require.Equal(t, activities.DeleteResult{CutOff: l.origin.latestCut(t)}, swept)
	require.Equal(t, before, l.origin.export(t, "/registry/core/configmaps/"+tenant+"/"))

	input.Cut = swept.CutOff
	swept, err = perform[activities.DeleteResult](t, l.origin, l.origin.DeleteOriginEntries, input)
	require.NoError(t, err)
	require.Zero(t, swept.CutOff)
	require.Positive(t, swept.Deleted)
	require.Empty(t, l.origin.export(t, "/registry/core/configmaps/"+tenant+"/"))
}

// fenceNeighbour is the fence of another move.
func (s *shard) fenceNeighbour(t *testing.T) {
	t.Helper()
	other := activities.Guard{LogicalCluster: neighbour, Token: activities.NewToken("another-run")}
	_, err := s.store.Claim(t.Context(), other, activities.ClaimInfo{RunID: other.Token.Run()})
	require.NoError(t, err)
	_, err = perform[any](t, s, s.FenceOrigin, activities.RaiseInput{Guard: other, To: other.Token.Next()})
	require.NoError(t, err)
}

func TestAwaitInformers_ThatDoNotComeBack_NamesTheShard(t *testing.T) {
	one := newShard(t, "root")
	one.api.informers = func() error { return errors.New("have not caught up") }
	_, err := perform[any](t, one, one.AwaitInformers, activities.GuardInput{Guard: fenced})
	require.ErrorContains(t, err, "await informers of shard root: have not caught up")
}

func TestAwaitInformers_CutOffAgainMeanwhile_LooksAnew(t *testing.T) {
	p := newPair(t)
	p.fence(t)
	looks := 0
	p.origin.api.informers = func() error {
		if looks++; looks == 1 {
			p.origin.fenceNeighbour(t)
		}
		return nil
	}
	seen, err := perform[activities.InformersResult](t, p.origin, p.origin.AwaitInformers, activities.GuardInput{Guard: fenced})
	require.NoError(t, err)
	require.Equal(t, 2, looks)
	require.Equal(t, p.origin.latestCut(t), seen.Cut)
}
