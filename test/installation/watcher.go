package installation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Watcher is a tenant's client that follows ConfigMaps in two ways: with an informer, and with a bare
// watch that goes on from its last resourceVersion whenever it is cut, as simple clients do.
type Watcher struct {
	tenant kubernetes.Interface
	cancel context.CancelFunc
	done   sync.WaitGroup

	mutex    sync.Mutex
	informer sightings
	raw      sightings
	relists  int
}

// sightings are when each ConfigMap was first seen and which were reported deleted.
type sightings struct {
	seen    map[string]time.Time
	deleted map[string]bool
}

// Delays is how long a Watcher's two ways took to see an object, from its acknowledged creation on.
type Delays struct {
	Informer, Raw time.Duration
}

// StartWatcher starts one in a workspace; it returns once both ways have seen what is there.
func (i *Installation) StartWatcher(ctx context.Context, workspace string) (*Watcher, error) {
	tenant, err := i.Tenant(workspace)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	watcher := &Watcher{
		tenant: tenant, cancel: cancel,
		informer: sightings{seen: map[string]time.Time{}, deleted: map[string]bool{}},
		raw:      sightings{seen: map[string]time.Time{}, deleted: map[string]bool{}},
	}
	resourceVersion, err := watcher.list(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	watcher.done.Go(func() { watcher.watchRaw(ctx, resourceVersion) })
	if err := watcher.runInformer(ctx); err != nil {
		watcher.Stop()
		return nil, err
	}
	return watcher, nil
}

// Stop ends both watches.
func (w *Watcher) Stop() {
	w.cancel()
	w.done.Wait()
}

// FalseDeletes names the ConfigMaps that were reported deleted though the tenant did not ask for it.
func (w *Watcher) FalseDeletes(asked map[string]bool) []string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	reported := maps.Clone(w.informer.deleted)
	maps.Copy(reported, w.raw.deleted)
	maps.DeleteFunc(reported, func(name string, _ bool) bool { return asked[name] })
	return slices.Sorted(maps.Keys(reported))
}

// Relists is how often the bare watch was told that its resourceVersion is too old.
func (w *Watcher) Relists() int {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.relists
}

// Probe creates a ConfigMap and waits until both ways have seen it.
func (w *Watcher) Probe(ctx context.Context, name string) (Delays, error) {
	marker := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := w.tenant.CoreV1().ConfigMaps(tenantNamespace).Create(ctx, marker, metav1.CreateOptions{}); err != nil {
		return Delays{}, fmt.Errorf("create ConfigMap %s to be seen: %w", name, err)
	}
	created := time.Now()
	var byInformer, byRaw time.Time
	err := await(ctx, func() (bool, error) {
		w.mutex.Lock()
		defer w.mutex.Unlock()
		byInformer, byRaw = w.informer.seen[name], w.raw.seen[name]
		return !byInformer.IsZero() && !byRaw.IsZero(), nil
	})
	if err != nil {
		return Delays{}, fmt.Errorf("await sight of ConfigMap %s (informer saw it: %t, bare watch: %t): %w",
			name, !byInformer.IsZero(), !byRaw.IsZero(), err)
	}
	// An event may come before the creation's own answer.
	return Delays{Informer: max(0, byInformer.Sub(created)), Raw: max(0, byRaw.Sub(created))}, nil
}

func (w *Watcher) runInformer(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(w.tenant, 0, informers.WithNamespace(tenantNamespace))
	informer := factory.Core().V1().ConfigMaps().Informer()
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { w.see(&w.informer, object) },
		DeleteFunc: func(object any) {
			if last, unknown := object.(cache.DeletedFinalStateUnknown); unknown {
				object = last.Obj
			}
			w.lose(&w.informer, object)
		},
	})
	if err != nil {
		return fmt.Errorf("add informer's handler: %w", err)
	}
	w.done.Go(func() {
		factory.StartWithContext(ctx)
		<-ctx.Done()
		factory.Shutdown()
	})
	if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return fmt.Errorf("sync informer: %w", context.Cause(ctx))
	}
	return nil
}

// watchRaw follows from a resourceVersion, across every cut, and lists again only when told to by 410 Gone.
func (w *Watcher) watchRaw(ctx context.Context, resourceVersion string) {
	for ctx.Err() == nil {
		last, err := w.watchOnce(ctx, resourceVersion)
		resourceVersion = last
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			if listed, err := w.list(ctx); err == nil {
				w.mutex.Lock()
				w.relists++
				w.mutex.Unlock()
				resourceVersion = listed
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryInterval):
		}
	}
}

// watchOnce watches until the connection ends and gives the last resourceVersion it saw.
func (w *Watcher) watchOnce(ctx context.Context, resourceVersion string) (string, error) {
	stream, err := w.tenant.CoreV1().ConfigMaps(tenantNamespace).Watch(ctx, metav1.ListOptions{ResourceVersion: resourceVersion, AllowWatchBookmarks: true})
	if err != nil {
		return resourceVersion, err
	}
	defer stream.Stop()
	for event := range stream.ResultChan() {
		configMap, ok := event.Object.(*corev1.ConfigMap)
		if !ok {
			return resourceVersion, apierrors.FromObject(event.Object)
		}
		resourceVersion = configMap.ResourceVersion
		switch event.Type {
		case watch.Added, watch.Modified:
			w.see(&w.raw, configMap)
		case watch.Deleted:
			w.lose(&w.raw, configMap)
		default:
		}
	}
	return resourceVersion, nil
}

// list sees everything that is there, and reports as deleted what it had seen and is not there any more.
func (w *Watcher) list(ctx context.Context) (string, error) {
	list, err := w.tenant.CoreV1().ConfigMaps(tenantNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("list ConfigMaps: %w", err)
	}
	present := map[string]bool{}
	for index := range list.Items {
		present[list.Items[index].Name] = true
		w.see(&w.raw, &list.Items[index])
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for name := range w.raw.seen {
		if !present[name] {
			w.raw.deleted[name] = true
		}
	}
	return list.ResourceVersion, nil
}

func (w *Watcher) see(by *sightings, object any) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	name := object.(metav1.Object).GetName()
	if _, before := by.seen[name]; !before {
		by.seen[name] = time.Now()
	}
}

func (w *Watcher) lose(by *sightings, object any) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	by.deleted[object.(metav1.Object).GetName()] = true
}
