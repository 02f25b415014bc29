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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
)

// forGood is how long a controller lags behind that comes too late in any case.
const forGood = time.Hour

func newWorkspace(name, shard string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"location": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"name": shard}}}},
	}}
}

func (s server) workspacePhase(name string) string {
	found, err := s.dynamic("root").Resource(workspaceResource).Get(s.t.Context(), name, metav1.GetOptions{})
	require.NoError(s.t, err)
	return phaseOf(found)
}

// toggle is the cure of trap 1.
func (s server) toggle(cluster string) {
	s.t.Helper()
	s.fence(cluster)
	s.lift(cluster)
}

// cutDelay fences the cluster and measures from when a watcher of etcd hears of the annotation to when clients' watches end.
func (s server) cutDelay(cluster string) time.Duration {
	_, own := s.watch(in(cluster, configMaps+"?watch=true"))
	_, across := s.watch(in("*", "/api/v1/configmaps?watch=true"))
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	heard := make(chan time.Time, 1)
	changes := s.etcd.Watch(ctx, clusterKey(cluster), clientv3.WithCreatedNotify())
	<-changes // it stands
	go func() {
		<-changes
		heard <- time.Now()
	}()
	s.annotate(cluster)
	began := <-heard
	delay := max((<-own).Sub(began), (<-across).Sub(began))
	s.awaitPhase(cluster, phaseInactive)
	return delay
}

func TestFence_WhenAnnotated_RefusesAndCuts(t *testing.T) {
	s := start(t, 1).server("root", 0)
	neighbours, _ := s.watch(in(neighbour, configMaps+"?watch=true&resourceVersion="+revisionText(s.revision())))
	s.cutDelay(consumer)

	code, body := s.get(in(consumer, configMaps))
	require.Equal(t, http.StatusForbidden, code)
	require.Contains(t, body, `logicalclusters.core.kcp.io \"`+consumer+`\" is forbidden: logical cluster is marked inactive`)
	require.Equal(t, http.StatusOK, s.code(in(consumer, "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster")))
	require.Equal(t, http.StatusOK, s.code(in(consumer, "/openapi/v3")))
	require.Equal(t, http.StatusOK, s.code(in(neighbour, configMaps)))
	require.Empty(t, neighbours)

	s.lift(consumer)
	require.Equal(t, http.StatusOK, s.code(in(consumer, configMaps)))
}

// A real kcp cut a watch 12 ms after the annotation (docs/kcp-findings.md).
func BenchmarkFence_CutsWatches(b *testing.B) {
	s := start(b, 1).server("root", 0)
	var delays time.Duration
	for b.Loop() {
		delays += s.cutDelay(consumer)
		s.lift(consumer)
	}
	b.ReportMetric(float64(delays.Microseconds())/1000/float64(b.N), "ms/cut")
}

func TestTrap1_WhenAFencedClusterIsDeleted_TheShardStaysBlindUntilAnotherIsToggled(t *testing.T) {
	s := start(t, 1).server("root", 0)
	s.fence(consumer)
	_, err := s.etcd.Delete(t.Context(), clusterKey(consumer))
	require.NoError(t, err)
	code, body := s.get(allClusters)
	require.Equal(t, http.StatusGatewayTimeout, code)
	require.Contains(t, body, "request did not complete within the allotted timeout")
	_, ended := s.watch(in("*", "/api/v1/namespaces?watch=true"))
	<-ended
	require.Equal(t, http.StatusOK, s.code(in("*", "/apis/core.kcp.io/v1alpha1/logicalclusters")), "exempt, as on a real kcp")

	_, err = s.dynamic("root").Resource(workspaceResource).Create(t.Context(), newWorkspace("late", "root"), metav1.CreateOptions{})
	require.NoError(t, err)
	s.stays(func() bool { return s.workspacePhase("late") == "Scheduling" }, 3*meddlingDelay, "it hangs")

	s.toggle(systemShard)
	require.Equal(t, http.StatusOK, s.code(allClusters))
	s.eventually(func() bool { return s.workspacePhase("late") == phaseReady }, "the workspace that hung")
}

func TestTrap2_WhenAClusterReturns_ItsContextStaysCancelledUntilItComesAsInactive(t *testing.T) {
	s := start(t, 1).server("root", 0)
	before := s.logicalCluster(consumer)
	s.fence(consumer)
	_, err := s.etcd.Delete(t.Context(), clusterKey(consumer))
	require.NoError(t, err)
	s.toggle(systemShard)

	s.write(consumer, before)
	s.eventually(func() bool { return s.code(in(consumer, configMaps)) == http.StatusGatewayTimeout }, "no cluster, no fence: 504")
	s.stays(func() bool { return s.code(in(consumer, configMaps)) == http.StatusGatewayTimeout }, 200*time.Millisecond, "sticky")

	s.write(consumer, nudged(before))
	s.awaitPhase(consumer, phaseReady)
	require.Equal(t, http.StatusOK, s.code(in(consumer, configMaps)))
}

func TestTrap3_WhenOneProcessIsSlow_ItAnswers504UntilNudged(t *testing.T) {
	i := start(t, 2)
	fast, slow := i.server("root", 0), i.server("root", 1)
	both := func(code int) bool { return fast.code(allClusters) == code && slow.code(allClusters) == code }
	nudge := func() {
		for !both(http.StatusOK) {
			fast.write(consumer, nudged(fast.logicalCluster(consumer)))
			fast.awaitPhase(consumer, phaseReady)
		}
	}
	lag := &i.shards["root"].servers[1].clusters.slowness
	fast.fence(consumer)
	// The fence is a race too, and the slow one may have an event in hand from before it was slow.
	for fast.code(allClusters) != http.StatusOK || slow.code(allClusters) != http.StatusGatewayTimeout {
		lag.Store(0)
		nudge()
		for !both(http.StatusGatewayTimeout) {
			slow.lift(consumer)
			slow.fence(consumer)
		}
		lag.Store(int64(forGood))
		fast.lift(consumer)
	}
	require.Equal(t, http.StatusOK, fast.code(in(consumer, configMaps)))

	lag.Store(0)
	fast.write(consumer, fast.logicalCluster(consumer))
	slow.stays(func() bool { return slow.code(allClusters) == http.StatusGatewayTimeout }, 600*time.Millisecond, "sticky")
	require.Equal(t, http.StatusGatewayTimeout, slow.code(in(consumer, configMaps)))
	nudge()
	require.Equal(t, http.StatusOK, slow.code(in(consumer, configMaps)))
}

