package simshard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	resources "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/util/workqueue"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/simshard/follow"
)

const (
	// meddlingDelay gathers the changes of a cluster before its controllers act on them.
	meddlingDelay = 200 * time.Millisecond
	// boundCRDAge is how old an unused CRD in system:bound-crds has to be to go (kcp: pkg/reconciler/apis/crdcleanup).
	boundCRDAge   = 30 * time.Minute
	boundCRDSweep = time.Minute

	bindingUpToDate        = "BindingUpToDate"
	logicalClusterNotFound = "LogicalClusterNotFound"
)

// meddlers are the controllers of a shard that write into tenants: they are why a half-copied tenant must be fenced.
// They see the shard through wildcard requests and write through requests to the tenant, so
// they stand still while either is cancelled, and leave a fenced tenant alone.
type meddlers struct {
	server    *apiServer
	inventory *inventory
	queue     workqueue.TypedRateLimitingInterface[string]
	// seeing is true while the inventory is complete and followed.
	seeing atomic.Bool
}

func newMeddlers(server *apiServer) *meddlers {
	return &meddlers{
		server: server, inventory: newInventory(server.store.layout),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
	}
}

// mark has the controllers look at a cluster soon.
func (m *meddlers) mark(cluster string) { m.queue.AddAfter(cluster, meddlingDelay) }

// Put takes note of a written object.
func (m *meddlers) Put(key string, value []byte, _ int64) {
	if at, noted := m.inventory.put(key, value); noted {
		m.markPlace(at)
	}
}

// Delete takes note of a deleted object.
func (m *meddlers) Delete(key string) {
	if at, noted := m.inventory.remove(key); noted {
		m.markPlace(at)
	}
}

// Synced has the controllers look at everything: they may have been blind for long.
func (m *meddlers) Synced() {
	m.seeing.Store(true)
	for _, cluster := range m.inventory.clusters() {
		m.mark(cluster)
	}
}

func (m *meddlers) markPlace(at place) {
	m.mark(at.cluster)
	if at.family == bindingFamily {
		m.mark(boundCRDs)
	}
}

// run keeps the controllers going until ctx ends.
func (m *meddlers) run(ctx context.Context) {
	follower := follow.New(m.server.store.client, string(m.server.store.layout), m)
	var work sync.WaitGroup
	work.Go(func() {
		m.server.contexts.whileLive(ctx, wildcard, func(live context.Context) {
			follower.Run(live)
			m.seeing.Store(false)
		})
	})
	work.Go(func() { m.sweep(ctx) })
	work.Go(func() { m.work(ctx) })
	<-ctx.Done()
	m.queue.ShutDown()
	work.Wait()
}

// sweep has old bound CRDs looked at: they come of age without any event.
func (m *meddlers) sweep(ctx context.Context) {
	tick := time.NewTicker(boundCRDSweep)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			m.mark(boundCRDs)
		}
	}
}

func (m *meddlers) work(ctx context.Context) {
	for {
		cluster, shutdown := m.queue.Get()
		if shutdown {
			return
		}
		if err := m.reconcile(ctx, cluster); err != nil && ctx.Err() == nil {
			m.server.log.Debug("reconcile tenant", "cluster", cluster, "error", err)
			m.queue.AddRateLimited(cluster)
		} else {
			m.queue.Forget(cluster)
		}
		m.queue.Done(cluster)
	}
}

// may reports whether a controller can see the shard and write into the cluster.
func (m *meddlers) may(cluster string) bool {
	contexts := m.server.contexts
	return m.seeing.Load() && !contexts.cancelled(wildcard) && !contexts.cancelled(cluster) && !m.server.clusters.fenced(cluster)
}

func (m *meddlers) reconcile(ctx context.Context, cluster string) error {
	if !m.may(cluster) {
		return nil
	}
	tenant := m.inventory.tenant(cluster)
	if cluster == boundCRDs {
		return m.deleteUnusedCRDs(ctx, tenant)
	}
	if strings.HasPrefix(cluster, "system:") || len(tenant) == 0 {
		return nil
	}
	rules := []func(context.Context, string, map[place]item) error{
		m.empty, m.schedule, m.publishCA, m.createAccounts, m.collectGarbage, m.collectTokens, m.bind, m.count,
	}
	var errs []error
	for _, rule := range rules {
		errs = append(errs, rule(ctx, cluster, tenant))
	}
	return errors.Join(errs...)
}

