package simshard

import (
	"context"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// entries are the keys of a cluster, all but its LogicalCluster.
func (s server) entries(cluster string) map[string]string {
	all := s.export()
	maps.DeleteFunc(all, func(key, _ string) bool {
		at, isEntry := newLayout("").parse(key)
		return !isEntry || at.cluster != cluster || at.family == logicalClusterFamily
	})
	return all
}

// copyTo writes the cluster's entries into another shard, dependents before their owners.
func (s server) copyTo(destination server, cluster string) map[string]string {
	copied := s.entries(cluster)
	for key, value := range copied {
		_, err := destination.etcd.Put(s.t.Context(), key, value)
		require.NoError(s.t, err)
	}
	return copied
}

// plant gives the consumer what a careless copy loses: an owned object and a token Secret.
func (s server) plant(ctx context.Context) {
	typed := s.typed(consumer).CoreV1()
	owner, err := typed.ConfigMaps("default").Get(ctx, "cm-9", metav1.GetOptions{})
	require.NoError(s.t, err)
	_, err = typed.ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: "owned", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}},
	}}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	_, err = typed.Secrets("default").Create(ctx, &corev1.Secret{
		Type:       corev1.SecretTypeServiceAccountToken,
		ObjectMeta: metav1.ObjectMeta{Name: "token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
}

func key(f family, cluster, namespace, name string) string {
	return newLayout("").key(place{family: f, cluster: cluster, namespace: namespace, name: name})
}

func (s server) has(at string) bool {
	answer, err := s.etcd.Get(s.t.Context(), at, clientv3.WithCountOnly())
	require.NoError(s.t, err)
	return answer.Count > 0
}

func (s server) delete(at string) {
	_, err := s.etcd.Delete(s.t.Context(), at)
	require.NoError(s.t, err)
}

func TestMeddlers_WhenEntriesStandWithoutALogicalCluster_RewriteThem(t *testing.T) {
	i := start(t, 1)
	origin, destination := i.server("root", 0), i.server("shard-1", 0)
	origin.plant(t.Context())
	copied := origin.copyTo(destination, consumer)
	owner, account := key(configMapFamily, consumer, "default", "cm-9"), key(accountFamily, consumer, "default", "default")
	destination.delete(owner)
	destination.delete(account)

	destination.eventually(func() bool { return !destination.has(key(configMapFamily, consumer, "default", "owned")) }, "garbage collected")
	destination.eventually(func() bool { return !destination.has(key(secretFamily, consumer, "default", "token")) }, "token deleted")
	changed := func(at string) func() bool {
		return func() bool { return destination.export()[at] != copied[at] }
	}
	destination.eventually(changed(key(configMapFamily, consumer, "default", rootCAName)), "the shard's own CA")
	destination.eventually(changed(key(quotaFamily, consumer, "default", "q")), "quota counted anew")
	destination.eventually(changed(key(bindingFamily, consumer, "", "wild")), "binding's conditions")
	require.Contains(t, destination.export()[key(bindingFamily, consumer, "", "wild")], logicalClusterNotFound)
}

func TestMeddlers_WhenTheClusterIsFenced_LeaveItAlone(t *testing.T) {
	i := start(t, 1)
	origin, destination := i.server("root", 0), i.server("shard-1", 0)
	origin.plant(t.Context())
	fenced := nudged(origin.logicalCluster(consumer))
	fenced.SetAnnotations(withAnnotation(withAnnotation(fenced.GetAnnotations(), inactiveAnnotation, "true"), shardAnnotation, "shard-1"))
	destination.write(consumer, fenced)
	destination.eventually(func() bool { return destination.code(in(consumer, configMaps)) == http.StatusForbidden }, "fenced")
	copied := origin.copyTo(destination, consumer)
	destination.stays(func() bool { return maps.Equal(copied, destination.entries(consumer)) }, 4*meddlingDelay, "byte-equal")
}

func TestCommit_WhenOpenedWithTheOldShard_CorrectsItAndTellsTheOwner(t *testing.T) {
	i := start(t, 1)
	origin, destination := i.server("root", 0), i.server("shard-1", 0)
	origin.fence(consumer)
	origin.copyTo(destination, consumer)
	destination.write(consumer, nudged(origin.logicalCluster(consumer)))
	destination.awaitPhase(consumer, phaseReady)
	require.Equal(t, "shard-1", destination.logicalCluster(consumer).GetAnnotations()[shardAnnotation])
	owner, err := origin.dynamic("root").Resource(workspaceResource).Get(t.Context(), "consumer", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "shard-1", owner.GetAnnotations()[shardAnnotation])
	require.Equal(t, http.StatusOK, destination.code(in(consumer, "/apis/wild.west/v1/cowboys")))

	ca := key(configMapFamily, consumer, "default", rootCAName)
	shards := destination.export()[key(configMapFamily, systemShard, "default", rootCAName)]
	destination.eventually(func() bool {
		return authorityIn(t, destination.export()[ca]) == authorityIn(t, shards)
	}, "the shard's CA is published after the commit")
}

func authorityIn(t *testing.T, value string) string {
	read, err := decode(configMapFamily, []byte(value))
	require.NoError(t, err)
	return read.(*corev1.ConfigMap).Data[rootCAKey]
}

func TestBoundResource_WhenTheShardLacksItsCRD_IsNotServed(t *testing.T) {
	s := start(t, 1).server("root", 0)
	cowboys := in(consumer, "/apis/wild.west/v1/cowboys")
	require.Equal(t, http.StatusOK, s.code(cowboys))
	s.delete(key(crdFamily, boundCRDs, "", "a131705f-1e58-457b-8695-c8f506b720df"))
	s.eventually(func() bool { return s.code(cowboys) == http.StatusNotFound }, "not served")
}

func TestBoundCRD_WhenNoBindingUsesIt_GoesOnceItIsOld(t *testing.T) {
	s := start(t, 1).server("shard-1", 0)
	crd := key(crdFamily, boundCRDs, "", "a131705f-1e58-457b-8695-c8f506b720df")
	young := strings.Replace(s.export()[crd], `"creationTimestamp":"`, `"creationTimestamp":"`+time.Now().UTC().Format(time.RFC3339)+`","was":"`, 1)
	young = strings.ReplaceAll(young, "a131705f-1e58-457b-8695-c8f506b720df", "young")
	_, err := s.etcd.Put(t.Context(), key(crdFamily, boundCRDs, "", "young"), young)
	require.NoError(t, err)
	require.True(t, s.has(crd))
	s.delete(key(bindingFamily, "2n4nmk6b9s8l87p2", "", "wild"))
	s.eventually(func() bool { return !s.has(crd) }, "old and unused")
	require.True(t, s.has(key(crdFamily, boundCRDs, "", "young")))
}

func TestNamespace_WhenDeleted_TakesItsContentWithIt(t *testing.T) {
	s := start(t, 1).server("root", 0)
	others := s.entries(neighbour)
	require.NoError(t, s.typed(consumer).CoreV1().Namespaces().Delete(t.Context(), "default", metav1.DeleteOptions{}))
	_, err := s.typed(consumer).CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "late"}}, metav1.CreateOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	s.eventually(func() bool { return !s.has(key(namespaceFamily, consumer, "", "default")) }, "namespace gone")
	for at := range s.entries(consumer) {
		parsed, _ := newLayout("").parse(at)
		require.NotEqual(t, "default", parsed.namespace, at)
	}
	require.Equal(t, others, s.entries(neighbour))
}

