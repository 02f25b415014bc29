package realkcp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcp-migrate/kcp-migrate/test/installation"
)

// leg is one move.
type leg struct{ origin, destination string }

var thereAndBack = []leg{{rootShard, otherShard}, {otherShard, rootShard}}

func TestConsumer_MovedThereAndBackWithAllThatATenantCanHave_IsWholeAndGoesOn(t *testing.T) {
	stack := theStack(t)
	consumer := furnish(t, stack)
	clients := startClients(t, stack, consumer)
	for round, leg := range thereAndBack {
		event := shortenLease(t, stack.shard(t, leg.origin), clients.logicalCluster)
		consumer.ageBoundCRDs(t, stack.shard(t, leg.origin))
		etcdsBefore, before := stack.settledExports(t, consumer), consumer.inventory(t)

		result := stack.move(t, consumer.path, leg.destination)

		etcdsAfter := stack.exports(t)
		clients.requireUndisturbed(t, leg)
		requireSameInventory(t, before, consumer.inventory(t))
		stack.requireArrived(t, result.LogicalCluster, leg, etcdsBefore, etcdsAfter)
		requireNothingLeft(t, result.LogicalCluster, leg.origin, etcdsAfter)
		stack.requireOthersUntouched(t, consumer, result.LogicalCluster, etcdsBefore, etcdsAfter)
		stack.requireScheduling(t, leg.origin)
		holds(t, "deletions that cannot end are neither lost nor ended", consumer.heldUp)
		consumer.requireChild(t, stack)
		clients.deleted[consumer.writeAgain(t, round)] = true
		awaitExpiry(t, stack.shard(t, leg.destination), event)
	}
	clients.requireNothingLost(t)
	consumer.letGo(t)
	consumer.requireCollected(t)
	stack.requireDeletion(t, "consumer", clients.logicalCluster)
}

// clients work on the tenant while it moves.
type clients struct {
	logicalCluster string
	poller         *installation.Poller
	writer         *installation.Writer
	watcher        *installation.Watcher
	robot          *workspace
	// deleted are the ConfigMaps that the test deleted beside the writer.
	deleted map[string]bool

	start func(t *testing.T)
}

func startClients(t *testing.T, stack *stack, tenant *workspace) *clients {
	t.Helper()
	c := &clients{logicalCluster: tenant.logicalCluster(t), robot: tenant.bearer(t, "robot-token"), deleted: map[string]bool{}}
	var err error
	c.watcher, err = stack.StartWatcher(t.Context(), tenant.path)
	require.NoError(t, err)
	t.Cleanup(c.watcher.Stop)
	c.writer, err = stack.StartWriter(t.Context(), tenant.path)
	require.NoError(t, err)
	t.Cleanup(c.writer.Stop)
	c.start = func(t *testing.T) {
		c.poller, err = stack.StartPoller(t.Context(), tenant.path)
		require.NoError(t, err)
	}
	c.start(t)
	return c
}

// requireUndisturbed expects that every client goes on by itself after a move.
func (c *clients) requireUndisturbed(t *testing.T, leg leg) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	delays, err := c.watcher.Probe(ctx, "seen-on-"+leg.destination)
	require.NoError(t, err)
	deleted := c.writer.Deleted()
	maps.Copy(deleted, c.deleted)
	require.Empty(t, c.watcher.FalseDeletes(deleted))
	_, err = c.robot.kubernetes.CoreV1().ConfigMaps("default").Get(ctx, "cm-1", metav1.GetOptions{})
	require.NoError(t, err, "the service-account token of before the move")
	seen := c.poller.Stop()
	require.NotZero(t, seen.Answers[http.StatusOK])
	require.Zero(t, seen.Answers[http.StatusNotFound], "a false not-found")
	t.Logf("%s->%s: not served for %s in all, %s at a stretch, answers by status %v; seen by informer after %s, by raw watch after %s",
		leg.origin, leg.destination, seen.Total, seen.Longest, seen.Answers, delays.Informer, delays.Raw)
	c.start(t)
}

func (c *clients) requireNothingLost(t *testing.T) {
	t.Helper()
	c.poller.Stop()
	c.writer.Stop()
	lost, err := c.writer.Verify(t.Context())
	require.NoError(t, err)
	require.Empty(t, lost)
	require.NotZero(t, c.writer.Acknowledged())
}

// writeAgain creates, updates and deletes some of everything where the tenant is now, and names the ConfigMap it deleted.
func (w *workspace) writeAgain(t *testing.T, round int) (deleted string) {
	t.Helper()
	name := fmt.Sprintf("again-%d", round)
	w.create(t, resources["Namespace"], newObject("v1", "Namespace", "", name, nil))
	w.create(t, configMaps, newConfigMap(name, map[string]any{"round": name}))
	w.create(t, gizmos, newObject("acme.io/v1", "Gizmo", "default", name, nil))
	w.create(t, cowboys, newCowboy(name, name))
	w.create(t, sheriffs, newObject("wild.west/v1", "Sheriff", "", name, map[string]any{"spec": map[string]any{"intent": name}}))

	changed := w.get(t, cowboys, "default", "billy-1")
	changed.Object["spec"] = map[string]any{"intent": name}
	_, err := w.of(cowboys, "default").Update(t.Context(), changed, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, expectText(w.get(t, cowboys, "default", "billy-1"), name, "spec", "intent"))

	deleted = fmt.Sprintf("cm-%d", round+2)
	require.NoError(t, w.of(configMaps, "default").Delete(t.Context(), deleted, metav1.DeleteOptions{}))
	w.awaitGone(t, configMaps, "default", deleted)
	require.NoError(t, w.of(resources["Namespace"], "").Delete(t.Context(), name, metav1.DeleteOptions{}))
	w.awaitGone(t, resources["Namespace"], "", name)
	return deleted
}

// requireChild expects the child workspace, which has not moved, where its parent's path leads.
func (w *workspace) requireChild(t *testing.T, stack *stack) {
	t.Helper()
	child := stack.workspace(t, w.path+":child")
	await(t, "child workspace", func(ctx context.Context) error {
		_, err := child.kubernetes.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// requireScheduling expects that the shard a tenant has left is not blind.
func (s *stack) requireScheduling(t *testing.T, shard string) {
	t.Helper()
	begun := time.Now()
	s.schedule(t, "fresh", shard)
	scheduled := time.Since(begun)
	s.delete(t, "fresh")
	t.Logf("shard %s: a new workspace was ready after %s and gone %s later", shard, scheduled, time.Since(begun)-scheduled)
}

// requireDeletion deletes the workspace and expects that nothing is left of it on either shard but what kcp itself leaves
// of any workspace: the objects of a CRD of its own (docs/kcp-findings.md).
func (s *stack) requireDeletion(t *testing.T, name, logicalCluster string) {
	t.Helper()
	s.delete(t, name)
	await(t, "end of the last key of "+logicalCluster, func(context.Context) error {
		for _, export := range s.exports(t) {
			for key := range export.Tenant(logicalCluster) {
				if !strings.Contains(key, "/acme.io/gizmos/customresources/") {
					return errors.New(key)
				}
			}
		}
		return nil
	})
}
