package kcp

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

const (
	// tenant is the logical cluster that moves.
	tenant = "256hdo017n2m0br9"

	cachedCRDs    = "/services/cache/shards/system:cache:server/clusters/system:system-crds/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	cachedExports = "/services/cache/shards/root/clusters/" + tenant + "/apis/apis.kcp.io/v1alpha2/apiexports"
	cachedRoles   = "/services/cache/shards/root/clusters/" + tenant + "/apis/rbac.authorization.k8s.io/v1/roles"
	cachedRole    = "/services/cache/shards/root/clusters/" + tenant + "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/reader"
)

// startCache is a cache server that holds two copies of shard root's.
func startCache(t *testing.T) *fakeServer {
	t.Helper()
	server := startServer(t)
	server.on(cachedCRDs, reply(`{"items":[
		{"spec":{"group":"apis.kcp.io","names":{"plural":"apiexports"},"versions":[{"name":"v1alpha1","served":false},{"name":"v1alpha2","served":true}]}},
		{"spec":{"group":"rbac.authorization.k8s.io","names":{"plural":"roles"},"versions":[{"name":"v1","served":true}]}}]}`))
	server.on(cachedExports, reply(`{"items":[{"metadata":{"name":"wild"}}]}`))
	server.on(cachedRoles, reply(`{"items":[{"metadata":{"name":"reader","namespace":"default"}}]}`))
	server.on(cachedExports+"/wild", reply(`{}`))
	server.on(cachedRole, reply(`{}`))
	return server
}

func newCache(t *testing.T, server *fakeServer) *Cache {
	t.Helper()
	cache, err := NewCache(CacheConfig{Kubeconfig: kubeconfigFor(t, server)})
	require.NoError(t, err)
	return cache
}

func TestDeleteCopies_DeletesAllThatTheShardHasOfTheLogicalCluster(t *testing.T) {
	server := startCache(t)
	deleted, err := newCache(t, server).DeleteCopies(t.Context(), tenant, "root")

	require.NoError(t, err)
	require.Equal(t, 2, deleted)
	for _, path := range []string{cachedExports + "/wild", cachedRole} {
		requests := server.requests(path)
		require.Len(t, requests, 1)
		require.Equal(t, http.MethodDelete, requests[0].Method)
	}
}

func TestTouchCopies_EditsThemAndLeavesOutWhatIsGoneMeanwhile(t *testing.T) {
	server := startCache(t)
	server.on(cachedRole, refuse(http.StatusNotFound, "NotFound", "gone"))
	touched, err := newCache(t, server).TouchCopies(t.Context(), tenant, "root")

	require.NoError(t, err)
	require.Equal(t, 1, touched)
	requests := server.requests(cachedExports + "/wild")
	require.Equal(t, http.MethodPatch, requests[0].Method)
	require.Equal(t, "application/merge-patch+json", requests[0].Header.Get("Content-Type"))
}

func TestCache_ThatRefuses_IsAnError(t *testing.T) {
	server := startCache(t)
	server.on(cachedRole, forbidden)
	_, err := newCache(t, server).DeleteCopies(t.Context(), tenant, "root")
	require.ErrorIs(t, err, activities.ErrForbidden)
	require.ErrorContains(t, err, "delete "+cachedRole)

	server.on(cachedCRDs, reply(`{"items":[]}`))
	require.ErrorContains(t, newCache(t, server).Check(t.Context()), "no CRD", "this is no cache server")
}
