package installation

import (
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// requestTimeout is how long a tenant's client waits for an answer: a cut connection must not look like a long outage.
	requestTimeout = 5 * time.Second
	// retryInterval is how soon a tenant's client tries again after a refusal.
	retryInterval = 20 * time.Millisecond
	// tenantNamespace is where the tenant's clients work.
	tenantNamespace = "default"
)

// TenantConfig is a client configuration for a workspace (by path or cluster name) at the front door.
func (i *Installation) TenantConfig(workspace string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", i.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", i.Kubeconfig, err)
	}
	config.Host = i.FrontProxies[0] + "/clusters/" + workspace
	// The tests' clients are polite by their own design; client-go's limits would hide outages.
	config.QPS, config.Burst = -1, -1
	return config, nil
}

// Tenant is a client for a workspace at the front door.
func (i *Installation) Tenant(workspace string) (*kubernetes.Clientset, error) {
	config, err := i.TenantConfig(workspace)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}
