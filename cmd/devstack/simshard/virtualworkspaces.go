package simshard

import (
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// exportServices is where the virtual workspaces of APIExports are served:
// /services/apiexport/<provider's cluster>/<export>/clusters/<cluster or *>/apis/….
const exportServices = "/services/apiexport/"

// serveExport lists and watches, through an APIExport's virtual workspace, what consumers on this shard have bound.
// It is authorized by a request of the shard to itself about the provider's cluster, which
// dies with that cluster's cancelled context even after the provider moved away (trap 4).
func (a *apiServer) serveExport(writer http.ResponseWriter, request *http.Request, path string) error {
	parts := strings.SplitN(strings.TrimPrefix(path, exportServices), "/", 3)
	if len(parts) < 3 || request.Method != http.MethodGet {
		return notServed(request.Method)
	}
	provider, export := parts[0], parts[1]
	if a.contexts.cancelled(provider) || a.clusters.fenced(provider) {
		return apierrors.NewInternalError(fmt.Errorf("authorize access to APIExport %s: context canceled", export))
	}
	identity, err := a.exportIdentity(request, provider, export)
	if err != nil {
		return err
	}
	inside := request.Clone(request.Context())
	inside.URL.Path = "/" + parts[2]
	t, err := parseTarget(inside)
	if err != nil {
		return err
	}
	r, serves := a.catalog.bound(t, identity)
	if !serves {
		return notServed(request.Method)
	}
	return a.handler(request.Method, t, isTrue(request.URL.Query().Get("watch")))(writer, request, r, t)
}

// exportIdentity is the APIExport's, wherever it lives: kcp has it in the cache server, which all shards share.
func (a *apiServer) exportIdentity(request *http.Request, provider, export string) (string, error) {
	at := target{cluster: provider, group: exportFamily.group, version: "v1alpha2", resource: exportFamily.resource, name: export}
	found, _, err := a.peers.find(request.Context(), at)
	if err != nil {
		return "", apierrors.NewInternalError(fmt.Errorf("find APIExport %s: %w", export, err))
	}
	identity, _, err := unstructured.NestedString(found.Object, "status", "identityHash")
	return identity, err
}

func notServed(method string) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, strings.ToLower(method), schema.GroupResource{}, "", "", 0, true)
}
