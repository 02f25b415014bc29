package kcp

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

const (
	bindingsPath   = "/clusters/c1/apis/apis.kcp.io/v1alpha2/apibindings"
	exportsPath    = "/clusters/c1/apis/apis.kcp.io/v1alpha2/apiexports"
	workspacesPath = "/clusters/c1/apis/tenancy.kcp.io/v1alpha1/workspaces"
	accountsPath   = "/clusters/c1/api/v1/serviceaccounts"
	secretsPath    = "/clusters/c1/api/v1/secrets"
)

// bareCluster serves what every logical cluster does, without any object.
func bareCluster(t *testing.T) *fakeServer {
	t.Helper()
	server := startServer(t)
	for _, path := range []string{bindingsPath, exportsPath, accountsPath, secretsPath} {
		server.on(path, reply(`{"items":[]}`))
	}
	return server
}

func TestContents_ListsAllPages(t *testing.T) {
	server := bareCluster(t)
	server.on(bindingsPath, pages(
		`{"metadata":{"continue":"page-1"},"items":[{"metadata":{"name":"wild"},"status":{"boundResources":[
			{"group":"wild.dev","resource":"cowboys","schema":{"name":"today.cowboys.wild.dev","UID":"u1","identityHash":"h1"}},
			{"group":"wild.dev","resource":"sheriffs","schema":{"UID":"u2","identityHash":"h1"}}]}}]}`,
		`{"metadata":{"continue":""},"items":[{"metadata":{"name":"unbound"}},{"metadata":{"name":"other"},"status":{"boundResources":[
			{"group":"other.dev","resource":"others","schema":{"UID":"u3","identityHash":"h3"}}]}}]}`,
	))
	server.on(exportsPath, reply(`{"items":[{"metadata":{"name":"mine"}}]}`))
	server.on(workspacesPath, pages(
		`{"metadata":{"continue":"page-1"},"items":[{"metadata":{"name":"child"}}]}`,
		`{"items":[{"metadata":{"name":"second"}}]}`,
	))
	server.on(accountsPath, pages(
		`{"metadata":{"continue":"page-1"},"items":[{"metadata":{"name":"default"}},{"metadata":{"name":"default"}}]}`,
		`{"items":[{"metadata":{"name":"robot"}}]}`,
	))
	server.on(secretsPath, reply(`{"items":[{"metadata":{"name":"robot-token"}}]}`))

	contents, err := newShard(t, server).Contents(t.Context(), "c1")
	require.NoError(t, err)
	require.Equal(t, activities.Contents{
		Bindings: []activities.BoundResource{
			{Binding: "wild", Group: "wild.dev", Resource: "cowboys", Identity: "h1", SchemaUID: "u1"},
			{Binding: "wild", Group: "wild.dev", Resource: "sheriffs", Identity: "h1", SchemaUID: "u2"},
			{Binding: "other", Group: "other.dev", Resource: "others", Identity: "h3", SchemaUID: "u3"},
		},
		ChildWorkspaces: []string{"child", "second"},
		ServiceAccounts: 3,
		TokenSecrets:    1,
		APIExports:      []string{"mine"},
	}, contents)
}

func TestContents_AsksForTokenSecretsWithoutTheirValues(t *testing.T) {
	server := bareCluster(t)
	_, err := newShard(t, server).Contents(t.Context(), "c1")
	require.NoError(t, err)
	requests := server.requests(secretsPath)
	require.Len(t, requests, 1)
	require.Equal(t, "type=kubernetes.io/service-account-token", requests[0].URL.Query().Get("fieldSelector"))
	require.Contains(t, requests[0].Header.Get("Accept"), "as=PartialObjectMetadataList")
}

func TestContents_WhereWorkspacesAreNotServed_HasNoChildren(t *testing.T) {
	contents, err := newShard(t, bareCluster(t)).Contents(t.Context(), "c1")
	require.NoError(t, err)
	require.Empty(t, contents.ChildWorkspaces)
}

func TestContents_WhenAListFails_GivesNone(t *testing.T) {
	for path, answer := range map[string]http.HandlerFunc{
		bindingsPath:   refuse(http.StatusNotFound, "NotFound", "a kcp that does not serve APIBindings is none"),
		exportsPath:    cancelled,
		workspacesPath: forbidden,
		accountsPath:   fenced,
		secretsPath:    unavailable,
	} {
		t.Run(path, func(t *testing.T) {
			server := bareCluster(t)
			server.on(path, answer)
			contents, err := newShard(t, server).Contents(t.Context(), "c1")
			require.ErrorContains(t, err, path)
			require.ErrorContains(t, err, server.URL)
			require.Zero(t, contents)
		})
	}
}
