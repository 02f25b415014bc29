package kcp

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

const (
	// cacheShard and cacheCRDs are where the cache server has the CRDs of all that it holds
	// (kcp pkg/cache/server/bootstrap).
	cacheShard = "system:cache:server"
	cacheCRDs  = "system:system-crds"
)

// CacheConfig says how to reach the cache server.
type CacheConfig struct {
	// Kubeconfig is a file, the one that the shards have for --cache-kubeconfig or one with the same rights.
	Kubeconfig string
}

// Cache is kcp's cache server.
type Cache struct{ servers connections }

var _ activities.Cache = (*Cache)(nil)

// NewCache reads the kubeconfig and prepares the connection; it does not dial.
func NewCache(config CacheConfig) (*Cache, error) {
	servers, err := connect(config.Kubeconfig, "", nil)
	if err != nil {
		return nil, fmt.Errorf("connect to the cache server: %w", err)
	}
	return &Cache{servers: servers}, nil
}

// Check proves that the cache server answers and lets this user in.
func (c *Cache) Check(ctx context.Context) error {
	_, err := c.resources(ctx)
	return err
}

// DeleteCopies deletes what a shard has of a logical cluster in the cache server, and tells how much that was.
func (c *Cache) DeleteCopies(ctx context.Context, logicalCluster, shard string) (int, error) {
	return c.change(ctx, logicalCluster, shard, func(path string) change {
		return change{verb: http.MethodDelete, path: path}
	})
}

// TouchCopies edits what a shard has of a logical cluster in the cache server, and tells how much that was.
func (c *Cache) TouchCopies(ctx context.Context, logicalCluster, shard string) (int, error) {
	return c.change(ctx, logicalCluster, shard, touch)
}

func (c *Cache) change(ctx context.Context, logicalCluster, shard string, make func(path string) change) (int, error) {
	resources, err := c.resources(ctx)
	if err != nil {
		return 0, err
	}
	changed := 0
	for _, resource := range resources {
		var copies metav1.PartialObjectMetadataList
		list := cachePath(shard) + listPath(logicalCluster, resource)
		if err := c.servers.get(ctx, query{path: list, accept: metadataListOnly}, &copies); err != nil {
			return changed, err
		}
		for _, copied := range copies.Items {
			err := c.servers.send(ctx, make(cachePath(shard)+copiedPath(logicalCluster, resource, copied.ObjectMeta)))
			if errors.Is(err, activities.ErrNotFound) {
				continue // its shard was quicker
			}
			if err != nil {
				return changed, err
			}
			changed++
		}
	}
	return changed, nil
}

// resources are all that the cache server holds copies of, each in one version that it serves.
func (c *Cache) resources(ctx context.Context) ([]schema.GroupVersionResource, error) {
	var list apiextensionsv1.CustomResourceDefinitionList
	if err := c.servers.get(ctx, query{path: cachePath(cacheShard) + listPath(cacheCRDs, crds)}, &list); err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("list what the cache server holds: it has no CRD in %s", cacheCRDs)
	}
	var resources []schema.GroupVersionResource
	for _, crd := range list.Items {
		for _, version := range crd.Spec.Versions {
			if version.Served {
				resources = append(resources, schema.GroupVersionResource{Group: crd.Spec.Group, Version: version.Name, Resource: crd.Spec.Names.Plural})
				break
			}
		}
	}
	return resources, nil
}

// cachePath is where the cache server has the copies of one shard.
func cachePath(shard string) string { return "/services/cache/shards/" + shard }

func copiedPath(logicalCluster string, resource schema.GroupVersionResource, copied metav1.ObjectMeta) string {
	if copied.Namespace == "" {
		return objectPath(logicalCluster, resource, copied.Name)
	}
	return groupPath(logicalCluster, resource.Group) + "/" + resource.Version + "/namespaces/" + copied.Namespace + "/" + resource.Resource + "/" + copied.Name
}
