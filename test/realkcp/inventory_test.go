package realkcp

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// inventory is every object of a workspace as its clients read it, by "<group>/<resource> [<namespace>/]<name>".
type inventory map[string]map[string]any

func (w *workspace) inventory(t testing.TB) inventory {
	t.Helper()
	served, err := w.kubernetes.Discovery().ServerPreferredResources()
	require.NoError(t, err)
	listable := discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "get"}}, served)
	found, err := discovery.GroupVersionResources(listable)
	require.NoError(t, err)
	objects := inventory{}
	for resource := range found {
		list, err := w.dynamic.Resource(resource).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err, resource)
		for index := range list.Items {
			objects.add(resource, &list.Items[index])
		}
	}
	require.NotEmpty(t, objects)
	return objects
}

// add leaves out resourceVersion, which each shard counts on its own, and an annotation that is in no etcd: an answer
// to a wildcard request for metadata writes it into the API server's cache (docs/kcp-findings.md).
func (i inventory) add(resource schema.GroupVersionResource, object *unstructured.Unstructured) {
	unstructured.RemoveNestedField(object.Object, "metadata", "resourceVersion")
	unstructured.RemoveNestedField(object.Object, "metadata", "annotations", "kcp.io/original-api-version")
	name := object.GetName()
	if namespace := object.GetNamespace(); namespace != "" {
		name = namespace + "/" + name
	}
	i[resource.Group+"/"+resource.Resource+" "+name] = object.Object
}

// requireSameInventory compares value by value.
func requireSameInventory(t testing.TB, before, after inventory) {
	t.Helper()
	fields := differences("", before.lasting(), after.lasting())
	require.Empty(t, slices.DeleteFunc(fields, func(field string) bool { return reportsConditions(field) && isCondition(field) }))
}

// valueShown is how many bytes of a differing value are worth reading.
const valueShown = 300

// differences names the fields that are not equal, and shows their values.
func differences(path string, before, after any) []string {
	old, ok := before.(map[string]any)
	now, alsoOK := after.(map[string]any)
	if !ok || !alsoOK {
		if assert.ObjectsAreEqual(before, after) {
			return nil
		}
		return []string{fmt.Sprintf("%s: %.*s, now %.*s", path, valueShown, show(before), valueShown, show(after))}
	}
	fields := maps.Clone(old)
	maps.Copy(fields, now)
	var found []string
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		found = append(found, differences(path+" "+field, old[field], now[field])...)
	}
	return found
}

func show(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// lasting leaves out what rightly differs after a move.
func (i inventory) lasting() map[string]any {
	lasting := map[string]any{}
	for name, content := range i {
		switch {
		case strings.HasPrefix(name, "core.kcp.io/logicalclusters "): // says where the tenant lives
		case strings.HasSuffix(name, "/kube-root-ca.crt"): // each shard has a CA of its own
		case strings.HasPrefix(name, "/resourcequotas "): // counts what the tests' clients write
		case strings.Contains(name, " default/written-"), strings.Contains(name, " default/seen-on-"): // the tests' clients write them
		default:
			object := &unstructured.Unstructured{Object: content}
			if expectText(object, tokenSecret, "type") == nil {
				object = lastingToken(object)
			}
			lasting[name] = object.Object
		}
	}
	return lasting
}

const tokenSecret = "kubernetes.io/service-account-token"

// lastingToken leaves out the shard's CA, and the day of the token's last use, which kcp writes down.
func lastingToken(secret *unstructured.Unstructured) *unstructured.Unstructured {
	secret = secret.DeepCopy()
	unstructured.RemoveNestedField(secret.Object, "data", "ca.crt")
	unstructured.RemoveNestedField(secret.Object, "metadata", "labels", "kubernetes.io/legacy-token-last-used")
	secret.SetManagedFields(nil)
	if len(secret.GetLabels()) == 0 {
		secret.SetLabels(nil)
	}
	return secret
}
