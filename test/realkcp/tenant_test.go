package realkcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
	"github.com/kcp-migrate/kcp-migrate/test/installation"
)

// collectionAge is when kcp may delete a bound CRD that nothing uses.
const collectionAge = 31 * time.Minute

// furnish gives root:consumer, which devstack has filled with some of everything, what is hardest to move.
func furnish(t *testing.T, stack *stack) *workspace {
	t.Helper()
	stack.workspace(t, "root:provider").apply(t, "tame.yaml")
	consumer := stack.workspace(t, "root:consumer")
	consumer.raiseQuota(t)
	consumer.apply(t, "robot.yaml")
	consumer.apply(t, "leaving.yaml")
	consumer.createOwned(t)
	require.NoError(t, consumer.of(resources["Namespace"], "").Delete(t.Context(), "held", metav1.DeleteOptions{}))
	require.NoError(t, consumer.of(apiBindings, "").Delete(t.Context(), "tame", metav1.DeleteOptions{}))
	await(t, "deletions to be held up", func(ctx context.Context) error { return consumer.heldUp(ctx) })
	return consumer
}

// raiseQuota makes room for what the tests' clients write.
func (w *workspace) raiseQuota(t *testing.T) {
	t.Helper()
	patch := []byte(`{"spec":{"hard":{"count/configmaps":"100000"}}}`)
	_, err := w.kubernetes.CoreV1().ResourceQuotas("default").Patch(t.Context(), "q", types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
}

// owned are dependents that sort before their owners, in one family and across families.
var owned = []struct{ dependent, owner reference }{
	{reference{configMaps, "a-dependent"}, reference{configMaps, "z-owner"}},
	{reference{configMaps, "b-dependent"}, reference{resources["Secret"], "z-owner"}},
	{reference{gizmos, "c-dependent"}, reference{cowboys, "z-owner"}},
}

// reference is an object in the namespace default.
type reference struct {
	resource schema.GroupVersionResource
	name     string
}

func (w *workspace) createOwned(t *testing.T) {
	t.Helper()
	kinds := map[schema.GroupVersionResource]string{configMaps: "ConfigMap", resources["Secret"]: "Secret", gizmos: "Gizmo", cowboys: "Cowboy"}
	for _, pair := range owned {
		owner, dependent := pair.owner, pair.dependent
		created := w.create(t, owner.resource, newObject(owner.resource.GroupVersion().String(), kinds[owner.resource], "default", owner.name, nil))
		object := newObject(dependent.resource.GroupVersion().String(), kinds[dependent.resource], "default", dependent.name, nil)
		object.SetOwnerReferences([]metav1.OwnerReference{{
			APIVersion: created.GetAPIVersion(), Kind: created.GetKind(), Name: created.GetName(), UID: created.GetUID(),
		}})
		w.create(t, dependent.resource, object)
	}
}

// requireCollected deletes the owners and expects the garbage collector to know its work here.
func (w *workspace) requireCollected(t *testing.T) {
	t.Helper()
	for _, pair := range owned {
		w.get(t, pair.dependent.resource, "default", pair.dependent.name)
		require.NoError(t, w.of(pair.owner.resource, "default").Delete(t.Context(), pair.owner.name, metav1.DeleteOptions{}))
		w.awaitGone(t, pair.dependent.resource, "default", pair.dependent.name)
	}
}

// heldUp gives no error while the deletions that cannot end go on.
func (w *workspace) heldUp(ctx context.Context) error {
	namespace, err := w.kubernetes.CoreV1().Namespaces().Get(ctx, "held", metav1.GetOptions{})
	if err != nil {
		return err
	}
	holder, err := w.of(configMaps, "held").Get(ctx, "holder", metav1.GetOptions{})
	if err != nil {
		return err
	}
	binding, err := w.of(apiBindings, "").Get(ctx, "tame", metav1.GetOptions{})
	if err != nil {
		return err
	}
	bella, err := w.of(cattle, "default").Get(ctx, "bella", metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, object := range []metav1.Object{namespace, holder, binding, bella} {
		if object.GetDeletionTimestamp() == nil {
			return fmt.Errorf("%s is not being deleted", object.GetName())
		}
	}
	return nil
}

// letGo takes the finalizers away and waits until the deletions have ended.
func (w *workspace) letGo(t *testing.T) {
	t.Helper()
	w.release(t, configMaps, "held", "holder")
	w.awaitGone(t, resources["Namespace"], "", "held")
	w.release(t, cattle, "default", "bella")
	w.awaitGone(t, apiBindings, "", "tame")
}

// bearer is a client that has nothing but the token in a Secret of the workspace.
func (w *workspace) bearer(t *testing.T, secret string) *workspace {
	t.Helper()
	config := rest.AnonymousClientConfig(w.config)
	await(t, "token in Secret "+secret, func(ctx context.Context) error {
		found, err := w.kubernetes.CoreV1().Secrets("default").Get(ctx, secret, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if config.BearerToken = string(found.Data["token"]); config.BearerToken == "" {
			return errors.New("it is not there yet")
		}
		return nil
	})
	config.QPS = -1
	return newWorkspace(t, w.path, config)
}

// ageBoundCRDs makes the CRDs of all that the workspace binds so old that kcp may collect them, and tells how many.
func (w *workspace) ageBoundCRDs(t *testing.T, shard installation.Shard) {
	t.Helper()
	bindings, err := w.of(apiBindings, "").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	etcd := dialEtcd(t, shard)
	aged := 0
	for _, binding := range bindings.Items {
		bound, _, err := unstructured.NestedSlice(binding.Object, "status", "boundResources")
		require.NoError(t, err)
		for _, resource := range bound {
			uid, _, err := unstructured.NestedString(resource.(map[string]any), "schema", "UID")
			require.NoError(t, err)
			age(t, etcd, keyspace.NewLayout(shard.EtcdPrefix).BoundCRDKey(uid))
			aged++
		}
	}
	require.NotZero(t, aged)
}

func age(t *testing.T, etcd *clientv3.Client, key string) {
	t.Helper()
	found, err := etcd.Get(t.Context(), key)
	require.NoError(t, err)
	require.Len(t, found.Kvs, 1, key)
	crd := &unstructured.Unstructured{}
	require.NoError(t, json.Unmarshal(found.Kvs[0].Value, crd))
	crd.SetCreationTimestamp(metav1.NewTime(time.Now().Add(-collectionAge)))
	value, err := json.Marshal(crd)
	require.NoError(t, err)
	_, err = etcd.Put(t.Context(), key, string(value))
	require.NoError(t, err)
}

func dialEtcd(t testing.TB, shard installation.Shard) *clientv3.Client {
	t.Helper()
	etcd, err := shard.Etcd(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, etcd.Close()) })
	return etcd
}

// shortenLease lets one of the tenant's Events end soon, and gives its key.
func shortenLease(t *testing.T, shard installation.Shard, logicalCluster string) (key string) {
	t.Helper()
	const ttlSeconds = 60
	etcd := dialEtcd(t, shard)
	prefix := keyspace.NewLayout(shard.EtcdPrefix).FamilyPrefix(keyspace.Family{Group: "core", Resource: "events"}, logicalCluster)
	event, err := etcd.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithLimit(1))
	require.NoError(t, err)
	require.NotEmpty(t, event.Kvs)
	lease, err := etcd.Grant(t.Context(), ttlSeconds)
	require.NoError(t, err)
	_, err = etcd.Put(t.Context(), string(event.Kvs[0].Key), string(event.Kvs[0].Value), clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	return string(event.Kvs[0].Key)
}

// awaitExpiry waits until a key has ended by its lease.
func awaitExpiry(t *testing.T, shard installation.Shard, key string) {
	t.Helper()
	etcd := dialEtcd(t, shard)
	await(t, "expiry of "+key, func(ctx context.Context) error {
		found, err := etcd.Get(ctx, key, clientv3.WithCountOnly())
		if err == nil && found.Count > 0 {
			err = errors.New("it is still there")
		}
		return err
	})
}
