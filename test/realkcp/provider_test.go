package realkcp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
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
	for _, shard := range stack.virtualWorkspaces(t, provider, controller) {
		shard.requireServing(t)
	}

	for i, way := range []leg{{rootShard, otherShard}, {otherShard, rootShard}} {
		before := stack.settledExports(t, provider)
		result := stack.move(t, provider.path, way.destination)
		after := stack.exports(t)
		provider.awaitPath(t)
		stack.requireArrived(t, result.LogicalCluster, way, before, after)
		requireNothingLeft(t, result.LogicalCluster, way.origin, after)
		stack.requireOthersUntouched(t, provider, result.LogicalCluster, before, after)
		holds(t, "bindings stay bound and their objects served", func(ctx context.Context) error {
			return expectBound(ctx, consumers)
		})
		for _, shard := range stack.virtualWorkspaces(t, provider, controller) {
			shard.requireServing(t)
		}
		provider.changeExport(t, consumers, offers[i])
	}
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

// offers are resources that the provider's export comes to have, one after each move.
var offers = []schema.GroupVersionResource{
	{Group: "wild.west", Version: "v1", Resource: "horses"},
	{Group: "wild.west", Version: "v1", Resource: "wagons"},
}

// changeExport offers one more resource and expects every consumer to get it.
func (w *workspace) changeExport(t *testing.T, consumers []*workspace, offer schema.GroupVersionResource) {
	t.Helper()
	singular := strings.TrimSuffix(offer.Resource, "s")
	kind := strings.ToUpper(singular[:1]) + singular[1:]
	offered := newObject("apis.kcp.io/v1alpha1", "APIResourceSchema", "", "v1."+offer.GroupResource().String(), map[string]any{"spec": map[string]any{
		"group":    offer.Group,
		"names":    map[string]any{"kind": kind, "listKind": kind + "List", "plural": offer.Resource, "singular": singular},
		"scope":    "Namespaced",
		"versions": []any{map[string]any{"name": offer.Version, "served": true, "storage": true, "schema": map[string]any{"type": "object"}}},
	}})
	w.create(t, resources["APIResourceSchema"], offered)
	await(t, "change of the export", func(ctx context.Context) error {
		export := w.get(t, apiExports, "", "wild")
		resources, _, err := unstructured.NestedSlice(export.Object, "spec", "resources")
		if err != nil {
			return err
		}
		resources = append(resources, map[string]any{
			"group": offer.Group, "name": offer.Resource, "schema": offered.GetName(),
			"storage": map[string]any{"crd": map[string]any{}},
		})
		if err := unstructured.SetNestedSlice(export.Object, resources, "spec", "resources"); err != nil {
			return err
		}
		_, err = w.of(apiExports, "").Update(ctx, export, metav1.UpdateOptions{})
		return err
	})
	for _, consumer := range consumers {
		await(t, offer.Resource+" in "+consumer.path, func(ctx context.Context) error {
			object := newObject(offer.GroupVersion().String(), kind, "default", "first", nil)
			_, err := consumer.of(offer, "default").Create(ctx, object, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		})
	}
}
