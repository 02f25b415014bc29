package realkcp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/kcp-migrate/kcp-migrate/test/installation"
)

func TestProvider_MovedAwayFromItsConsumers_GoesOnServingThem(t *testing.T) {
	stack := theStack(t)
	provider := stack.workspace(t, "root:provider")
	provider.apply(t, "controller.yaml")
	controller := provider.bearer(t, "controller-token")
	consumers := []*workspace{stack.create(t, "near", rootShard), stack.create(t, "far", otherShard)}
	for _, consumer := range consumers {
		consumer.apply(t, "binding.yaml")
		consumer.create(t, cowboys, newCowboy("of-before", consumer.path))
	}
	shards := stack.virtualWorkspaces(t, provider, controller)
	for _, shard := range shards {
		shard.requireServing(t)
	}
	before := stack.settledExports(t, provider)

	result := stack.move(t, provider.path, otherShard)

	after := stack.exports(t)
	provider.awaitPath(t)
	stack.requireArrived(t, result.LogicalCluster, leg{rootShard, otherShard}, before, after)
	requireNothingLeft(t, result.LogicalCluster, rootShard, after)
	stack.requireOthersUntouched(t, provider, result.LogicalCluster, before, after)
	holds(t, "bindings stay bound and their objects served", func(ctx context.Context) error {
		return expectBound(ctx, consumers)
	})
	shards[otherShard].requireServing(t)
	shards[rootShard].requireNoFailure(t)
	stack.renewCachedCopies(t, result.LogicalCluster, leg{rootShard, otherShard})
	for _, shard := range shards {
		shard.requireServing(t)
	}
	provider.changeExport(t, consumers)
	stack.requireScheduling(t, rootShard)
	for _, name := range []string{"near", "far"} {
		stack.delete(t, name)
	}
}