func TestNamespace_WhenAFinalizerHoldsItsContent_StaysTerminating(t *testing.T) {
	s := start(t, 1).server("root", 0)
	maps := s.typed(consumer).CoreV1().ConfigMaps("default")
	_, err := maps.Patch(t.Context(), "cm-1", types.MergePatchType, []byte(`{"metadata":{"finalizers":["test/held"]}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.NoError(t, s.typed(consumer).CoreV1().Namespaces().Delete(t.Context(), "default", metav1.DeleteOptions{}))
	s.eventually(func() bool { return len(s.listed(in(consumer, configMaps))) == 1 }, "all but the held one")
	namespace, err := s.typed(consumer).CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, corev1.NamespaceTerminating, namespace.Status.Phase)
	_, err = maps.Patch(t.Context(), "cm-1", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	s.eventually(func() bool { return !s.has(key(namespaceFamily, consumer, "", "default")) }, "namespace gone")
}

func (s server) listed(path string) []unstructured.Unstructured {
	code, body := s.get(path)
	require.Equal(s.t, http.StatusOK, code)
	list := &unstructured.UnstructuredList{}
	require.NoError(s.t, list.UnmarshalJSON([]byte(body)))
	return list.Items
}

func TestWorkspace_WhenCreatedAndDeletedOnAnotherShard_LeavesNothing(t *testing.T) {
	i := start(t, 1)
	root, other := i.server("root", 0), i.server("shard-1", 0)
	workspaces := root.dynamic("root").Resource(workspaceResource)
	_, err := workspaces.Create(t.Context(), newWorkspace("new", "shard-1"), metav1.CreateOptions{})
	require.NoError(t, err)
	root.eventually(func() bool { return root.workspacePhase("new") == phaseReady }, "ready")
	found, err := workspaces.Get(t.Context(), "new", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "shard-1", found.GetAnnotations()[shardAnnotation])
	cluster := specCluster(found)
	require.Equal(t, "root:new", other.logicalCluster(cluster).GetAnnotations()[pathAnnotation])
	other.eventually(func() bool {
		return other.code(in(cluster, "/api/v1/namespaces/default/configmaps/"+rootCAName)) == http.StatusOK
	}, "furnished")
	require.Equal(t, http.StatusOK, other.code(in(cluster, "/apis/tenancy.kcp.io/v1alpha1/workspaces")))

	require.NoError(t, workspaces.Delete(t.Context(), "new", metav1.DeleteOptions{}))
	root.eventually(func() bool {
		_, err := workspaces.Get(t.Context(), "new", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, "workspace gone")
	require.Nil(t, other.logicalCluster(cluster))
	require.Empty(t, other.entries(cluster))
}

func TestWorkspace_WhenDeletedWithAChild_TakesTheChildWithIt(t *testing.T) {
	s := start(t, 1).server("root", 0)
	others := s.entries(neighbour)
	require.NoError(t, s.dynamic("root").Resource(workspaceResource).Delete(t.Context(), "consumer", metav1.DeleteOptions{}))
	s.eventually(func() bool { return s.logicalCluster(consumer) == nil && s.logicalCluster(child) == nil }, "both gone")
	require.Empty(t, s.entries(consumer))
	require.Empty(t, s.entries(child))
	require.Equal(t, others, s.entries(neighbour))
}

func TestBinding_WhenDeleted_TakesWhatItBoundWithIt(t *testing.T) {
	s := start(t, 1).server("root", 0)
	require.NoError(t, s.dynamic(consumer).Resource(bindingResource).Delete(t.Context(), "wild", metav1.DeleteOptions{}))
	s.eventually(func() bool { return !s.has(key(bindingFamily, consumer, "", "wild")) }, "binding gone")
	for at := range s.entries(consumer) {
		require.NotContains(t, at, "/wild.west/")
	}
	require.NotEmpty(t, s.listed(in(neighbour, "/apis/wild.west/v1/cowboys")))
}
