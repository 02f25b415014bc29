package activities_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/etcd"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
	"github.com/kcp-migrate/kcp-migrate/test/etcdproxy"
)

const configMapOne = "/registry/core/configmaps/" + tenant + "/default/one"

// life is a pair of shards whose tenant moves to and fro, with what a zombie of the first move still holds.
type life struct {
	pair
	fence    activities.FenceResult
	verified activities.VerifyResult
}

// moments are when a zombie of the first move wakes. Each prepares what went before.
var moments = map[string]func(*testing.T) *life{
	"after the commit":           committedLife,
	"after the cleanup":          cleanedLife,
	"after the tenant came back": returnedLife,
	"during the next move":       movingAgainLife,
}

func committedLife(t *testing.T) *life {
	l := &life{pair: newPair(t)}
	l.fence = l.pair.fence(t)
	l.enclose(t)
	l.copy(t, l.fence.Revision)
	l.verified = l.verify(t, first)
	l.commit(t)
	l.destination.awaitReady(t)
	// As before a phase that is tried again: fenced is the token of one that was given up for dead.
	require.NoError(t, l.origin.store.RaiseToken(t.Context(), fenced, fenced.Token.Next()))
	l.destination.put(t, configMapOne, "written since the commit")
	return l
}

func (l *life) holds(number int) activities.Guard {
	held := activities.Guard{LogicalCluster: tenant, Token: first}
	for held.Token.Number() < number {
		held.Token = held.Token.Next()
	}
	return held
}

func cleanedLife(t *testing.T) *life {
	l := committedLife(t)
	_, err := perform[any](t, l.origin, l.origin.DropOriginLogicalCluster, activities.GuardInput{Guard: l.holds(3)})
	require.NoError(t, err)
	_, err = perform[any](t, l.origin, l.origin.DeleteOriginEntries, activities.DeleteInput{Guard: l.holds(3), Revision: l.verified.OriginRevision})
	require.NoError(t, err)
	return l
}

// returnedLife has the tenant at the origin again, as another move leaves it.
func returnedLife(t *testing.T) *life {
	l := cleanedLife(t)
	require.NoError(t, l.origin.store.Release(t.Context(), l.holds(3)))
	require.NoError(t, l.destination.store.Release(t.Context(), l.holds(3)))
	for key, value := range l.destination.export(t, "/registry/") {
		if owned(t, key) {
			l.origin.put(t, key, value)
			_, err := l.destination.client.Delete(t.Context(), key)
			require.NoError(t, err)
		}
	}
	l.origin.put(t, layout.LogicalClusterKey(tenant), logicalCluster("root"))
	return l
}

// movingAgainLife is in the middle of the third move, to the same destination.
func movingAgainLife(t *testing.T) *life {
	l := returnedLife(t)
	l.copyAgain(t, activities.NewToken("third-run"))
	return l
}

// copyAgain moves the tenant up to its copy under another run.
func (p pair) copyAgain(t *testing.T, run activities.Token) (claimed activities.Guard, ref activities.OriginRef) {
	claimed = p.origin.claim(t, run)
	p.destination.claim(t, run)
	ref = activities.OriginRef{Address: "root", Guard: claimed}
	fence, err := perform[activities.FenceResult](t, p.origin, p.origin.FenceOrigin, activities.RaiseInput{Guard: claimed, To: run.Next()})
	require.NoError(t, err)
	require.NoError(t, attempt(t, p.destination, p.destination.FenceDestination, activities.FenceDestinationInput{Guard: claimed, Origin: ref}))
	require.NoError(t, attempt(t, p.destination, p.destination.CopyEntries, activities.CopyInput{Guard: claimed, Origin: ref, Revision: fence.Revision}))
	return claimed, ref
}

func owned(t *testing.T, key string) bool {
	entry, err := layout.Parse(key)
	require.NoError(t, err)
	return entry.LogicalCluster == tenant
}

// state is all that a zombie could harm.
func (l *life) state(t *testing.T) map[string]string {
	found := map[string]string{}
	for name, shard := range map[string]*shard{"origin ": l.origin, "destination ": l.destination} {
		for _, prefix := range []string{"/registry/", "/kcp-migrate/migrations/", "/kcp-migrate/revision"} {
			for key, value := range shard.export(t, prefix) {
				found[name+key] = value
			}
		}
	}
	return found
}

