package simshard

import (
	"encoding/json"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/openapi3"
	"k8s.io/client-go/tools/cache"
)

var (
	configMapResource = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	cowboyResource    = schema.GroupVersionResource{Group: "wild.west", Version: "v1", Resource: "cowboys"}
	gizmoResource     = schema.GroupVersionResource{Group: "acme.io", Version: "v1", Resource: "gizmos"}
	bindingResource   = schema.GroupVersionResource{Group: "apis.kcp.io", Version: "v1alpha2", Resource: "apibindings"}
	crdResource       = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	workspaceResource = schema.GroupVersionResource{Group: "tenancy.kcp.io", Version: "v1alpha1", Resource: "workspaces"}
)

func TestShard_WhenStartedOnTheFixtures_ChangesNothing(t *testing.T) {
	i := start(t, 1)
	for _, name := range []string{"root", "shard-1"} {
		before := i.server(name, 0).export()
		i.server(name, 0).stays(func() bool { return maps.Equal(before, i.server(name, 0).export()) }, 3*meddlingDelay, "untouched")
	}
}

// TestAPI runs what one installation can bear: each check leaves what the later ones count.
func TestAPI(t *testing.T) {
	s := start(t, 1).server("root", 0)
	for _, check := range []struct {
		name string
		run  func(*testing.T, server)
	}{
		{"API_WhenUsedThroughClientGo_ServesEveryKindOfResource", checkAPI_WhenUsedThroughClientGo_ServesEveryKindOfResource},
		{"API_WhenObjectsAreWritten_StoresThemAsKcpDoes", checkAPI_WhenObjectsAreWritten_StoresThemAsKcpDoes},
		{"API_WhenAnEventIsCreated_ItGetsALease", checkAPI_WhenAnEventIsCreated_ItGetsALease},
		{"API_WhenACRDIsRewritten_StoresItAsV1beta1JSON", checkAPI_WhenACRDIsRewritten_StoresItAsV1beta1JSON},
		{"List_WhenPaged_GivesEveryItemOnceAtOneRevision", checkList_WhenPaged_GivesEveryItemOnceAtOneRevision},
		{"API_WhenAskedForMetadataOrTables_AnswersInThatForm", checkAPI_WhenAskedForMetadataOrTables_AnswersInThatForm},
		{"Discovery_WhenAsked_ListsWhatTheClusterServes", checkDiscovery_WhenAsked_ListsWhatTheClusterServes},
		{"Wildcard_WhenListed_CrossesClustersAndNeedsTheIdentityOfBoundResources", checkWildcard_WhenListed_CrossesClustersAndNeedsTheIdentityOfBoundResources},
		{"API_WhenTheClusterIsUnknown_ServesItEmptyByNameAndNotByPath", checkAPI_WhenTheClusterIsUnknown_ServesItEmptyByNameAndNotByPath},
		{"Informer_WhenObjectsComeAndGo_SeesThem", checkInformer_WhenObjectsComeAndGo_SeesThem},
		{"Watch_WhenLabelsStopMatching_TellsItAsADeletion", checkWatch_WhenLabelsStopMatching_TellsItAsADeletion},
		{"Watch_WhenItsRevisionLiesAhead_IsDeafUntilTheCounterCatchesUp", checkWatch_WhenItsRevisionLiesAhead_IsDeafUntilTheCounterCatchesUp},
		{"Read_WhenNotOlderThanARevisionAhead_TimesOutAfterThreeSeconds", checkRead_WhenNotOlderThanARevisionAhead_TimesOutAfterThreeSeconds},
		{"Watch_WhenItsRevisionIsTooOld_Expires", checkWatch_WhenItsRevisionIsTooOld_Expires},
		{"API_WithoutTheToken_IsClosed", checkAPI_WithoutTheToken_IsClosed},
	} {
		t.Run(check.name, func(t *testing.T) { check.run(t, s.on(t)) })
	}
}

