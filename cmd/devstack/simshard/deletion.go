package simshard

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	bindingFinalizer = "apis.kcp.io/apibinding-finalizer"
	crdFinalizer     = "customresourcecleanup.apiextensions.k8s.io"
)

// empty takes away what belongs to what is being deleted: the logical cluster's entries, a
// namespace's, an APIBinding's, a CRD's. What has finalizers of others stays until they are done.
// Every deletion is an event, and every event brings the next look.
func (m *meddlers) empty(ctx context.Context, cluster string, tenant map[place]item) error {
	var errs []error
	for at, each := range tenant {
		var inside func(place) bool
		var release func(*unstructured.Unstructured)
		switch {
		case !each.deleting:
			continue
		case at.family == logicalClusterFamily:
			inside = func(other place) bool { return other != at }
			release = func(held *unstructured.Unstructured) { dropFinalizer(held, logicalClusterFinalizer) }
		case at.family == namespaceFamily:
			inside = func(other place) bool { return other.namespace == at.name }
			release = func(held *unstructured.Unstructured) {
				unstructured.RemoveNestedField(held.Object, "spec", "finalizers")
			}
		case len(each.holds) > 0:
			inside = func(other place) bool { return slices.Contains(each.holds, other.family) }
			release = func(held *unstructured.Unstructured) {
				dropFinalizer(held, bindingFinalizer)
				dropFinalizer(held, crdFinalizer)
			}
		default:
			continue
		}
		errs = append(errs, m.emptyOne(ctx, at, tenant, inside, release))
	}
	return errors.Join(errs...)
}

func (m *meddlers) emptyOne(ctx context.Context, at place, tenant map[place]item, inside func(place) bool, release func(*unstructured.Unstructured)) error {
	var errs []error
	left := false
	for other, each := range tenant {
		if !inside(other) {
			continue
		}
		left = true
		if !each.deleting {
			errs = append(errs, m.remove(ctx, other))
		}
	}
	if left {
		return errors.Join(errs...)
	}
	return m.change(ctx, at, func(held *unstructured.Unstructured) error {
		release(held)
		return nil
	})
}

func dropFinalizer(held *unstructured.Unstructured, finalizer string) {
	held.SetFinalizers(slices.DeleteFunc(held.GetFinalizers(), func(each string) bool { return each == finalizer }))
}