// late is an attempt of the first move that begins, or goes on, long after another one took its place.
type late struct {
	act func(t *testing.T, l *life, zombie *shard) error
	// atDestination is where the zombie lives; at the origin otherwise.
	atDestination bool
}

// lateActs are one of every kind that writes.
var lateActs = map[string]late{
	"write": {atDestination: true, act: func(t *testing.T, l *life, zombie *shard) error {
		return zombie.store.Write(t.Context(), guard, oneEntry("stale"), func(activities.Written) {})
	}},
	"copy": {atDestination: true, act: func(t *testing.T, l *life, zombie *shard) error {
		return attempt(t, zombie, zombie.CopyEntries, activities.CopyInput{Guard: guard, Origin: l.ref, Revision: l.fence.Revision})
	}},
	"verify": {atDestination: true, act: func(t *testing.T, l *life, zombie *shard) error {
		return attempt(t, zombie, zombie.VerifyEntries, activities.VerifyInput{Guard: guard, RaiseTo: first.Next(), Origin: l.ref})
	}},
	"carry": {atDestination: true, act: func(t *testing.T, l *life, zombie *shard) error {
		return attempt(t, zombie, zombie.CarryStragglers, activities.CarryInput{
			Guard: guard, Origin: l.ref, VerifiedRevision: l.verified.OriginRevision, CommitRevision: 1 << 60,
			Stragglers: []activities.Straggler{{Ref: activities.Ref{Family: keyspace.Family{Group: "core", Resource: "configmaps"}, Suffix: "default/one"}}},
		})
	}},
	"delete at the destination": {atDestination: true, act: func(t *testing.T, l *life, zombie *shard) error {
		_, err := zombie.store.DeleteAll(t.Context(), guard)
		return err
	}},
	"commit": {atDestination: true, act: func(t *testing.T, l *life, zombie *shard) error {
		return attempt(t, zombie, zombie.Commit, activities.CommitInput{Guard: l.holds(2), RaiseTo: l.holds(3).Token, Origin: l.ref})
	}},
	"seal": {atDestination: true, act: func(t *testing.T, l *life, zombie *shard) error {
		return zombie.store.Seal(t.Context(), guard, first.Next())
	}},
	"lift the revision": {atDestination: true, act: func(t *testing.T, l *life, zombie *shard) error {
		_, err := zombie.store.LiftRevision(t.Context(), guard, 1<<40, 1000, func(int64) {})
		return err
	}},
	"release at the destination": {atDestination: true, act: func(t *testing.T, l *life, zombie *shard) error {
		return attempt(t, zombie, zombie.Release, activities.GuardInput{Guard: guard})
	}},
	"fence": {act: func(t *testing.T, l *life, zombie *shard) error {
		return attempt(t, zombie, zombie.FenceOrigin, activities.RaiseInput{Guard: guard, To: fenced.Token})
	}},
	"lift": {act: func(t *testing.T, l *life, zombie *shard) error {
		return attempt(t, zombie, zombie.LiftFence, activities.GuardInput{Guard: fenced})
	}},
	"wake": {act: func(t *testing.T, l *life, zombie *shard) error {
		return attempt(t, zombie, zombie.WakeShard, activities.GuardInput{Guard: fenced})
	}},
	"turn the route": {act: func(t *testing.T, l *life, zombie *shard) error {
		return attempt(t, zombie, zombie.TouchOrigin, activities.GuardInput{Guard: fenced})
	}},
	"delete the LogicalCluster": {act: func(t *testing.T, l *life, zombie *shard) error {
		return attempt(t, zombie, zombie.DropOriginLogicalCluster, activities.GuardInput{Guard: fenced})
	}},
	"delete the entries": {act: func(t *testing.T, l *life, zombie *shard) error {
		return attempt(t, zombie, zombie.DeleteOriginEntries, activities.DeleteInput{Guard: fenced, Revision: l.verified.OriginRevision})
	}},
	"release at the origin": {act: func(t *testing.T, l *life, zombie *shard) error {
		return attempt(t, zombie, zombie.Release, activities.GuardInput{Guard: fenced})
	}},
}

