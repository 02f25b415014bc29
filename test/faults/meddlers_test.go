package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/objects"
	"github.com/kcp-migrate/kcp-migrate/test/faults/point"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

const (
	// inactive is the fence, as a tenant's admin sees it.
	inactive = "core.kcp.io/inactive"
)

// admin is an administrator of a tenant, at a front door or at one of a shard's API servers.
type admin struct {
	core    kubernetes.Interface
	dynamic dynamic.Interface
}

// adminAt gives one; the first front door where no shard is named.
func (b *bench) adminAt(t *testing.T, cluster, shard string) admin {
	t.Helper()
	config, err := b.TenantConfig(cluster)
	require.NoError(t, err)
	if shard != "" {
		at, err := b.Shard(shard)
		require.NoError(t, err)
		config.Host = at.APIServers[0] + "/clusters/" + cluster
	}
	return newAdmin(t, config)
}

func newAdmin(t *testing.T, config *rest.Config) admin {
	t.Helper()
	core, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	others, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	return admin{core: core, dynamic: others}
}

func (a admin) logicalClusters() dynamic.ResourceInterface {
	return a.dynamic.Resource(schema.GroupVersionResource{Group: "core.kcp.io", Version: "v1alpha1", Resource: "logicalclusters"})
}

// lift removes the annotation and what else is named, and writes a ConfigMap once that is possible.
func (a admin) lift(ctx context.Context, name string, others ...string) error {
	var removed []string
	for _, annotation := range append(others, inactive) {
		removed = append(removed, fmt.Sprintf("%q:null", annotation))
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%s}}}`, strings.Join(removed, ","))
	if _, err := a.logicalClusters().Patch(ctx, "cluster", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	written := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return await(ctx, "the lifted tenant", func() error {
		_, err := a.core.CoreV1().ConfigMaps("default").Create(ctx, written, metav1.CreateOptions{})
		return err
	})
}

func TestMove_WhoseFenceTheTenantLifts_LosesNoWriteSilently(t *testing.T) {
	bench := startTestBench(t)
	cluster := tenants[Neighbour]
	for name, test := range map[string]struct {
		lifter string   // the shard at which the tenant lifts it
		others []string // annotations that the tenant removes with it
		kept   bool
	}{
		"at the origin":                         {lifter: "root", kept: true},
		"through the front door":                {lifter: "", kept: false}, // which leads to the destination by now
		"through the front door, stamp and all": {lifter: "", others: []string{objects.MoveAnnotation}, kept: false},
	} {
		t.Run(name, func(t *testing.T) {
			admin, written := bench.adminAt(t, cluster, test.lifter), "written-"+strings.NewReplacer(" ", "-", ",", "").Replace(name)
			outcome := bench.meddle(t, schedule{tenant: Neighbour, blows: []blow{meddling("VerifyEntries", Destination, point.Before, func(ctx context.Context) error {
				return admin.lift(ctx, written, test.others...)
			})}})

			require.Equal(t, workflows.Failed, outcome.result.Phase)
			require.Equal(t, activities.FenceLost, outcome.failure)
			require.Empty(t, outcome.result.NotUndone)
			_, found := bench.values(t, outcome.leg.origin)["/registry/core/configmaps/"+cluster+"/default/"+written]
			require.Equal(t, test.kept, found)
			bench.requireNothingOf(t, cluster, outcome.leg.destination)
			bench.requireNoClaims(t)
			bench.requireServed(t, cluster)
		})
	}
}

func (b *bench) requireServed(t *testing.T, cluster string) {
	t.Helper()
	_, err := b.adminAt(t, cluster, "").core.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
	require.NoError(t, err)
}

func (b *bench) requireNothingOf(t *testing.T, cluster, shard string) {
	t.Helper()
	for key := range b.values(t, shard) {
		require.NotContains(t, key, "/"+cluster+"/", "on shard %s", shard)
	}
}

func (b *bench) requireNoClaims(t *testing.T) {
	t.Helper()
	for shard, etcd := range b.clients {
		claims, err := etcd.Get(t.Context(), "/kcp-migrate/migrations/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		require.NoError(t, err)
		require.Zero(t, claims.Count, "claims on shard %s", shard)
	}
}

func TestMove_WhoseWorkspaceIsDeleted_LeavesNothingBehind(t *testing.T) {
	skipUnlessAtLength(t)
	bench := startTestBench(t)
	for name, test := range map[string]struct {
		at blow
		// gone is whether the deletion comes to its end before the move goes on.
		gone bool
		ends []string
	}{
		"before the fence":       {at: meddling("FenceOrigin", Origin, point.Before, nil), ends: []string{activities.BeingDeleted}},
		"in mid-copy":            {at: meddling("CopyEntries", Destination, point.During, nil), ends: []string{""}},
		"after the verification": {at: meddling("Commit", Destination, point.Before, nil), ends: []string{""}},
		"right after the commit": {at: meddling("Commit", Destination, point.After, nil), ends: []string{""}},
		"once served":            {at: meddling("ReleaseContext", Origin, point.Before, nil), ends: []string{""}, gone: true},
		"at the end":             {at: meddling("AwaitRoute", Either, point.Before, nil), ends: []string{""}, gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			tenant := bench.makeTenant(t, "leaving-"+strings.ReplaceAll(name, " ", "-"))
			cluster := bench.clusterOf(t, tenant)
			hold := bench.adminAt(t, cluster, "").hold(t)
			test.at.meddle = func(ctx context.Context) error { return bench.deleteWorkspace(ctx, t, tenant, cluster, test.gone) }
			if test.gone {
				hold()
			}
			outcome := bench.meddle(t, schedule{tenant: tenant, blows: []blow{test.at}})
			require.Contains(t, test.ends, outcome.failure)
			if !test.gone {
				hold()
			}
			require.Eventually(t, func() bool {
				_, err := bench.workspaces(t).Get(t.Context(), strings.TrimPrefix(string(tenant), "root:"), metav1.GetOptions{})
				return apierrors.IsNotFound(err)
			}, meddleDeadline, pollEvery)
			for shard := range bench.clients {
				bench.requireNothingOf(t, cluster, shard)
			}
			bench.requireNoClaims(t)
		})
	}
}

// hold keeps a tenant from being gone at once when it is deleted, by a finalizer, until it is let go.
func (a admin) hold(t *testing.T) (release func()) {
	t.Helper()
	configMaps := a.core.CoreV1().ConfigMaps("default")
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"faults/held"}}}
	_, err := configMaps.Create(t.Context(), held, metav1.CreateOptions{})
	require.NoError(t, err)
	return func() {
		_, err := configMaps.Patch(t.Context(), held.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	}
}

// deleteWorkspace deletes it, as with kubectl, and waits until kcp has begun to delete what belongs to it, or has ended.
func (b *bench) deleteWorkspace(ctx context.Context, t *testing.T, tenant Tenant, cluster string, gone bool) error {
	name := strings.TrimPrefix(string(tenant), "root:")
	if err := b.workspaces(t).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return await(ctx, "the deletion of "+name, func() error {
		_, err := b.workspaces(t).Get(ctx, name, metav1.GetOptions{})
		if gone {
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(err, errors.New("it is there"))
		}
		for _, etcd := range b.clients {
			found, err := etcd.Get(ctx, logicalClusterKey(cluster))
			if err != nil {
				return err
			}
			for _, kv := range found.Kvs {
				var object unstructured.Unstructured
				if err := json.Unmarshal(kv.Value, &object.Object); err != nil {
					return err
				}
				if object.GetDeletionTimestamp() != nil {
					return nil
				}
			}
		}
		return errors.New("its LogicalCluster is not being deleted")
	})
}
