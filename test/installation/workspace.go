package installation

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

var workspaceResource = schema.GroupVersionResource{Group: "tenancy.kcp.io", Version: "v1alpha1", Resource: "workspaces"}

// Workspaces are those in root, at the front door.
func (i *Installation) Workspaces() (dynamic.ResourceInterface, error) {
	config, err := i.TenantConfig("root")
	if err != nil {
		return nil, err
	}
	inRoot, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return inRoot.Resource(workspaceResource), nil
}

// CreateWorkspace creates the workspace root:<name> and, as soon as it takes them, so many ConfigMaps in it: cm-1 and so on.
func (i *Installation) CreateWorkspace(ctx context.Context, path string, configMaps int) error {
	workspaces, err := i.Workspaces()
	if err != nil {
		return err
	}
	workspace := &unstructured.Unstructured{Object: map[string]any{}}
	workspace.SetGroupVersionKind(workspaceResource.GroupVersion().WithKind("Workspace"))
	workspace.SetName(strings.TrimPrefix(path, "root:"))
	if _, err := workspaces.Create(ctx, workspace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create workspace %s: %w", path, err)
	}
	tenant, err := i.Tenant(path)
	if err != nil {
		return err
	}
	for number := range configMaps {
		configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("cm-%d", number+1)}}
		err := await(ctx, func() (bool, error) {
			_, err := tenant.CoreV1().ConfigMaps(tenantNamespace).Create(ctx, configMap, metav1.CreateOptions{})
			return err == nil, nil // it is not ready yet
		})
		if err != nil {
			return fmt.Errorf("create ConfigMap %s in %s: %w", configMap.Name, path, err)
		}
	}
	return nil
}
