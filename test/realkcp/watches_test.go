package realkcp

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// revisionGap is by how much the shards' revisions differ before a move.
	revisionGap = 5_000
	// sightDeadline is how soon a client's watch must show an object that was created after the move.
	sightDeadline = 30 * time.Second
)

func TestWatches_OfBeforeAMove_SeeWhatComesAfterIt(t *testing.T) {
	stack := theStack(t)
	tenant := stack.createTenant(t, "watched")
	for round, move := range []struct {
		leg
		ahead string // whose revision is the higher one
	}{
		{leg{rootShard, otherShard}, rootShard},
		{leg{otherShard, rootShard}, rootShard},
		{leg{rootShard, otherShard}, otherShard},
		{leg{otherShard, rootShard}, otherShard},
	} {
		name := fmt.Sprintf("seen-on-%s-%d", move.destination, round)
		stack.raiseRevision(t, move.ahead)
		// A new one for each move: what client-go waits before it lists again doubles from cut to cut within two minutes.
		watcher, err := stack.StartWatcher(t.Context(), tenant.path)
		require.NoError(t, err)
		resourceVersion := tenant.resourceVersion(t)

		stack.move(t, tenant.path, move.destination)

		late := tenant.watchFrom(t, resourceVersion)
		delays, err := watcher.Probe(t.Context(), name)
		require.NoError(t, err)
		require.Less(t, max(delays.Informer, delays.Raw), sightDeadline)
		lateSaw := late.requireNotDeaf(t, name)
		watcher.Stop()
		require.Empty(t, watcher.FalseDeletes(nil))
		t.Logf("%s->%s with shard %s ahead: seen by informer after %s, by raw watch after %s; a watch that came back late from resourceVersion %s got %s",
			move.origin, move.destination, move.ahead, delays.Informer, delays.Raw, resourceVersion, lateSaw)
	}
	stack.delete(t, "watched")
}

// raiseRevision takes a shard's revision well above the other's, as any other tenants' writes would.
func (s *stack) raiseRevision(t *testing.T, ahead string) {
	t.Helper()
	etcd := dialEtcd(t, s.shard(t, ahead))
	wanted := s.revision(t, rootShard) + s.revision(t, otherShard) - s.revision(t, ahead) + revisionGap
	var puts errgroup.Group
	puts.SetLimit(64)
	for range max(0, wanted-s.revision(t, ahead)) {
		puts.Go(func() error {
			_, err := etcd.Put(t.Context(), "/other-tenants", "")
			return err
		})
	}
	require.NoError(t, puts.Wait())
	_, err := etcd.Delete(t.Context(), "/other-tenants")
	require.NoError(t, err)
}

func (s *stack) revision(t *testing.T, shard string) int64 {
	t.Helper()
	found, err := dialEtcd(t, s.shard(t, shard)).Get(t.Context(), "/any", clientv3.WithCountOnly())
	require.NoError(t, err)
	return found.Header.Revision
}

// resourceVersion is what a client that lists now would go on from.
func (w *workspace) resourceVersion(t *testing.T) string {
	t.Helper()
	list, err := w.kubernetes.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	return list.ResourceVersion
}

// lateWatch is one that was away while its tenant moved.
type lateWatch struct {
	events watch.Interface
	err    error
}

func (w *workspace) watchFrom(t *testing.T, resourceVersion string) lateWatch {
	t.Helper()
	events, err := w.kubernetes.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{ResourceVersion: resourceVersion})
	return lateWatch{events: events, err: err}
}

// requireNotDeaf expects the watch to tell of an object, or to say that it cannot, and tells which.
func (l lateWatch) requireNotDeaf(t *testing.T, name string) string {
	t.Helper()
	if l.err != nil {
		require.True(t, isGone(l.err), "%v", l.err)
		return "410 Gone"
	}
	defer l.events.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), sightDeadline)
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			require.NoError(t, ctx.Err(), "the watch is deaf")
		case event, open := <-l.events.ResultChan():
			require.True(t, open, "the watch ended and said nothing")
			if event.Type == watch.Error {
				require.True(t, isGone(apierrors.FromObject(event.Object)), "%v", event.Object)
				return "410 Gone"
			}
			object, ok := event.Object.(metav1.Object)
			require.True(t, ok)
			require.NotEqual(t, watch.Deleted, event.Type, "a false delete of %s", object.GetName())
			if object.GetName() == name {
				return "the event"
			}
		}
	}
}

func isGone(err error) bool { return apierrors.IsGone(err) || apierrors.IsResourceExpired(err) }
