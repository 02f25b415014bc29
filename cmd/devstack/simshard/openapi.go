package simshard

import (
	"net/http"
	"strings"
)

// openAPIRoot is where OpenAPI v3 is served, one document a group and version.
const openAPIRoot = "/openapi/v3"

// openAPI says no more of a resource than that its PATCH takes fieldValidation: it is what
// keeps kubectl from asking for schemas to validate with, of which there are none.
func (a *apiServer) openAPI(writer http.ResponseWriter, t target) error {
	wanted := strings.Trim(strings.TrimPrefix(t.path, openAPIRoot), "/")
	documents, paths := map[string]any{}, map[string]any{}
	for _, served := range a.catalog.all(t.cluster) {
		root := "apis/" + served.groupVersion()
		if served.apiGroup == "" {
			root = "api/" + served.version
		}
		documents[root] = map[string]string{"serverRelativeURL": openAPIRoot + "/" + root}
		if root == wanted {
			paths["/"+root+served.pathTemplate()] = patchOperation(served)
		}
	}
	switch {
	case wanted == "":
		return writeJSON(writer, http.StatusOK, map[string]any{"paths": documents})
	case len(paths) == 0:
		return notServed(http.MethodGet)
	}
	return writeJSON(writer, http.StatusOK, map[string]any{
		"openapi": "3.0.0", "info": map[string]string{"title": wanted, "version": gitVersion}, "paths": paths,
	})
}

func (r resource) pathTemplate() string {
	if r.namespaced {
		return "/namespaces/{namespace}/" + r.resource + "/{name}"
	}
	return "/" + r.resource + "/{name}"
}

func patchOperation(of resource) map[string]any {
	parameter := map[string]any{"name": "fieldValidation", "in": "query", "schema": map[string]string{"type": "string"}}
	return map[string]any{"patch": map[string]any{
		"parameters":                      []any{parameter},
		"responses":                       map[string]any{},
		"x-kubernetes-group-version-kind": map[string]string{"group": of.apiGroup, "version": of.version, "kind": of.kind},
	}}
}
