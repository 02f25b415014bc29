package realkcp

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kcp-migrate/kcp-migrate/test/installation"
)

// requestAs asks a server of kcp with the credentials of a kubeconfig, and gives the code of its answer.
func requestAs(t *testing.T, kubeconfig, server, verb, path string) int {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), verb, server+path, http.NoBody)
	require.NoError(t, err)
	answer, err := client.Do(request)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	return answer.StatusCode
}

// The other tests show that these rights suffice: all workers here have no others through the front-proxy.
func TestRights_OfWorkersThroughTheFrontProxy_AreForNothingElse(t *testing.T) {
	stack := theStack(t)
	worker := filepath.Join(filepath.Dir(stack.Kubeconfig), "front-proxy.kubeconfig")
	proxy := stack.FrontProxies[0]
	for path, wanted := range map[string]int{
		"/clusters/root/apis/core.kcp.io/v1alpha1/logicalclusters/cluster": http.StatusOK,
		"/clusters/root/apis/core.kcp.io/v1alpha1/shards":                  http.StatusOK,
		"/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces/neighbour": http.StatusOK,
		"/clusters/root/api/v1/secrets":                                    http.StatusForbidden,
		"/clusters/root/api/v1/configmaps":                                 http.StatusForbidden,
		"/clusters/root/apis/apis.kcp.io/v1alpha2/apibindings":             http.StatusForbidden,
	} {
		require.Equal(t, wanted, requestAs(t, worker, proxy, http.MethodGet, path), path)
	}
	for _, path := range []string{
		"/clusters/root/apis/core.kcp.io/v1alpha1/logicalclusters/none",
		"/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces/none",
	} {
		require.Equal(t, http.StatusForbidden, requestAs(t, worker, proxy, http.MethodDelete, path), path)
	}
}

// A move lists with wildcards and looks into system:system-crds at its shard. No rule of kcp's allows either, so a worker's
// credentials there must be of system:masters.
func TestRights_OnAShard_AreThoseOfSystemMastersForWantOfLess(t *testing.T) {
	stack := theStack(t)
	shard := stack.shard(t, rootShard)
	worker := filepath.Join(filepath.Dir(stack.Kubeconfig), "front-proxy.kubeconfig")
	allowEverything(t, shard)
	await(t, "the worker's user is allowed all that a rule can allow", func(context.Context) error {
		if code := requestAs(t, worker, shard.APIServers[0], http.MethodGet, "/clusters/root/api/v1/secrets"); code != http.StatusOK {
			return fmt.Errorf("the answer is %d", code)
		}
		return nil
	})
	for _, path := range []string{
		"/clusters/*/api/v1/namespaces?limit=1",
		"/clusters/system:system-crds/apis/apiextensions.k8s.io/v1/customresourcedefinitions/logicalclusters.core.kcp.io",
	} {
		require.Equal(t, http.StatusOK, requestAs(t, shard.Kubeconfig, shard.APIServers[0], http.MethodGet, path), path)
		require.Equal(t, http.StatusForbidden, requestAs(t, worker, shard.APIServers[0], http.MethodGet, path), path)
	}
}

// allowEverything gives the worker's user all verbs on everything in all logical clusters of a shard, until the test ends.
func allowEverything(t *testing.T, shard installation.Shard) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", shard.Kubeconfig)
	require.NoError(t, err)
	config.Host = shard.APIServers[0] + "/clusters/system:admin"
	admin, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	named := metav1.ObjectMeta{Name: "everything"}
	all := []string{"*"}
	_, err = admin.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: named, Rules: []rbacv1.PolicyRule{
		{APIGroups: all, Resources: all, Verbs: all}, {NonResourceURLs: all, Verbs: append(all, "access")},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: named,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: named.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "kcp-migrate"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, admin.RbacV1().ClusterRoleBindings().Delete(context.Background(), named.Name, metav1.DeleteOptions{}))
		require.NoError(t, admin.RbacV1().ClusterRoles().Delete(context.Background(), named.Name, metav1.DeleteOptions{}))
	})
}
