package realkcp

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"maps"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/certificates"
)

//go:embed manifests/*.yaml
var manifests embed.FS

// resources names the resource of every kind that a workspace is filled with.
var resources = map[string]string{
	"APIBinding":               "apibindings",
	"APIExport":                "apiexports",
	"APIResourceSchema":        "apiresourceschemas",
	"ClusterRole":              "clusterroles",
	"ClusterRoleBinding":       "clusterrolebindings",
	"ConfigMap":                "configmaps",
	"Cowboy":                   "cowboys",
	"CustomResourceDefinition": "customresourcedefinitions",
	"Event":                    "events",
	"Gizmo":                    "gizmos",
	"Namespace":                "namespaces",
	"ResourceQuota":            "resourcequotas",
	"Role":                     "roles",
	"RoleBinding":              "rolebindings",
	"Secret":                   "secrets",
	"Sheriff":                  "sheriffs",
	"Workspace":                "workspaces",
}

type (
	object = *unstructured.Unstructured
	fields = map[string]any
)

// newObject makes an object; namespace is empty for cluster-scoped ones.
func newObject(apiVersion, kind, namespace, name string, content fields) object {
	o := &unstructured.Unstructured{Object: fields{}}
	maps.Copy(o.Object, content)
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// workspace is a workspace that is being filled.
type workspace struct {
	kcp           *Kcp
	path          string
	dynamicClient dynamic.Interface
}

// workspace reaches one through the front-proxy by its path.
func (k *Kcp) workspace(path string) (*workspace, error) {
	return k.workspaceAt(k.FrontProxies[0], path, k.FrontProxyAdmin)
}

func (k *Kcp) workspaceAt(server, path string, admin certificates.Pair) (*workspace, error) {
	dynamicClient, err := dynamic.NewForConfig(&rest.Config{
		Host:            server + "/clusters/" + path,
		QPS:             -1, // no limit
		TLSClientConfig: rest.TLSClientConfig{CAData: k.ServingCA, CertData: admin.Certificate, KeyData: admin.Key},
	})
	if err != nil {
		return nil, fmt.Errorf("create client of workspace %s: %w", path, err)
	}
	return &workspace{kcp: k, path: path, dynamicClient: dynamicClient}, nil
}

// createWorkspace makes a workspace that lives on a shard, and waits for it.
func (k *Kcp) createWorkspace(ctx context.Context, parentPath, name, shard string) error {
	parent, err := k.workspace(parentPath)
	if err != nil {
		return err
	}
	w := newObject("tenancy.kcp.io/v1alpha1", "Workspace", "", name, fields{"spec": map[string]any{
		"type":     map[string]any{"path": "root", "name": "universal"},
		"location": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"name": shard}}},
	}})
	if err := parent.create(ctx, w); err != nil {
		return err
	}
	return k.poll(ctx, "await workspace "+parentPath+":"+name, func(ctx context.Context) error {
		found, err := parent.resource(w).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		phase, _, err := unstructured.NestedString(found.Object, "status", "phase")
		if err == nil && phase != "Ready" {
			err = fmt.Errorf("its phase is %q", phase)
		}
		return err
	})
}

// logicalCluster gives the name of the logical cluster behind a workspace of root.
func (k *Kcp) logicalCluster(ctx context.Context, name string) (string, error) {
	root, err := k.workspace("root")
	if err != nil {
		return "", err
	}
	found, err := root.resource(newObject("tenancy.kcp.io/v1alpha1", "Workspace", "", name, nil)).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read workspace root:%s: %w", name, err)
	}
	logicalCluster, _, err := unstructured.NestedString(found.Object, "spec", "cluster")
	return logicalCluster, err
}

// createManifests creates the objects of a file one after the other.
func (w *workspace) createManifests(ctx context.Context, file string) error {
	content, err := manifests.ReadFile("manifests/" + file)
	if err != nil {
		return err
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), len(content))
	for {
		var o unstructured.Unstructured
		switch err := decoder.Decode(&o); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read manifest %s: %w", file, err)
		}
		if err := w.create(ctx, &o); err != nil {
			return err
		}
	}
}

func (w *workspace) createAll(ctx context.Context, objects []object) error {
	creates, ctx := errgroup.WithContext(ctx)
	creates.SetLimit(parallelWrites)
	for _, o := range objects {
		creates.Go(func() error { return w.create(ctx, o) })
	}
	return creates.Wait()
}

// create tries until it is done, because a resource that was just defined or bound, and
// the namespace default of a new workspace, take a moment to be there.
func (w *workspace) create(ctx context.Context, o object) error {
	what := fmt.Sprintf("create %s %s in %s", o.GetKind(), o.GetName(), w.path)
	return w.kcp.poll(ctx, what, func(ctx context.Context) error {
		_, err := w.resource(o).Create(ctx, o, metav1.CreateOptions{FieldManager: "devstack"})
		if apierrors.IsAlreadyExists(err) {
			return nil // an earlier try of ours came through
		}
		return err
	})
}

func (w *workspace) resource(of object) dynamic.ResourceInterface {
	kind := of.GroupVersionKind()
	gvr := schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: resources[kind.Kind]}
	if namespace := of.GetNamespace(); namespace != "" {
		return w.dynamicClient.Resource(gvr).Namespace(namespace)
	}
	return w.dynamicClient.Resource(gvr)
}
