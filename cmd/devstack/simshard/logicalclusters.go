package simshard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/simshard/follow"
)

const (
	inactiveAnnotation = "core.kcp.io/inactive"
	shardAnnotation    = "core.kcp.io/shard"
	phaseLabel         = "tenancy.kcp.io/phase"

	logicalClusterFinalizer = "core.kcp.io/logicalcluster-deletion"

	phaseInitializing = "Initializing"
	phaseReady        = "Ready"
	phaseInactive     = "Inactive"
	phaseDeleting     = "Deleting"
	phaseUnavailable  = "Unavailable"

	// maxReaction is how long after an event a controller acts at the latest: two processes
	// of one shard race for every transition, as their controllers do on a real one (trap 3).
	maxReaction = 2 * time.Millisecond
)

// logicalClusters is one API server's informer of the LogicalClusters on its shard, and the
// controller that acts on them (kcp: pkg/reconciler/core/logicalcluster). Its informer
// never goes blind: requests for logicalclusters are exempt from the contexts.
type logicalClusters struct {
	server *apiServer
	queue  workqueue.TypedRateLimitingInterface[string]
	// slowness is how long, in nanoseconds, the controller of this process lags behind the others'.
	slowness atomic.Int64
	// onChange hears of every change; set before the informer runs.
	onChange func(cluster string)

	mutex sync.RWMutex
	known map[string]*unstructured.Unstructured
}

func newLogicalClusters(server *apiServer) *logicalClusters {
	return &logicalClusters{
		server:   server,
		queue:    workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
		onChange: func(string) {},
		known:    map[string]*unstructured.Unstructured{},
	}
}

// run keeps the informer and the controller going until ctx ends.
func (l *logicalClusters) run(ctx context.Context, ready func()) {
	layout := l.server.store.layout
	informer := &logicalClusterInformer{logicalClusters: l, ready: ready}
	var work sync.WaitGroup
	work.Go(func() {
		follow.New(l.server.store.client, layout.familyPrefix(logicalClusterFamily), informer).Run(ctx)
	})
	if l.server.config.Role != Following {
		work.Go(func() { l.work(ctx) })
	}
	<-ctx.Done()
	l.queue.ShutDown()
	work.Wait()
}

func (l *logicalClusters) work(ctx context.Context) {
	for {
		cluster, shutdown := l.queue.Get()
		if shutdown {
			return
		}
		switch err := l.reconcile(ctx, cluster); {
		case err == nil:
			l.queue.Forget(cluster)
		case ctx.Err() == nil:
			l.server.log.Debug("reconcile LogicalCluster", "cluster", cluster, "error", err)
			l.queue.AddRateLimited(cluster)
		}
		l.queue.Done(cluster)
	}
}

// logicalClusterInformer hands what follow reports to the cache and the queue.
type logicalClusterInformer struct {
	*logicalClusters
	once  sync.Once
	ready func()
}

func (i *logicalClusterInformer) Put(key string, value []byte, revision int64) {
	at, isEntry := i.server.store.layout.parse(key)
	if !isEntry {
		return
	}
	read, err := decodeJSON(value)
	if err != nil {
		i.server.log.Warn("read LogicalCluster", "cluster", at.cluster, "error", err)
		return
	}
	read.SetResourceVersion(strconv.FormatInt(revision, 10))
	i.mutex.Lock()
	i.known[at.cluster] = read
	i.mutex.Unlock()
	i.queue.AddAfter(at.cluster, rand.N(maxReaction)+time.Duration(i.slowness.Load()))
	i.onChange(at.cluster)
}

// Delete forgets the object and nothing else: no context is dropped by it, which is why traps 1 and 2 are traps.
func (i *logicalClusterInformer) Delete(key string) {
	at, isEntry := i.server.store.layout.parse(key)
	if !isEntry {
		return
	}
	i.mutex.Lock()
	delete(i.known, at.cluster)
	i.mutex.Unlock()
	i.onChange(at.cluster)
}

func (i *logicalClusterInformer) Synced() { i.once.Do(i.ready) }

func (l *logicalClusters) get(cluster string) (*unstructured.Unstructured, bool) {
	l.mutex.RLock()
	defer l.mutex.RUnlock()
	found, has := l.known[cluster]
	return found, has
}

func (l *logicalClusters) has(cluster string) bool {
	_, has := l.get(cluster)
	return has
}

// closed reports whether nobody but members of system:masters may ask for the target.
func (l *logicalClusters) closed(t target) bool {
	found, has := l.get(t.cluster)
	return !has || phaseOf(found) == phaseUnavailable && !unfenced(t.path)
}

// fenced reports whether the cluster's LogicalCluster here carries the inactive annotation.
func (l *logicalClusters) fenced(cluster string) bool {
	found, has := l.get(cluster)
	return has && found.GetAnnotations()[inactiveAnnotation] == "true"
}

