package kcp

import (
	"net/url"

	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// wildcard stands for all logical clusters of a shard.
const wildcard = "*"

var (
	logicalClusters = corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters")
	shards          = corev1alpha1.SchemeGroupVersion.WithResource("shards")
	workspaces      = tenancyv1alpha1.SchemeGroupVersion.WithResource("workspaces")
	apiBindings     = apisv1alpha2.SchemeGroupVersion.WithResource("apibindings")
	apiExports      = apisv1alpha2.SchemeGroupVersion.WithResource("apiexports")
	crds            = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	serviceAccounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	secrets         = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	// namespaces are what probes and canaries ask for: every logical cluster serves them, the fence closes them,
	// and a cancelled context cuts them. LogicalClusters are exempt from all that, even as a wildcard list
	// (kcp pkg/server/filters/perclustercontext.go; seen answering 200 while the shard was blind).
	namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// groupPath is where a logical cluster's API of one group begins.
func groupPath(logicalCluster, group string) string {
	if group == "" {
		return "/clusters/" + logicalCluster + "/api"
	}
	return "/clusters/" + logicalCluster + "/apis/" + group
}

// listPath is where a logical cluster's objects of one resource are listed, in all namespaces.
func listPath(logicalCluster string, resource schema.GroupVersionResource) string {
	return groupPath(logicalCluster, resource.Group) + "/" + resource.Version + "/" + resource.Resource
}

// objectPath is where one cluster-scoped object is.
func objectPath(logicalCluster string, resource schema.GroupVersionResource, name string) string {
	return listPath(logicalCluster, resource) + "/" + name
}

// oneOf asks for the metadata of any one object: the least that shows that a resource is served.
func oneOf(logicalCluster string, resource schema.GroupVersionResource) query {
	return query{
		path:   listPath(logicalCluster, resource),
		params: url.Values{"limit": {"1"}},
		accept: metadataListOnly,
	}
}