// deleteUnusedCRDs deletes the bound CRDs that no APIBinding on this shard uses and that are old enough.
func (m *meddlers) deleteUnusedCRDs(ctx context.Context, crds map[place]item) error {
	used := m.inventory.boundSchemas()
	var errs []error
	for _, crd := range crds {
		if crd.family == crdFamily && !used[crd.name] && time.Since(crd.created) > boundCRDAge {
			errs = append(errs, m.purge(ctx, crd.place))
		}
	}
	return errors.Join(errs...)
}

// publishCA writes this shard's CA into every namespace and into every token Secret.
func (m *meddlers) publishCA(ctx context.Context, cluster string, tenant map[place]item) error {
	ca := m.inventory.ca()
	if ca == "" {
		return nil
	}
	var errs []error
	for at, each := range tenant {
		published := place{family: configMapFamily, cluster: cluster, namespace: at.name, name: rootCAName}
		_, has := tenant[published]
		switch {
		case at.family == namespaceFamily && !each.deleting && !has:
			errs = append(errs, m.create(ctx, published, &corev1.ConfigMap{Data: map[string]string{rootCAKey: ca}}))
		case each.staleCA && at.family == configMapFamily:
			errs = append(errs, m.change(ctx, at, func(stale *unstructured.Unstructured) error {
				return unstructured.SetNestedField(stale.Object, ca, "data", rootCAKey)
			}))
		case each.staleCA:
			errs = append(errs, m.change(ctx, at, func(stale *unstructured.Unstructured) error { return setSecretCA(stale, ca) }))
		}
	}
	return errors.Join(errs...)
}

func setSecretCA(stale *unstructured.Unstructured, ca string) error {
	secret := &corev1.Secret{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stale.Object, secret); err != nil {
		return fmt.Errorf("convert Secret: %w", err)
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	secret.Data[rootCAKey] = []byte(ca)
	edited, err := toUnstructured(secret)
	if err == nil {
		stale.Object = edited.Object
	}
	return err
}

// createAccounts gives every namespace its default ServiceAccount.
func (m *meddlers) createAccounts(ctx context.Context, cluster string, tenant map[place]item) error {
	var errs []error
	for at, each := range tenant {
		account := place{family: accountFamily, cluster: cluster, namespace: at.name, name: "default"}
		if _, has := tenant[account]; at.family == namespaceFamily && !each.deleting && !has {
			errs = append(errs, m.create(ctx, account, &corev1.ServiceAccount{}))
		}
	}
	return errors.Join(errs...)
}

// collectGarbage deletes every object whose owners are all absent, by UID.
func (m *meddlers) collectGarbage(ctx context.Context, _ string, tenant map[place]item) error {
	present := map[types.UID]bool{}
	for _, each := range tenant {
		present[each.uid] = true
	}
	var errs []error
	for at, each := range tenant {
		orphaned := len(each.owners) > 0 && !each.deleting
		for _, owner := range each.owners {
			orphaned = orphaned && !present[owner]
		}
		if orphaned {
			errs = append(errs, m.remove(ctx, at))
		}
	}
	return errors.Join(errs...)
}

// collectTokens deletes the token Secrets whose ServiceAccount is absent.
func (m *meddlers) collectTokens(ctx context.Context, cluster string, tenant map[place]item) error {
	var errs []error
	for at, each := range tenant {
		account := place{family: accountFamily, cluster: cluster, namespace: at.namespace, name: each.account}
		if _, has := tenant[account]; each.account != "" && !has {
			errs = append(errs, m.remove(ctx, at))
		}
	}
	return errors.Join(errs...)
}

// bind tells every APIBinding whether its LogicalCluster is there (kcp: apibinding_reconcile.go).
func (m *meddlers) bind(ctx context.Context, cluster string, tenant map[place]item) error {
	has := m.server.clusters.has(cluster)
	var errs []error
	for at, each := range tenant {
		if at.family == bindingFamily && each.unbound == has {
			errs = append(errs, m.change(ctx, at, func(binding *unstructured.Unstructured) error { return setBound(binding, has) }))
		}
	}
	return errors.Join(errs...)
}

func setBound(binding *unstructured.Unstructured, bound bool) error {
	conditions, _, err := unstructured.NestedSlice(binding.Object, "status", "conditions")
	if err != nil {
		return fmt.Errorf("read conditions of APIBinding: %w", err)
	}
	now := time.Now().UTC().Format(time.RFC3339)
	for _, each := range conditions {
		condition, isMap := each.(map[string]any)
		if !isMap || condition["type"] != bindingUpToDate && condition["type"] != phaseReady {
			continue
		}
		condition["status"], condition["lastTransitionTime"] = "True", now
		for _, field := range []string{"reason", "severity", "message"} {
			delete(condition, field)
		}
		if !bound {
			condition["status"], condition["reason"], condition["severity"] = "False", logicalClusterNotFound, "Error"
			condition["message"] = "Unable to bind APIs: logicalcluster.core.kcp.io \"cluster\" not found"
		}
	}
	return unstructured.SetNestedSlice(binding.Object, conditions, "status", "conditions")
}

func conditionReason(of *unstructured.Unstructured, kind string) string {
	conditions, _, _ := unstructured.NestedSlice(of.Object, "status", "conditions")
	for _, each := range conditions {
		if condition, isMap := each.(map[string]any); isMap && condition["type"] == kind {
			reason, _ := condition["reason"].(string)
			return reason
		}
	}
	return ""
}

// count writes what is used into the status of every ResourceQuota.
func (m *meddlers) count(ctx context.Context, _ string, tenant map[place]item) error {
	var errs []error
	for at, each := range tenant {
		if each.quota == nil {
			continue
		}
		used := usage(each.quota.hard, at.namespace, tenant)
		if equality.Semantic.DeepEqual(used, each.quota.used) {
			continue
		}
		errs = append(errs, m.change(ctx, at, func(quota *unstructured.Unstructured) error {
			status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&corev1.ResourceQuotaStatus{Hard: each.quota.hard, Used: used})
			quota.Object["status"] = status
			return err
		}))
	}
	return errors.Join(errs...)
}