// awaitPath waits until the workspace's path leads to it, and tells how long that took: a front-proxy may forget it when the
// shard of the parent workspace gives up a provider (docs/kcp-findings.md).
func (w *workspace) awaitPath(t *testing.T) {
	t.Helper()
	begun := time.Now()
	await(t, "path "+w.path, func(ctx context.Context) error {
		_, err := w.kubernetes.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	t.Logf("path %s led to its workspace %s after the move", w.path, time.Since(begun))
}

// expectBound gives no error while all consumers are bound and read and write what is bound.
func expectBound(ctx context.Context, consumers []*workspace) error {
	for _, consumer := range consumers {
		binding, err := consumer.of(apiBindings, "").Get(ctx, "wild", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := expectText(binding, "Bound", "status", "phase"); err != nil {
			return err
		}
		if _, err := consumer.of(cowboys, "default").Get(ctx, "of-before", metav1.GetOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// virtualWorkspaces are those of the export wild by shard, all consumers of the shard at once, as the controller
// reaches them.
func (s *stack) virtualWorkspaces(t *testing.T, provider, controller *workspace) map[string]*workspace {
	t.Helper()
	found := map[string]*workspace{}
	await(t, "virtual workspace on every shard", func(ctx context.Context) error {
		slice, err := provider.of(endpointSlices, "").Get(ctx, "wild", metav1.GetOptions{})
		if err != nil {
			return err
		}
		endpoints, _, err := unstructured.NestedSlice(slice.Object, "status", "endpoints")
		if err != nil {
			return err
		}
		for _, endpoint := range endpoints {
			url := endpoint.(map[string]any)["url"].(string)
			for _, shard := range s.Shards {
				if strings.HasPrefix(url, shard.APIServers[0]) {
					config := rest.CopyConfig(controller.config)
					config.Host = url + "/clusters/*"
					found[shard.Name] = newWorkspace(t, config.Host, config)
				}
			}
		}
		if len(found) < len(s.Shards) {
			return fmt.Errorf("endpoints are %v", endpoints)
		}
		return nil
	})
	return found
}

// requireServing expects a virtual workspace to serve consumers' objects, as long as controllers get to break it: what is
// wrong there may show only every other time (Trap 4 of docs/kcp-findings.md).
func (w *workspace) requireServing(t *testing.T) {
	t.Helper()
	serves := func(ctx context.Context) error {
		list, err := w.of(cowboys, "").List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) == 0 {
			err = errors.New("it is empty")
		}
		return err
	}
	await(t, "virtual workspace "+w.path, serves)
	holds(t, "virtual workspace serves", serves)
}

// requireNoFailure expects answers, but takes a refusal for one: where the provider has left the shard, kcp's cache server
// may have lost its logical cluster, and everyone but system:masters is denied (Trap 5 of docs/kcp-findings.md).
func (w *workspace) requireNoFailure(t *testing.T) {
	t.Helper()
	refused := 0
	holds(t, "virtual workspace answers", func(ctx context.Context) error {
		_, err := w.of(cowboys, "").List(ctx, metav1.ListOptions{})
		if apierrors.IsForbidden(err) {
			refused++
			return nil
		}
		return err
	})
	t.Logf("virtual workspace %s refused %d times", w.path, refused)
}

// renewCachedCopies does by hand what the plan of a provider's move asks for (Trap 5 of docs/kcp-findings.md): it deletes the
// origin's copies in the cache server, then the destination's, which that shard makes anew. The origin's shard makes its
// own anew as well until its informers have caught up.
func (s *stack) renewCachedCopies(t *testing.T, logicalCluster string, moved leg) {
	t.Helper()
	cache := dialEtcd(t, installation.Shard{Name: "cache", EtcdEndpoints: s.CacheEtcdEndpoints})
	await(t, "the origin's copies to stay away", func(ctx context.Context) error {
		if deleteCopies(t, cache, moved.origin, logicalCluster) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(settleTime): // so long without a new one counts as staying away
		}
		return errors.New("there were some")
	})
	require.NotZero(t, deleteCopies(t, cache, moved.destination, logicalCluster))
}

// deleteCopies tells how many there were.
func deleteCopies(t *testing.T, cache *clientv3.Client, shard, logicalCluster string) int {
	t.Helper()
	copies, err := cache.Get(t.Context(), "/cache/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(t, err)
	deleted := 0
	for _, copied := range copies.Kvs {
		if strings.Contains(string(copied.Key), "/customresources/"+shard+"/"+logicalCluster+"/") {
			_, err := cache.Delete(t.Context(), string(copied.Key))
			require.NoError(t, err)
			deleted++
		}
	}
	return deleted
}

// changeExport offers one more resource and expects every consumer to get it.
func (w *workspace) changeExport(t *testing.T, consumers []*workspace) {
	t.Helper()
	schema := newObject("apis.kcp.io/v1alpha1", "APIResourceSchema", "", "v1.horses.wild.west", map[string]any{"spec": map[string]any{
		"group":    horses.Group,
		"names":    map[string]any{"kind": "Horse", "listKind": "HorseList", "plural": horses.Resource, "singular": "horse"},
		"scope":    "Namespaced",
		"versions": []any{map[string]any{"name": horses.Version, "served": true, "storage": true, "schema": map[string]any{"type": "object"}}},
	}})
	w.create(t, resources["APIResourceSchema"], schema)
	await(t, "change of the export", func(ctx context.Context) error {
		export := w.get(t, apiExports, "", "wild")
		offered, _, err := unstructured.NestedSlice(export.Object, "spec", "resources")
		if err != nil {
			return err
		}
		offered = append(offered, map[string]any{
			"group": horses.Group, "name": horses.Resource, "schema": schema.GetName(),
			"storage": map[string]any{"crd": map[string]any{}},
		})
		if err := unstructured.SetNestedSlice(export.Object, offered, "spec", "resources"); err != nil {
			return err
		}
		_, err = w.of(apiExports, "").Update(ctx, export, metav1.UpdateOptions{})
		return err
	})
	for _, consumer := range consumers {
		await(t, horses.Resource+" in "+consumer.path, func(ctx context.Context) error {
			object := newObject("wild.west/v1", "Horse", "default", "first", nil)
			_, err := consumer.of(horses, "default").Create(ctx, object, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		})
	}
}
