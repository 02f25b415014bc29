package kcp

import (
	"context"
	"fmt"

	"github.com/kcp-dev/sdk/apis/core"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	conditionsv1alpha1 "github.com/kcp-dev/sdk/apis/third_party/conditions/apis/conditions/v1alpha1"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/util/conditions"
	corev1 "k8s.io/api/core/v1"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// unschedulableAnnotation keeps kcp's scheduler from a shard, whatever its value
// (kcp pkg/reconciler/tenancy/workspace/workspace_reconcile_scheduling.go).
const unschedulableAnnotation = "experimental.core.kcp.io/unschedulable"

// Shards lists the Shard objects, which are in the logical cluster root.
func (d *Directory) Shards(ctx context.Context) ([]activities.ShardInfo, error) {
	var found []activities.ShardInfo
	every := query{path: listPath(core.RootCluster.String(), shards)}
	err := eachPage(ctx, d.proxies, every, func(page corev1alpha1.ShardList) {
		for _, shard := range page.Items {
			found = append(found, activities.ShardInfo{Name: shard.Name, NotReady: notReady(shard)})
		}
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// notReady takes a shard without conditions for ready: kcp sets none by itself.
func notReady(shard corev1alpha1.Shard) string {
	if _, marked := shard.Annotations[unschedulableAnnotation]; marked {
		return "annotated " + unschedulableAnnotation
	}
	ready := conditions.Get(&shard, conditionsv1alpha1.ReadyCondition)
	if ready == nil || ready.Status != corev1.ConditionFalse {
		return ""
	}
	return fmt.Sprintf("condition Ready is False: %s: %s", ready.Reason, ready.Message)
}