func checkAPI_WhenUsedThroughClientGo_ServesEveryKindOfResource(t *testing.T, s server) {
	ctx := t.Context()

	maps, err := s.typed(consumer).CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, maps.Items, 42)
	require.Equal(t, consumer, maps.Items[0].Annotations[clusterAnnotation])
	require.NotEmpty(t, maps.Items[0].ResourceVersion)

	cowboys, err := s.dynamic(consumer).Resource(cowboyResource).List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, cowboys.Items, 10)
	gizmos, err := s.dynamic(consumer).Resource(gizmoResource).List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, gizmos.Items, 10)
	_, err = s.dynamic(child).Resource(cowboyResource).List(ctx, metav1.ListOptions{})
	require.True(t, apierrors.IsNotFound(err), "a cluster without the binding: %v", err)

	trap, err := s.dynamic(neighbour).Resource(cowboyResource).Namespace(consumer).List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	require.NotEmpty(t, trap.Items, "the neighbour's namespace named like the consumer")
	for _, item := range trap.Items {
		require.Equal(t, neighbour, item.GetAnnotations()[clusterAnnotation])
	}
}

func checkAPI_WhenObjectsAreWritten_StoresThemAsKcpDoes(t *testing.T, s server) {
	ctx := t.Context()
	typed := s.typed(consumer).CoreV1().ConfigMaps("default")

	created, err := typed.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "made-"}, Data: map[string]string{"a": "1"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	stored, err := s.etcd.Get(ctx, "/registry/core/configmaps/"+consumer+"/default/"+created.Name)
	require.NoError(t, err)
	require.Len(t, stored.Kvs, 1)
	require.Equal(t, "k8s\x00", string(stored.Kvs[0].Value[:4]))
	require.Equal(t, revisionText(stored.Kvs[0].ModRevision), created.ResourceVersion)

	patched, err := typed.Patch(ctx, created.Name, types.StrategicMergePatchType, []byte(`{"data":{"b":"2"}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "1", "b": "2"}, patched.Data)
	patched, err = typed.Patch(ctx, created.Name, types.JSONPatchType, []byte(`[{"op":"remove","path":"/data/a"}]`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"b": "2"}, patched.Data)

	_, err = typed.Update(ctx, created, metav1.UpdateOptions{})
	require.True(t, apierrors.IsConflict(err), "%v", err)
	_, err = typed.Create(ctx, patched.DeepCopy(), metav1.CreateOptions{})
	require.True(t, apierrors.IsAlreadyExists(err), "%v", err)
	require.NoError(t, typed.Delete(ctx, created.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &created.UID}}))
	_, err = typed.Get(ctx, created.Name, metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)

	bad := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "bad"}, "data": map[string]any{"a": true}}}
	_, err = s.dynamic(consumer).Resource(configMapResource).Namespace("default").Create(ctx, bad, metav1.CreateOptions{})
	require.True(t, apierrors.IsBadRequest(err), "%v", err)

	cowboy := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "wild.west/v1", "kind": "Cowboy", "metadata": map[string]any{"name": "lucky"}, "spec": map[string]any{"intent": "ride"}}}
	_, err = s.dynamic(consumer).Resource(cowboyResource).Namespace("default").Create(ctx, cowboy, metav1.CreateOptions{})
	require.NoError(t, err)
	identity := "85e82dd06a5d9e5fa3849d8dfd07b05b4874af490251dc31e9b04a68a068f694"
	stored, err = s.etcd.Get(ctx, "/registry/wild.west/cowboys/"+identity+"/"+consumer+"/default/lucky")
	require.NoError(t, err)
	require.Len(t, stored.Kvs, 1)
	require.True(t, json.Valid(stored.Kvs[0].Value))
	require.NoError(t, s.dynamic(consumer).Resource(cowboyResource).Namespace("default").Delete(ctx, "lucky", metav1.DeleteOptions{}))
}

func checkAPI_WhenAnEventIsCreated_ItGetsALease(t *testing.T, s server) {
	_, err := s.typed(consumer).CoreV1().Events("default").Create(t.Context(), &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e"}, InvolvedObject: corev1.ObjectReference{Namespace: "default"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	stored, err := s.etcd.Get(t.Context(), "/registry/core/events/"+consumer+"/default/e")
	require.NoError(t, err)
	require.NotZero(t, stored.Kvs[0].Lease)
}

func checkAPI_WhenACRDIsRewritten_StoresItAsV1beta1JSON(t *testing.T, s server) {
	crds := s.dynamic(consumer).Resource(crdResource)
	_, err := crds.Patch(t.Context(), "gizmos.acme.io", types.MergePatchType, []byte(`{"metadata":{"labels":{"touched":"yes"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	stored, err := s.etcd.Get(t.Context(), "/registry/apiextensions.k8s.io/customresourcedefinitions/"+consumer+"/gizmos.acme.io")
	require.NoError(t, err)
	require.Contains(t, string(stored.Kvs[0].Value), `"apiVersion":"apiextensions.k8s.io/v1beta1"`)
	read, err := crds.Get(t.Context(), "gizmos.acme.io", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "yes", read.GetLabels()["touched"])
	require.Equal(t, http.StatusOK, s.code(in(consumer, "/apis/acme.io/v1/gizmos")))
}

func checkList_WhenPaged_GivesEveryItemOnceAtOneRevision(t *testing.T, s server) {
	maps := s.typed(consumer).CoreV1().ConfigMaps("")
	seen := map[string]bool{}
	options := metav1.ListOptions{Limit: 10}
	var revision string
	for {
		page, err := maps.List(t.Context(), options)
		require.NoError(t, err)
		if revision == "" {
			revision = page.ResourceVersion
		}
		require.Equal(t, revision, page.ResourceVersion)
		for _, item := range page.Items {
			require.False(t, seen[item.Namespace+item.Name])
			seen[item.Namespace+item.Name] = true
		}
		if options.Continue = page.Continue; page.Continue == "" {
			break
		}
	}
	require.Len(t, seen, 43)
	selected, err := maps.List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=cm-7"})
	require.NoError(t, err)
	require.Len(t, selected.Items, 1)
}

func checkAPI_WhenAskedForMetadataOrTables_AnswersInThatForm(t *testing.T, s server) {
	client, err := metadata.NewForConfig(s.config(consumer))
	require.NoError(t, err)
	partial, err := client.Resource(cowboyResource).Namespace("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, partial.Items, 10)
	require.NotEmpty(t, partial.Items[0].UID)
}

func checkDiscovery_WhenAsked_ListsWhatTheClusterServes(t *testing.T, s server) {
	client, err := kubernetes.NewForConfig(s.config(consumer))
	require.NoError(t, err)
	_, lists, err := client.Discovery().ServerGroupsAndResources()
	require.NoError(t, err)
	served := map[string]bool{}
	for _, list := range lists {
		for _, each := range list.APIResources {
			served[list.GroupVersion+"/"+each.Name] = true
		}
	}
	for _, wanted := range []string{"v1/configmaps", "acme.io/v1/gizmos", "wild.west/v1/cowboys", "wild.west/v1/cowboys/status", "tenancy.kcp.io/v1alpha1/workspaces", "core.kcp.io/v1alpha1/logicalclusters"} {
		require.True(t, served[wanted], wanted)
	}
	version, err := client.Discovery().ServerVersion()
	require.NoError(t, err)
	require.Equal(t, gitVersion, version.GitVersion)
	document, err := openapi3.NewRoot(client.Discovery().OpenAPIV3()).GVSpec(cowboyResource.GroupVersion())
	require.NoError(t, err)
	require.Contains(t, document.Paths.Paths, "/apis/wild.west/v1/namespaces/{namespace}/cowboys/{name}")
}

func checkWildcard_WhenListed_CrossesClustersAndNeedsTheIdentityOfBoundResources(t *testing.T, s server) {
	clusters := map[string]bool{}
	all, err := s.dynamic("*").Resource(configMapResource).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, item := range all.Items {
		clusters[item.GetAnnotations()[clusterAnnotation]] = true
	}
	require.True(t, clusters[consumer] && clusters[neighbour] && clusters["system:shard"])
	require.Equal(t, http.StatusNotFound, s.code(in("*", "/apis/wild.west/v1/cowboys")))
	require.Equal(t, http.StatusOK, s.code(in("*", "/apis/wild.west/v1/cowboys:85e82dd06a5d9e5fa3849d8dfd07b05b4874af490251dc31e9b04a68a068f694")))
	require.Equal(t, http.StatusMethodNotAllowed, s.code(in("*", "/api/v1/namespaces/default/configmaps/cm-1")))
}

func checkAPI_WhenTheClusterIsUnknown_ServesItEmptyByNameAndNotByPath(t *testing.T, s server) {
	require.Equal(t, http.StatusOK, s.code(in("unknowncluster", "/api/v1/configmaps")))
	require.Equal(t, http.StatusNotFound, s.code(in("root:nope", "/api/v1/configmaps")))
	require.Equal(t, http.StatusOK, s.code(in("root:consumer", configMaps)))
	require.Equal(t, http.StatusOK, s.code(in("root:consumer:child", "/api/v1/configmaps")))
}

func checkInformer_WhenObjectsComeAndGo_SeesThem(t *testing.T, s server) {
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(s.dynamic(consumer), 0, "default", nil)
	informer := factory.ForResource(configMapResource).Informer()
	factory.Start(t.Context().Done())
	require.True(t, cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced))
	require.Len(t, informer.GetStore().ListKeys(), 42)
	maps := s.typed(consumer).CoreV1().ConfigMaps("default")
	_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	s.eventually(func() bool { return len(informer.GetStore().ListKeys()) == 43 }, "the new one")
	require.NoError(t, maps.Delete(t.Context(), "new", metav1.DeleteOptions{}))
	s.eventually(func() bool { return len(informer.GetStore().ListKeys()) == 42 }, "the new one gone")
}

func checkWatch_WhenLabelsStopMatching_TellsItAsADeletion(t *testing.T, s server) {
	events, _ := s.watch(in(consumer, configMaps+"?watch=true&labelSelector=pick%3Dme&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"))
	require.Equal(t, "BOOKMARK", (<-events).Type)
	maps := s.typed(consumer).CoreV1().ConfigMaps("default")
	for _, patch := range []string{`{"metadata":{"labels":{"pick":"me"}}}`, `{"data":{"x":"y"}}`, `{"metadata":{"labels":{"pick":null}}}`} {
		_, err := maps.Patch(t.Context(), "cm-1", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	for _, wanted := range []string{"ADDED", "MODIFIED", "DELETED"} {
		event := <-events
		require.Equal(t, wanted, event.Type)
		require.Equal(t, "cm-1", event.Object.GetName())
	}
}

func checkWatch_WhenItsRevisionLiesAhead_IsDeafUntilTheCounterCatchesUp(t *testing.T, s server) {
	ahead := s.revision() + 5
	events, _ := s.watch(in(consumer, configMaps+"?watch=true&resourceVersion="+revisionText(ahead)))
	maps := s.typed(consumer).CoreV1().ConfigMaps("default")
	_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "missed"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	for s.revision() < ahead {
		_, err := s.etcd.Put(t.Context(), "/elsewhere", "")
		require.NoError(t, err)
	}
	require.Empty(t, events)
	_, err = maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "heard"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	event := <-events
	require.Equal(t, "heard", event.Object.GetName())
}

func checkRead_WhenNotOlderThanARevisionAhead_TimesOutAfterThreeSeconds(t *testing.T, s server) {
	ahead := "&resourceVersion=" + revisionText(s.revision()+1000)
	for _, path := range []string{configMaps + "?resourceVersionMatch=NotOlderThan" + ahead, "/api/v1/namespaces/default?" + ahead} {
		began := time.Now()
		code, body := s.get(in(consumer, path))
		require.Equal(t, http.StatusGatewayTimeout, code)
		require.Contains(t, body, string(metav1.CauseTypeResourceVersionTooLarge))
		require.GreaterOrEqual(t, time.Since(began), freshnessTimeout)
	}
	events, _ := s.watch(in(consumer, configMaps+"?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"+ahead))
	event := <-events
	require.Equal(t, "ERROR", event.Type)
	require.InEpsilon(t, float64(http.StatusGatewayTimeout), event.Object.Object["code"], 0)
}

func checkWatch_WhenItsRevisionIsTooOld_Expires(t *testing.T, s server) {
	old := s.revision()
	tooOld := func(revision int64) {
		events, ended := s.watch(in(consumer, configMaps+"?watch=true&resourceVersion="+revisionText(revision)))
		event := <-events
		require.Equal(t, "ERROR", event.Type)
		require.InEpsilon(t, float64(http.StatusGone), event.Object.Object["code"], 0)
		<-ended
	}
	tooOld(1) // before this API server began to watch
	for range 10 {
		_, err := s.etcd.Put(t.Context(), "/elsewhere", "")
		require.NoError(t, err)
	}
	_, err := s.etcd.Compact(t.Context(), s.revision())
	require.NoError(t, err)
	tooOld(old + 2)
}

func checkAPI_WithoutTheToken_IsClosed(t *testing.T, s server) {
	config := s.config(consumer)
	config.BearerToken = "other"
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	_, err = client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsUnauthorized(err), "%v", err)
}
