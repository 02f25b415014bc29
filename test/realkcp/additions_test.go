package realkcp

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// addition is a resource that the export wild is changed to offer as well.
type addition struct {
	resource schema.GroupVersionResource
	kind     string
}

// additions has one for each move of the provider.
var additions = []addition{
	{schema.GroupVersionResource{Group: "wild.west", Version: "v1", Resource: "horses"}, "Horse"},
	{schema.GroupVersionResource{Group: "wild.west", Version: "v1", Resource: "mules"}, "Mule"},
}

func (a addition) schema() *unstructured.Unstructured {
	return newObject("apis.kcp.io/v1alpha1", "APIResourceSchema", "", "v1."+a.resource.Resource+".wild.west", map[string]any{
		"spec": map[string]any{
			"group": a.resource.Group,
			"names": map[string]any{
				"kind": a.kind, "listKind": a.kind + "List", "plural": a.resource.Resource, "singular": strings.ToLower(a.kind),
			},
			"scope": "Namespaced",
			"versions": []any{map[string]any{
				"name": a.resource.Version, "served": true, "storage": true, "schema": map[string]any{"type": "object"},
			}},
		},
	})
}