// admit refuses requests to a fenced cluster (kcp: pkg/server/filters/inactivelogicalcluster.go).
func (l *logicalClusters) admit(t target) error {
	if unfenced(t.path) || !l.fenced(t.cluster) {
		return nil
	}
	return apierrors.NewForbidden(logicalClusterFamily.groupResource(), t.cluster, errors.New("logical cluster is marked inactive"))
}

// reconcile takes one step; the event of its write brings the next. The order is kcp's: label, shard, phase, URL.
func (l *logicalClusters) reconcile(ctx context.Context, cluster string) error {
	cached, has := l.get(cluster)
	if !has {
		return nil
	}
	edited := cached.DeepCopy()
	changed, err := l.step(ctx, cluster, edited)
	if err != nil || !changed {
		return err
	}
	_, err = l.server.store.replace(ctx, logicalClusterPlace(cluster), edited, cached.GetResourceVersion())
	if apierrors.IsConflict(err) {
		return nil // whoever was faster caused an event
	}
	return err
}

func (l *logicalClusters) step(ctx context.Context, cluster string, edited *unstructured.Unstructured) (bool, error) {
	phase := phaseOf(edited)
	if edited.GetLabels()[phaseLabel] != phase {
		edited.SetLabels(withAnnotation(edited.GetLabels(), phaseLabel, phase))
		return true, nil
	}
	if edited.GetAnnotations()[shardAnnotation] != l.server.config.Name {
		edited.SetAnnotations(withAnnotation(edited.GetAnnotations(), shardAnnotation, l.server.config.Name))
		return true, l.tellOwner(ctx, edited)
	}
	next := l.transition(cluster, edited, phase)
	url := wantedURL(l.server.config.ExternalURL(), cluster, edited)
	if next == phase && url == statusURL(edited) {
		return false, nil
	}
	return true, errors.Join(
		unstructured.SetNestedField(edited.Object, next, "status", "phase"),
		unstructured.SetNestedField(edited.Object, url, "status", "URL"))
}

// transition gives the next phase and does to the contexts what goes with it. It does so
// before the phase is written, and only for a transition it sees itself: a process that first
// sees the object with the new phase leaves its contexts as they are (trap 3).
func (l *logicalClusters) transition(cluster string, seen *unstructured.Unstructured, phase string) string {
	contexts := l.server.contexts
	inactive := seen.GetAnnotations()[inactiveAnnotation] == "true"
	switch {
	case seen.GetDeletionTimestamp() != nil && phase != phaseDeleting:
		contexts.drop(cluster, fmt.Errorf("logical cluster %s deleted", cluster))
		return phaseDeleting
	case seen.GetDeletionTimestamp() != nil:
		return phase
	case phase == "" || phase == "Scheduling":
		return phaseInitializing
	case phase == phaseInitializing:
		return phaseReady
	case phase == phaseReady && inactive:
		reason := fmt.Errorf("logical cluster %s inactive", cluster)
		contexts.cancel(cluster, reason)
		contexts.cancel(wildcard, reason)
		return phaseInactive
	case phase == phaseInactive && !inactive:
		reason := fmt.Errorf("logical cluster %s reactivated", cluster)
		contexts.drop(cluster, reason)
		contexts.drop(wildcard, reason)
		return phaseReady
	}
	return phase
}

// tellOwner names this shard in the owner Workspace, wherever that is. It runs only when the
// LogicalCluster's own annotation was another's, as on a real kcp.
func (l *logicalClusters) tellOwner(ctx context.Context, of *unstructured.Unstructured) error {
	owner, has, err := unstructured.NestedStringMap(of.Object, "spec", "owner")
	if err != nil || !has {
		return err
	}
	version, err := schema.ParseGroupVersion(owner["apiVersion"])
	if err != nil {
		return fmt.Errorf("read owner of logical cluster: %w", err)
	}
	at := target{cluster: owner["cluster"], group: version.Group, version: version.Version, resource: owner["resource"], namespace: owner["namespace"], name: owner["name"]}
	found, url, err := l.server.peers.find(ctx, at)
	if err != nil {
		return fmt.Errorf("find owner of logical cluster: %w", err)
	}
	if found.GetAnnotations()[shardAnnotation] == l.server.config.Name {
		return nil
	}
	patch := map[string]any{"metadata": map[string]any{"annotations": map[string]string{shardAnnotation: l.server.config.Name}}}
	return l.server.peers.patch(ctx, url, at, patch)
}

func phaseOf(of *unstructured.Unstructured) string {
	phase, _, _ := unstructured.NestedString(of.Object, "status", "phase")
	return phase
}

func statusURL(of *unstructured.Unstructured) string {
	url, _, _ := unstructured.NestedString(of.Object, "status", "URL")
	return url
}

// wantedURL is what status.URL is to be; as long as the front door is unknown, what it is.
func wantedURL(external, cluster string, of *unstructured.Unstructured) string {
	if external == "" {
		return statusURL(of)
	}
	return strings.TrimSuffix(external, "/") + "/clusters/" + cluster
}
