package kcp

import (
	"context"
	"fmt"

	"github.com/kcp-dev/logicalcluster/v3"
	"github.com/kcp-dev/sdk/apis/core"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// DirectoryConfig says how to reach kcp as a whole.
type DirectoryConfig struct {
	// Kubeconfig is a file. Its user must be a kcp admin: a member of system:kcp:admin.
	Kubeconfig string
	// Context of the kubeconfig; its current one unless given.
	Context string
	// Servers are the addresses of every front-proxy; the kubeconfig's unless given.
	Servers []string
}

// Directory finds logical clusters and shards through the front-proxies.
type Directory struct {
	proxies connections
}

var _ activities.Directory = (*Directory)(nil)

// NewDirectory reads the kubeconfig and prepares the connections; it does not dial.
func NewDirectory(config DirectoryConfig) (*Directory, error) {
	proxies, err := connect(config.Kubeconfig, config.Context, config.Servers)
	if err != nil {
		return nil, fmt.Errorf("connect to front-proxies: %w", err)
	}
	return &Directory{proxies: proxies}, nil
}

// Locate reads the LogicalCluster object, which kcp serves even while the logical cluster is fenced.
func (d *Directory) Locate(ctx context.Context, pathOrName string) (activities.Location, error) {
	path, valid := logicalcluster.NewValidatedPath(pathOrName)
	if !valid || path == logicalcluster.Wildcard {
		return activities.Location{}, fmt.Errorf("%q is neither a workspace's path nor a logical cluster's name: %w", pathOrName, activities.ErrNotFound)
	}
	var object corev1alpha1.LogicalCluster
	if err := d.get(ctx, query{path: logicalClusterPath(pathOrName)}, &object); err != nil {
		return activities.Location{}, err
	}
	return location(object), nil
}

func logicalClusterPath(pathOrName string) string {
	return objectPath(pathOrName, logicalClusters, corev1alpha1.LogicalClusterName)
}

// get tells a missing logical cluster from missing rights, and from front-proxies that have just started: kcp answers 403
// to all three. Whoever may list Shards is an admin, to whom no logical cluster is closed.
func (d *Directory) get(ctx context.Context, q query, into any) error {
	err := d.proxies.get(ctx, q, into)
	if !apierrors.IsForbidden(err) {
		return err
	}
	if err := d.proxies.get(ctx, oneOf(core.RootCluster.String(), shards), nil); err != nil {
		return err
	}
	return fmt.Errorf("get %s: no front-proxy knows the logical cluster: %w", q.path, activities.ErrNotFound)
}

func location(object corev1alpha1.LogicalCluster) activities.Location {
	found := activities.Location{
		LogicalCluster: object.Annotations[logicalcluster.AnnotationKey],
		Path:           object.Annotations[core.LogicalClusterPathAnnotationKey],
		Shard:          object.Annotations[corev1alpha1.LogicalClusterShardAnnotationKey],
	}
	if owner := object.Spec.Owner; owner != nil {
		found.Owner = &activities.OwnerRef{LogicalCluster: owner.Cluster, Name: owner.Name, UID: string(owner.UID)}
	}
	return found
}

// OwnerShard reads core.kcp.io/shard, the shard's name; internal.tenancy.kcp.io/shard beside it is a hash
// (kcp pkg/reconciler/tenancy/workspace/workspace_reconcile_scheduling.go).
func (d *Directory) OwnerShard(ctx context.Context, owner activities.OwnerRef) (string, error) {
	var workspace tenancyv1alpha1.Workspace
	q := query{path: objectPath(owner.LogicalCluster, workspaces, owner.Name)}
	if err := d.get(ctx, q, &workspace); err != nil {
		return "", err
	}
	if workspace.UID != types.UID(owner.UID) {
		return "", fmt.Errorf("workspace %s has another UID now: %w", owner.Name, activities.ErrNotFound)
	}
	return workspace.Annotations[corev1alpha1.LogicalClusterShardAnnotationKey], nil
}

// TouchOwner annotates the Workspace with the time.
func (d *Directory) TouchOwner(ctx context.Context, owner activities.OwnerRef) error {
	if _, err := d.OwnerShard(ctx, owner); err != nil {
		return err
	}
	return d.proxies.send(ctx, touch(objectPath(owner.LogicalCluster, workspaces, owner.Name)))
}

// ProbeFrontProxies asks every front-proxy where the logical cluster is, and for what the fence closes.
func (d *Directory) ProbeFrontProxies(ctx context.Context, logicalCluster, shard string) []activities.Probe {
	routes := check{of: "route", ask: func(ctx context.Context, proxy connection) error {
		var object corev1alpha1.LogicalCluster
		if err := proxy.get(ctx, query{path: logicalClusterPath(logicalCluster)}, &object, probeTimeout); err != nil {
			return other(err)
		}
		if found := location(object).Shard; found != shard {
			return fmt.Errorf("shard %q, want %q", found, shard)
		}
		return nil
	}}
	return d.proxies.probe(ctx, routes, serves(logicalCluster))
}