func attempt(t *testing.T, zombie *shard, activity, input any) error {
	_, err := perform[any](t, zombie, activity, input)
	return err
}

func oneEntry(value string) activities.Batches {
	entry := activities.Entry{Ref: activities.Ref{Family: keyspace.Family{Group: "core", Resource: "configmaps"}, Suffix: "default/one"}, Value: []byte(value)}
	return func(yield func([]activities.Entry, error) bool) { yield([]activities.Entry{entry}, nil) }
}

func (l *life) at(act late) *shard {
	if act.atDestination {
		return l.destination
	}
	return l.origin
}

func TestZombies_WheneverTheyWake_ChangeNothing(t *testing.T) {
	for moment, prepare := range moments {
		t.Run(moment, func(t *testing.T) {
			l := prepare(t)
			before := l.state(t)
			wakes := l.origin.api.wakes.Load()
			for name, act := range lateActs {
				err := act.act(t, l, l.at(act))
				require.Equal(t, before, l.state(t), name)
				if moment == "after the commit" && name != "commit" && name != "seal" {
					require.ErrorContains(t, err, activities.ErrTokenLost.Error(), name)
				}
			}
			require.Equal(t, wakes, l.origin.api.wakes.Load())
		})
	}
}

// through is the same shard, reached through a proxy.
func (s *shard) through(t *testing.T, proxy *etcdproxy.Proxy) *shard {
	store, err := etcd.Open(t.Context(), etcd.Config{Endpoints: []string{proxy.Endpoint}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	one := &shard{
		Shard: &activities.Shard{Name: s.Name, Store: store, API: s.api, Dialer: s.Dialer, TransferAddress: s.TransferAddress},
		store: store, client: s.client, api: s.api,
	}
	one.env = newEnvironment(one.Shard)
	return one
}

func TestZombies_WithoutTheComparison_WouldDoHarm(t *testing.T) {
	for name, harm := range map[string]struct {
		moment, act string
		done        func(t *testing.T, l *life) bool
	}{
		"a late write undoes what the tenant wrote": {"after the commit", "write", func(t *testing.T, l *life) bool {
			return l.destination.export(t, configMapOne)[configMapOne] == "stale"
		}},
		"a late straggler undoes what the tenant wrote": {"after the commit", "carry", func(t *testing.T, l *life) bool {
			return l.destination.export(t, configMapOne)[configMapOne] == "1"
		}},
		"a late lift opens the tenant on both shards": {"after the commit", "lift", func(t *testing.T, l *life) bool {
			return !l.origin.logicalCluster(t, tenant).Inactive() && !l.destination.logicalCluster(t, tenant).Inactive()
		}},
		"a late deletion takes the origin's LogicalCluster": {"after the tenant came back", "delete the LogicalCluster", func(t *testing.T, l *life) bool {
			return len(l.origin.export(t, layout.LogicalClusterKey(tenant))) == 0
		}},
		"a late wake cuts everybody's wildcard watches": {"after the tenant came back", "wake", func(t *testing.T, l *life) bool {
			return l.origin.api.wakes.Load() > 0
		}},
		"a late write leaves a key that the next move trips over": {"after the tenant came back", "write", func(t *testing.T, l *life) bool {
			return len(l.destination.export(t, configMapOne)) > 0
		}},
		"a late write spoils the next move's copy": {"during the next move", "write", func(t *testing.T, l *life) bool {
			return l.destination.export(t, configMapOne)[configMapOne] == "stale"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l := moments[harm.moment](t)
			act := lateActs[harm.act]
			healthy := l.at(act)
			require.False(t, harm.done(t, l))
			proxy := etcdproxy.Start(t, healthy.client.Endpoints()[0])
			proxy.Set(etcdproxy.Hooks{Request: etcdproxy.Unguarded})
			// The wildcard probe of a wake that lifts under a lost claim, and so on, may fail; what was harmed counts.
			err := act.act(t, l, healthy.through(t, proxy))
			require.True(t, harm.done(t, l), "the attempt ended with %v", err)
		})
	}
}

// frozen begins an act whose first Txn is held back until it is thawed, as by a worker that is stopped there.
func frozen(t *testing.T, healthy *shard, guarded bool, act func(*shard) error) (thaw func() error) {
	proxy := etcdproxy.Start(t, healthy.client.Endpoints()[0])
	zombie := healthy.through(t, proxy)
	held, released, ended := make(chan struct{}, 1), make(chan struct{}), make(chan error, 1)
	proxy.Set(etcdproxy.Hooks{Request: func(method string, message []byte) ([]byte, error) {
		if method != etcdproxy.TxnMethod {
			return message, nil
		}
		select {
		case held <- struct{}{}:
		default:
		}
		<-released
		if guarded {
			return message, nil
		}
		return etcdproxy.Unguarded(method, message)
	}})
	go func() { ended <- act(zombie) }()
	<-held
	return func() error {
		close(released)
		return <-ended
	}
}

func TestZombies_FrozenAtTheirWrite_AreStoppedByTheComparisonAlone(t *testing.T) {
	for name, guarded := range map[string]bool{"as it is": true, "without the comparison": false} {
		t.Run("a copy, "+name, func(t *testing.T) {
			p := newPair(t)
			fence := p.fence(t)
			p.enclose(t)
			thaw := frozen(t, p.destination, guarded, func(zombie *shard) error {
				return attempt(t, zombie, zombie.CopyEntries, activities.CopyInput{Guard: guard, Origin: p.ref, Revision: fence.Revision})
			})
			p.copy(t, fence.Revision)
			p.verify(t, first)
			p.commit(t)
			p.destination.put(t, configMapOne, "written since the commit")

			err := thaw()
			kept := p.destination.export(t, configMapOne)[configMapOne] == "written since the commit"
			require.Equal(t, guarded, kept)
			require.Equal(t, guarded, err != nil, "%v", err)
		})
		t.Run("an undo, "+name, func(t *testing.T) {
			p := newPair(t)
			fence := p.fence(t)
			p.enclose(t)
			p.copy(t, fence.Revision)
			undo := activities.Guard{LogicalCluster: tenant, Token: first.Next()}
			require.NoError(t, p.destination.store.Seal(t.Context(), guard, undo.Token))
			thaw := frozen(t, p.destination, guarded, func(zombie *shard) error {
				return attempt(t, zombie, zombie.DropDestinationEntries, activities.GuardInput{Guard: undo})
			})
			p.takeBack(t, undo)
			before := p.moveAgain(t, activities.NewToken("next-run"))

			err := thaw()
			require.Equal(t, guarded, maps.Equal(before, p.destination.export(t, "/registry/")))
			require.Equal(t, guarded, err != nil, "%v", err)
		})
	}
}

// takeBack is the rest of an undo, done by those who took over.
func (p pair) takeBack(t *testing.T, undo activities.Guard) {
	for _, activity := range []any{p.destination.DropDestinationEntries, p.destination.DropDestinationLogicalCluster, p.destination.Release} {
		require.NoError(t, attempt(t, p.destination, activity, activities.GuardInput{Guard: undo}))
	}
	for _, activity := range []any{p.origin.LiftFence, p.origin.Release} {
		require.NoError(t, attempt(t, p.origin, activity, activities.GuardInput{Guard: fenced}))
	}
}

// moveAgain moves the tenant up to the commit under another run, and gives what the destination then has.
func (p pair) moveAgain(t *testing.T, run activities.Token) map[string]string {
	claimed, ref := p.copyAgain(t, run)
	require.NoError(t, attempt(t, p.destination, p.destination.Commit, activities.CommitInput{Guard: claimed, RaiseTo: run.Next(), Origin: ref}))
	return p.destination.awaitReady(t)
}

// awaitReady gives what the shard has once its controller has opened the tenant.
func (s *shard) awaitReady(t *testing.T) map[string]string {
	require.Eventually(t, func() bool {
		return strings.Contains(s.export(t, layout.LogicalClusterKey(tenant))[layout.LogicalClusterKey(tenant)], `"phase":"Ready"`)
	}, waitFor, tick)
	return s.export(t, "/registry/")
}