func TestTrap3_WhenOneProcessIsSlow_ItsWatchesStayOpenUntilNudged(t *testing.T) {
	i := start(t, 2)
	fast, slow := i.server("root", 0), i.server("root", 1)
	lag := &i.shards["root"].servers[1].clusters.slowness
	lag.Store(int64(forGood))
	_, cut := fast.watch(in(consumer, configMaps+"?watch=true"))
	_, open := slow.watch(in(consumer, configMaps+"?watch=true"))
	fast.fence(consumer)
	<-cut
	slow.eventually(func() bool { return slow.code(in(consumer, configMaps)) == http.StatusForbidden }, "the fence itself needs no controller")

	lag.Store(0)
	fast.write(consumer, fast.logicalCluster(consumer))
	slow.stays(func() bool { return len(open) == 0 }, 600*time.Millisecond, "not cut")
	for len(open) == 0 {
		object := fast.logicalCluster(consumer)
		object.SetLabels(withAnnotation(object.GetLabels(), phaseLabel, phaseReady))
		object.Object["status"].(map[string]any)["phase"] = phaseReady
		fast.write(consumer, object)
		fast.awaitPhase(consumer, phaseInactive)
	}
}

func TestTrap4_WhenAProviderMovedAway_ItsVirtualWorkspaceFailsUntilTheContextIsReleased(t *testing.T) {
	i := start(t, 1)
	origin, destination := i.server("root", 0), i.server("shard-1", 0)
	view := exportServices + provider + "/wild/clusters/*/apis/wild.west/v1/cowboys"
	code, body := origin.get(view)
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, 20+3, strings.Count(body, `"kind":"Cowboy"`))

	origin.fence(provider)
	for key, value := range origin.entries(provider) {
		_, err := destination.etcd.Put(t.Context(), key, value)
		require.NoError(t, err)
	}
	moved := nudged(origin.logicalCluster(provider))
	destination.write(provider, moved)
	destination.awaitPhase(provider, phaseReady)
	_, err := origin.etcd.Delete(t.Context(), clusterKey(provider))
	require.NoError(t, err)
	origin.toggle(systemShard)
	require.Equal(t, http.StatusInternalServerError, origin.code(view))

	origin.write(provider, moved)
	origin.awaitPhase(provider, phaseReady)
	_, err = origin.etcd.Delete(t.Context(), clusterKey(provider))
	require.NoError(t, err)
	origin.eventually(func() bool { return origin.code(view) == http.StatusOK }, "released")
}

func TestTrap4_WhenTheLogicalClusterIsDismissed_TheContextIsReleasedAndTheFenceStands(t *testing.T) {
	i := start(t, 1)
	origin := i.server("root", 0)
	view := exportServices + provider + "/wild/clusters/*/apis/wild.west/v1/cowboys"
	origin.fence(provider)
	origin.toggle(systemShard)
	before := origin.entries(provider)
	delete(before, clusterKey(provider))

	dismissed := origin.logicalCluster(provider)
	now := metav1.Now()
	grace := int64(3600)
	dismissed.SetDeletionTimestamp(&now)
	dismissed.SetDeletionGracePeriodSeconds(&grace)
	dismissed.SetFinalizers(nil)
	origin.write(provider, dismissed)
	origin.awaitPhase(provider, phaseDeleting)

	require.Equal(t, http.StatusForbidden, origin.code(in(provider, "/api/v1/namespaces/default")))
	origin.stays(func() bool {
		after := origin.entries(provider)
		delete(after, clusterKey(provider))
		return maps.Equal(before, after)
	}, time.Second, "entries untouched")
	_, err := origin.etcd.Delete(t.Context(), clusterKey(provider))
	require.NoError(t, err)
	origin.eventually(func() bool { return origin.code(view) == http.StatusOK }, "released")
}

func TestRequest_OfAUserForAClusterThatTheShardDoesNotHaveOrThatIsUnavailable_IsDenied(t *testing.T) {
	i := start(t, 1)
	origin := i.server("root", 0)
	ask := func(cluster string) int {
		config := origin.config(cluster)
		client, err := rest.HTTPClientFor(config)
		require.NoError(t, err)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+"/api/v1/namespaces/default", nil)
		require.NoError(t, err)
		request.Header.Set(RemoteUserHeader, "kcp-admin")
		response, err := client.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.StatusCode
	}
	require.Equal(t, http.StatusOK, ask(consumer))
	require.Equal(t, http.StatusForbidden, ask("0nobody0lives0he"))

	unavailable := origin.logicalCluster(consumer)
	unavailable.SetLabels(withAnnotation(unavailable.GetLabels(), phaseLabel, phaseUnavailable))
	unavailable.Object["status"].(map[string]any)["phase"] = phaseUnavailable
	origin.write(consumer, unavailable)
	origin.eventually(func() bool { return ask(consumer) == http.StatusForbidden }, "users are kept out")
	require.Equal(t, http.StatusOK, origin.code(in(consumer, configMaps)), "system:masters are not")
}
