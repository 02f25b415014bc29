package realkcp

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

//go:embed testdata/*.yaml
var testdata embed.FS

var (
	workspaces      = schema.GroupVersionResource{Group: "tenancy.kcp.io", Version: "v1alpha1", Resource: "workspaces"}
	logicalClusters = schema.GroupVersionResource{Group: "core.kcp.io", Version: "v1alpha1", Resource: "logicalclusters"}
	apiBindings     = schema.GroupVersionResource{Group: "apis.kcp.io", Version: "v1alpha2", Resource: "apibindings"}
	apiExports      = schema.GroupVersionResource{Group: "apis.kcp.io", Version: "v1alpha2", Resource: "apiexports"}
	endpointSlices  = schema.GroupVersionResource{Group: "apis.kcp.io", Version: "v1alpha1", Resource: "apiexportendpointslices"}
	cowboys         = schema.GroupVersionResource{Group: "wild.west", Version: "v1", Resource: "cowboys"}
	sheriffs        = schema.GroupVersionResource{Group: "wild.west", Version: "v1", Resource: "sheriffs"}
	cattle          = schema.GroupVersionResource{Group: "tame.west", Version: "v1", Resource: "cattle"}
	gizmos          = schema.GroupVersionResource{Group: "acme.io", Version: "v1", Resource: "gizmos"}
	configMaps      = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// resources are what the manifests in testdata consist of.
var resources = map[string]schema.GroupVersionResource{
	"APIBinding":        apiBindings,
	"APIExport":         apiExports,
	"APIResourceSchema": {Group: "apis.kcp.io", Version: "v1alpha1", Resource: "apiresourceschemas"},
	"Cattle":            cattle,
	"ClusterRole":       {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	"ClusterRoleBinding": {
		Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings",
	},
	"ConfigMap":      configMaps,
	"Namespace":      {Version: "v1", Resource: "namespaces"},
	"Role":           {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
	"RoleBinding":    {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	"Secret":         {Version: "v1", Resource: "secrets"},
	"ServiceAccount": {Version: "v1", Resource: "serviceaccounts"},
}

// workspace is one as an administrator reaches it through the front-proxy.
type workspace struct {
	path       string
	config     *rest.Config
	kubernetes *kubernetes.Clientset
	dynamic    *dynamic.DynamicClient
}

func (s *stack) workspace(t testing.TB, path string) *workspace {
	t.Helper()
	config, err := s.TenantConfig(path)
	require.NoError(t, err)
	return newWorkspace(t, path, config)
}

func newWorkspace(t testing.TB, path string, config *rest.Config) *workspace {
	t.Helper()
	w := &workspace{path: path, config: config}
	var err error
	w.kubernetes, err = kubernetes.NewForConfig(config)
	require.NoError(t, err)
	w.dynamic, err = dynamic.NewForConfig(config)
	require.NoError(t, err)
	return w
}

// schedule makes a workspace below root, on a shard, and waits until it is ready.
func (s *stack) schedule(t testing.TB, name, shard string) *workspace {
	t.Helper()
	root := s.workspace(t, "root")
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"type":     map[string]any{"path": "root", "name": "universal"},
		"location": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"name": shard}}},
	}}}
	object.SetAPIVersion("tenancy.kcp.io/v1alpha1")
	object.SetKind("Workspace")
	object.SetName(name)
	_, err := root.dynamic.Resource(workspaces).Create(t.Context(), object, metav1.CreateOptions{})
	require.NoError(t, err)
	await(t, "workspace root:"+name+" to be ready", func(ctx context.Context) error {
		found, err := root.dynamic.Resource(workspaces).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return expectText(found, "Ready", "status", "phase")
	})
	return s.workspace(t, "root:"+name)
}

