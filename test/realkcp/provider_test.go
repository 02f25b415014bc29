package realkcp

import (
	"context"
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	controller.requireServed(t, provider, consumers)
	for round, leg := range thereAndBack {
		before := stack.exports(t)

		result := stack.move(t, provider.path, leg.destination)

		after := stack.exports(t)
		requireArrived(t, result.LogicalCluster, before[leg.origin], after[leg.destination])
		requireNothingLeft(t, result.LogicalCluster, leg.origin, after)
		requireOthersUntouched(t, result.LogicalCluster, before, after)
		holds(t, "bindings stay bound and their objects served", func(ctx context.Context) error {
			return requireBound(ctx, consumers)
		})
		controller.requireServed(t, provider, consumers)
		provider.changeExport(t, round, consumers)
		controller.requireServed(t, provider, consumers)
		stack.requireScheduling(t, leg.origin)
	}
	for _, name := range []string{"near", "far"} {
		stack.delete(t, name)
	}
}

// requireBound gives no error while all consumers are bound and read and write what is bound.
func requireBound(ctx context.Context, consumers []*workspace) error {
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

// requireServed works on all consumers' objects through the export's virtual workspace on every shard, as long as
// controllers get to break it: what is wrong there may show only every other time.
func (w *workspace) requireServed(t *testing.T, provider *workspace, consumers []*workspace) {
	t.Helper()
	shards := w.virtualWorkspaces(t, provider)
	seen := func(ctx context.Context) error {
		found := map[string]bool{}
		for _, shard := range shards {
			list, err := shard.of(cowboys, "").List(ctx, metav1.ListOptions{})
			if err != nil {
				return fmt.Errorf("list cowboys at %s: %w", shard.path, err)
			}
			for _, cowboy := range list.Items {
				found[cowboy.GetAnnotations()["kcp.io/cluster"]] = true
			}
		}
		for _, consumer := range consumers {
			if !found[consumer.logicalCluster(t)] {
				return errors.New("no cowboy of " + consumer.path)
			}
		}
		return nil
	}
	await(t, "cowboys of all consumers through the virtual workspaces", seen)
	holds(t, "virtual workspaces serve the cowboys of all consumers", seen)
}

// virtualWorkspaces are the export's, one on each shard with a consumer, all consumers at once.
func (w *workspace) virtualWorkspaces(t *testing.T, provider *workspace) []*workspace {
	t.Helper()
	var shards []*workspace
	await(t, "virtual workspace on every shard", func(ctx context.Context) error {
		slice, err := provider.of(endpointSlices, "").Get(ctx, "wild", metav1.GetOptions{})
		if err != nil {
			return err
		}
		endpoints, _, err := unstructured.NestedSlice(slice.Object, "status", "endpoints")
		if err != nil {
			return err
		}
		if len(endpoints) != 2 {
			return fmt.Errorf("endpoints are %v", endpoints)
		}
		shards = nil
		for _, endpoint := range endpoints {
			config := rest.CopyConfig(w.config)
			config.Host = endpoint.(map[string]any)["url"].(string) + "/clusters/*"
			shards = append(shards, newWorkspace(t, config.Host, config))
		}
		return nil
	})
	return shards
}

// changeExport offers one more resource and expects every consumer to get it.
func (w *workspace) changeExport(t *testing.T, round int, consumers []*workspace) {
	t.Helper()
	addition := additions[round]
	w.create(t, resources["APIResourceSchema"], addition.schema())
	await(t, "change of the export", func(ctx context.Context) error {
		export := w.get(t, apiExports, "", "wild")
		offered, _, err := unstructured.NestedSlice(export.Object, "spec", "resources")
		if err != nil {
			return err
		}
		offered = append(offered, map[string]any{
			"group": "wild.west", "name": addition.resource.Resource, "schema": addition.schema().GetName(),
			"storage": map[string]any{"crd": map[string]any{}},
		})
		if err := unstructured.SetNestedSlice(export.Object, offered, "spec", "resources"); err != nil {
			return err
		}
		_, err = w.of(apiExports, "").Update(ctx, export, metav1.UpdateOptions{})
		return err
	})
	for _, consumer := range consumers {
		await(t, addition.resource.Resource+" in "+consumer.path, func(ctx context.Context) error {
			object := newObject("wild.west/v1", addition.kind, "default", "first", nil)
			_, err := consumer.of(addition.resource, "default").Create(ctx, object, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		})
	}
}