func usage(hard corev1.ResourceList, namespace string, tenant map[place]item) corev1.ResourceList {
	used := corev1.ResourceList{}
	for limited := range hard {
		wanted := strings.TrimPrefix(string(limited), "count/")
		var objects int64
		for at := range tenant {
			if at.namespace == namespace && at.groupResource().String() == wanted {
				objects++
			}
		}
		used[limited] = *resources.NewQuantity(objects, resources.DecimalSI)
	}
	return used
}

// create, change, remove and purge are the controllers' writes. What another did in the meantime is no error.

// create makes an object in a namespace, if that is still there.
func (m *meddlers) create(ctx context.Context, at place, created object) error {
	if !m.may(at.cluster) {
		return nil
	}
	if _, err := m.server.store.get(ctx, place{family: namespaceFamily, cluster: at.cluster, name: at.namespace}); err != nil {
		return ignore(err)
	}
	created.SetName(at.name)
	created.SetNamespace(at.namespace)
	created.SetUID(uuid.NewUUID())
	created.SetCreationTimestamp(metav1.NewTime(time.Now().UTC().Truncate(time.Second)))
	kinds, _, err := builtInScheme.ObjectKinds(created)
	if err != nil {
		return fmt.Errorf("create %s: %w", at.resource, err)
	}
	created.GetObjectKind().SetGroupVersionKind(kinds[0])
	content, err := toUnstructured(created)
	if err != nil {
		return err
	}
	_, err = m.server.store.create(ctx, at, content)
	return ignore(err)
}

func (m *meddlers) change(ctx context.Context, at place, edit func(*unstructured.Unstructured) error) error {
	if !m.may(at.cluster) {
		return nil
	}
	_, err := m.server.store.change(ctx, at, edit)
	return ignore(err)
}

func (m *meddlers) remove(ctx context.Context, at place) error {
	if !m.may(at.cluster) {
		return nil
	}
	_, err := m.server.store.remove(ctx, at, nil)
	return ignore(err)
}

// purge deletes an object whatever finalizers it has.
func (m *meddlers) purge(ctx context.Context, at place) error {
	return m.change(ctx, at, func(held *unstructured.Unstructured) error {
		held.SetFinalizers(nil)
		unstructured.RemoveNestedField(held.Object, "spec", "finalizers")
		return markDeleting(held)
	})
}

func ignore(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