// create makes a workspace and waits until its namespace default is there.
func (s *stack) create(t testing.TB, name, shard string) *workspace {
	t.Helper()
	w := s.schedule(t, name, shard)
	await(t, "namespace default of root:"+name, func(ctx context.Context) error {
		_, err := w.kubernetes.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return w
}

// delete deletes a workspace below root and waits until it is gone.
func (s *stack) delete(t testing.TB, name string) {
	t.Helper()
	root := s.workspace(t, "root")
	require.NoError(t, root.dynamic.Resource(workspaces).Delete(t.Context(), name, metav1.DeleteOptions{}))
	await(t, "end of workspace root:"+name, func(ctx context.Context) error {
		_, err := root.dynamic.Resource(workspaces).Get(ctx, name, metav1.GetOptions{})
		return expectNotFound(err)
	})
}

// apply creates the objects of a file in testdata, each as soon as its resource is served.
func (w *workspace) apply(t testing.TB, file string) {
	t.Helper()
	content, err := testdata.ReadFile("testdata/" + file)
	require.NoError(t, err)
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), len(content))
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		resource, known := resources[object.GetKind()]
		require.True(t, known, object.GetKind())
		w.create(t, resource, object)
	}
}

// create creates an object as soon as its resource is served.
func (w *workspace) create(t testing.TB, resource schema.GroupVersionResource, object *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	var created *unstructured.Unstructured
	what := fmt.Sprintf("creation of %s %s in %s", resource.Resource, object.GetName(), w.path)
	await(t, what, func(ctx context.Context) (err error) {
		created, err = w.of(resource, object.GetNamespace()).Create(ctx, object, metav1.CreateOptions{})
		return err
	})
	return created
}

// of is the client of a resource; namespace is empty for cluster-scoped ones.
func (w *workspace) of(resource schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return w.dynamic.Resource(resource)
	}
	return w.dynamic.Resource(resource).Namespace(namespace)
}

// get reads an object that must be there.
func (w *workspace) get(t testing.TB, resource schema.GroupVersionResource, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	found, err := w.of(resource, namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return found
}

// release takes an object's finalizers away.
func (w *workspace) release(t testing.TB, resource schema.GroupVersionResource, namespace, name string) {
	t.Helper()
	_, err := w.of(resource, namespace).Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
}

// awaitGone waits until an object is gone.
func (w *workspace) awaitGone(t testing.TB, resource schema.GroupVersionResource, namespace, name string) {
	t.Helper()
	await(t, fmt.Sprintf("end of %s %s in %s", resource.Resource, name, w.path), func(ctx context.Context) error {
		_, err := w.of(resource, namespace).Get(ctx, name, metav1.GetOptions{})
		return expectNotFound(err)
	})
}

// logicalCluster is the name of the logical cluster behind a workspace.
func (w *workspace) logicalCluster(t testing.TB) string {
	t.Helper()
	return w.get(t, logicalClusters, "", "cluster").GetAnnotations()["kcp.io/cluster"]
}

func expectNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		return errors.New("it is still there")
	}
	return err
}

func expectText(object *unstructured.Unstructured, wanted string, fields ...string) error {
	found, _, err := unstructured.NestedString(object.Object, fields...)
	if err == nil && found != wanted {
		err = fmt.Errorf("%v is %q, not %q", fields, found, wanted)
	}
	return err
}

// newObject makes one of the tenants' objects.
func newObject(apiVersion, kind, namespace, name string, content map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	for field, value := range content {
		object.Object[field] = value
	}
	object.SetAPIVersion(apiVersion)
	object.SetKind(kind)
	object.SetNamespace(namespace)
	object.SetName(name)
	return object
}

func newCowboy(name, intent string) *unstructured.Unstructured {
	return newObject("wild.west/v1", "Cowboy", "default", name, map[string]any{"spec": map[string]any{"intent": intent}})
}

func newConfigMap(name string, content map[string]any) *unstructured.Unstructured {
	return newObject("v1", "ConfigMap", "default", name, map[string]any{"data": content})
}
