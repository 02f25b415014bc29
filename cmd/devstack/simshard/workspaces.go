package simshard

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
)

const (
	workspaceGroup     = "tenancy.kcp.io"
	workspaceVersion   = "v1alpha1"
	workspaceFinalizer = "core.kcp.io/logicalcluster"

	pathAnnotation = "kcp.io/path"
	typeAnnotation = "internal.tenancy.kcp.io/type"

	clusterNameLength = 16
)

// schedule gives new Workspaces a logical cluster and takes it away from those being deleted.
// Like everything that sees the shard through wildcard requests, it stands still while they are cancelled (trap 1).
func (m *meddlers) schedule(ctx context.Context, cluster string, tenant map[place]item) error {
	var errs []error
	for at, each := range tenant {
		if !each.isWorkspace() || !each.deleting && !each.pending {
			continue
		}
		done, err := m.attend(ctx, at, each)
		errs = append(errs, err)
		if !done {
			m.mark(cluster)
		}
	}
	return errors.Join(errs...)
}

// attend takes one step with a Workspace; false asks for another look although no event may come.
func (m *meddlers) attend(ctx context.Context, at place, each item) (bool, error) {
	found, err := m.server.store.get(ctx, at)
	if err != nil {
		return true, ignore(err)
	}
	workspace, isUnstructured := found.(*unstructured.Unstructured)
	switch {
	case !isUnstructured:
		return true, nil
	case each.deleting:
		return m.deleteCluster(ctx, at, workspace)
	case specCluster(workspace) == "":
		return true, m.place(ctx, at, workspace)
	default:
		return m.furnish(ctx, at, workspace)
	}
}

// place chooses a shard and a name, the way to undo neither: as on a real kcp, what follows can be repeated.
func (m *meddlers) place(ctx context.Context, at place, workspace *unstructured.Unstructured) error {
	shard, _, _ := unstructured.NestedString(workspace.Object, "spec", "location", "selector", "matchLabels", "name")
	if shard == "" {
		shard = m.server.config.Name
	}
	if m.server.peers.url(shard) == "" {
		return fmt.Errorf("place workspace %s: no shard %s", at.name, shard)
	}
	return m.change(ctx, at, func(placed *unstructured.Unstructured) error {
		placed.SetAnnotations(withAnnotation(placed.GetAnnotations(), shardAnnotation, shard))
		url := strings.TrimSuffix(m.server.config.ExternalURL(), "/") + "/clusters/" + m.path(at)
		return errors.Join(
			unstructured.SetNestedField(placed.Object, rand.String(clusterNameLength), "spec", "cluster"),
			unstructured.SetNestedField(placed.Object, url, "spec", "URL"))
	})
}

// path is the workspace's own: its parent's, and its name.
func (m *meddlers) path(at place) string {
	parent := at.cluster
	if found, has := m.server.clusters.get(at.cluster); has && found.GetAnnotations()[pathAnnotation] != "" {
		parent = found.GetAnnotations()[pathAnnotation]
	}
	return parent + ":" + at.name
}

// furnish creates the LogicalCluster and what a new one holds, and waits for it to be Ready.
func (m *meddlers) furnish(ctx context.Context, at place, workspace *unstructured.Unstructured) (bool, error) {
	url := m.server.peers.url(workspace.GetAnnotations()[shardAnnotation])
	cluster := specCluster(workspace)
	existing, err := m.server.peers.get(ctx, url, logicalClusterTarget(cluster))
	if apierrors.IsNotFound(err) {
		inside := logicalClusterTarget(cluster)
		inside.name = ""
		return false, m.server.peers.create(ctx, url, inside, m.newLogicalCluster(at, workspace))
	}
	if err != nil || phaseOf(existing) != phaseReady {
		return false, err
	}
	if err := m.copyDefaults(ctx, url, cluster); err != nil {
		return false, err
	}
	return true, m.change(ctx, at, func(ready *unstructured.Unstructured) error {
		ready.SetLabels(withAnnotation(ready.GetLabels(), phaseLabel, phaseReady))
		return unstructured.SetNestedField(ready.Object, phaseReady, "status", "phase")
	})
}

func (m *meddlers) newLogicalCluster(at place, workspace *unstructured.Unstructured) *unstructured.Unstructured {
	created := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{
			"directlyDeletable": false,
			"owner": map[string]any{
				"apiVersion": workspaceGroup + "/" + workspaceVersion, "resource": "workspaces",
				"cluster": at.cluster, "name": at.name, "uid": string(workspace.GetUID()),
			},
		},
	}}
	created.SetGroupVersionKind(schema.GroupVersionKind{Group: "core.kcp.io", Version: "v1alpha1", Kind: "LogicalCluster"})
	created.SetName(logicalClusterName)
	created.SetAnnotations(map[string]string{pathAnnotation: m.path(at), typeAnnotation: "root:universal"})
	return created
}

// copyDefaults gives a new logical cluster its namespaces and, from the target shard's own
// system cluster, the bindings that make workspaces possible in it.
func (m *meddlers) copyDefaults(ctx context.Context, url, cluster string) error {
	var errs []error
	for _, name := range []string{"default", "kube-system"} {
		namespace := &unstructured.Unstructured{Object: map[string]any{}}
		namespace.SetAPIVersion("v1")
		namespace.SetKind("Namespace")
		namespace.SetName(name)
		errs = append(errs, ignore(m.server.peers.create(ctx, url, target{cluster: cluster, version: "v1", resource: "namespaces"}, namespace)))
	}
	for _, name := range []string{"tenancy.kcp.io", "topology.kcp.io"} {
		at := target{cluster: systemShard, group: "apis.kcp.io", version: "v1alpha2", resource: "apibindings", name: name}
		binding, err := m.server.peers.get(ctx, url, at)
		if err != nil {
			errs = append(errs, ignore(err))
			continue
		}
		binding.Object["metadata"] = map[string]any{"name": name, "labels": binding.Object["metadata"].(map[string]any)["labels"]}
		at.cluster, at.name = cluster, ""
		errs = append(errs, ignore(m.server.peers.create(ctx, url, at, binding)))
	}
	return errors.Join(errs...)
}

// deleteCluster deletes the logical cluster of a Workspace that is being deleted, wherever the front door leads, and lets go
// of the Workspace once it is gone. What the front door does not know is looked for on the shard that the Workspace names
// (kcp: pkg/reconciler/tenancy/workspace, deletionReconciler).
func (m *meddlers) deleteCluster(ctx context.Context, at place, workspace *unstructured.Unstructured) (bool, error) {
	url := strings.TrimSuffix(m.server.config.ExternalURL(), "/")
	existing, err := m.server.peers.get(ctx, url, logicalClusterTarget(specCluster(workspace)))
	if err != nil && !apierrors.IsNotFound(err) {
		url = m.server.peers.url(workspace.GetAnnotations()[shardAnnotation])
		existing, err = m.server.peers.get(ctx, url, logicalClusterTarget(specCluster(workspace)))
	}
	switch {
	case apierrors.IsNotFound(err) || specCluster(workspace) == "":
		return true, m.change(ctx, at, func(held *unstructured.Unstructured) error {
			dropFinalizer(held, workspaceFinalizer)
			return nil
		})
	case err != nil:
		return false, err
	case existing.GetDeletionTimestamp() == nil:
		return false, m.server.peers.remove(ctx, url, logicalClusterTarget(specCluster(workspace)))
	}
	return false, nil
}

func logicalClusterTarget(cluster string) target {
	return target{cluster: cluster, group: "core.kcp.io", version: "v1alpha1", resource: "logicalclusters", name: logicalClusterName}
}
