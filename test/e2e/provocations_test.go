package e2e

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcp-migrate/kcp-migrate/workflows"
)

const (
	// consumerCluster is the logical cluster of consumer.
	consumerCluster = "256hdo017n2m0br9"
	// leaving is a workspace that deleteWorkspace makes.
	leaving = "root:leaving"
	// leftoverKeys is how many keys leaveKeys leaves, more than a refusal lists.
	leftoverKeys = 25
	// meddlingDelay is longer than a simulated shard's controllers gather changes before they act on them.
	meddlingDelay = 300 * time.Millisecond

	logicalClusterKey = "/registry/core.kcp.io/logicalclusters/customresources/" + consumerCluster + "/cluster"
	definitionsPrefix = "/registry/apiextensions.k8s.io/customresourcedefinitions/"
)

// makeUnready leaves the tenant served: of all phases but Ready in which tenants are let in, this one has nobody act on an
// object that is not being deleted.
func makeUnready(t *testing.T, stack *stack) {
	stack.edit(t, "root", logicalClusterKey, func(object map[string]any) {
		object["status"].(map[string]any)["phase"] = "Terminating"
		object["metadata"].(map[string]any)["labels"].(map[string]any)["tenancy.kcp.io/phase"] = "Terminating"
	})
}

// annotateMigrating does what kcp's own migration does first.
func annotateMigrating(t *testing.T, stack *stack) {
	stack.edit(t, "root", logicalClusterKey, func(object map[string]any) {
		object["metadata"].(map[string]any)["annotations"].(map[string]any)["internal.kcp.io/migrating"] = "to-shard-1"
	})
}

// holdAtTheGate has a move that holds the claims, and goes no further.
func holdAtTheGate(t *testing.T, stack *stack) {
	stack.requireExit(t, exitDone, "start", consumer, "shard-1", "--require-approval")
	run := stack.temporal(t).GetWorkflow(t.Context(), workflows.WorkflowID(consumer), "")
	stack.awaitStatus(t, run, func(status workflows.Status) bool { return status.WaitsForApproval })
	t.Cleanup(func() {
		outcome, err := stack.Run(context.WithoutCancel(t.Context()), t.Output(), "abort", consumer, "--wait")
		require.NoError(t, err)
		require.Equal(t, exitUndone, outcome.ExitCode)
	})
}

// deleteWorkspace makes a workspace and deletes it; a finalizer inside holds it up.
func deleteWorkspace(t *testing.T, stack *stack) {
	ctx := context.WithoutCancel(t.Context())
	require.NoError(t, stack.CreateWorkspace(ctx, leaving, 0))
	workspaces, err := stack.Workspaces()
	require.NoError(t, err)
	name := strings.TrimPrefix(leaving, "root:")
	inside, err := stack.Tenant(leaving)
	require.NoError(t, err)
	configMaps := inside.CoreV1().ConfigMaps("default")
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"kcp-migrate.io/held"}}}
	require.Eventually(t, func() bool {
		_, err := configMaps.Create(ctx, held, metav1.CreateOptions{})
		return err == nil
	}, moveDeadline, pollEvery)
	require.NoError(t, workspaces.Delete(ctx, name, metav1.DeleteOptions{}))
	t.Cleanup(func() {
		held.Finalizers = nil
		_, err := configMaps.Update(ctx, held, metav1.UpdateOptions{})
		require.NoError(t, err)
	})
	require.Eventually(t, func() bool {
		found, err := configMaps.Get(ctx, held.Name, metav1.GetOptions{})
		return err == nil && found.DeletionTimestamp != nil
	}, moveDeadline, pollEvery)
}

// leaveKeys puts some of the tenant's entries where an earlier, careless move might have left them.
func leaveKeys(t *testing.T, stack *stack) {
	prefix := "/registry/core/configmaps/" + consumerCluster + "/"
	origin, destination := stack.etcd(t, "root"), stack.etcd(t, "shard-1")
	entries, err := origin.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithLimit(leftoverKeys))
	require.NoError(t, err)
	require.Len(t, entries.Kvs, leftoverKeys)
	for _, entry := range entries.Kvs {
		_, err := destination.Put(t.Context(), string(entry.Key), string(entry.Value))
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		_, err := destination.Delete(context.WithoutCancel(t.Context()), prefix, clientv3.WithPrefix())
		require.NoError(t, err)
	})
}

// leaveLogicalCluster has a second LogicalCluster, closed, on the destination, while the route leads to the origin:
// whoever speaks last has it.
func leaveLogicalCluster(t *testing.T, stack *stack) {
	origin, destination := stack.etcd(t, "root"), stack.etcd(t, "shard-1")
	present, err := origin.Get(t.Context(), logicalClusterKey)
	require.NoError(t, err)
	closed := changed(t, present.Kvs[0].Value, func(object map[string]any) {
		metadata := object["metadata"].(map[string]any)
		metadata["annotations"].(map[string]any)["core.kcp.io/inactive"] = "true"
		metadata["annotations"].(map[string]any)["core.kcp.io/shard"] = "shard-1"
		metadata["labels"].(map[string]any)["tenancy.kcp.io/phase"] = "Inactive"
		object["status"].(map[string]any)["phase"] = "Inactive"
	})
	_, err = destination.Put(t.Context(), logicalClusterKey, closed)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := destination.Delete(context.WithoutCancel(t.Context()), logicalClusterKey)
		require.NoError(t, err)
	})
	stack.awaitServed(t, false)
	_, err = origin.Put(t.Context(), logicalClusterKey, string(present.Kvs[0].Value))
	require.NoError(t, err)
	stack.awaitServed(t, true)
}

// awaitServed waits until the tenant is served, or is not.
func (s *stack) awaitServed(t *testing.T, served bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		poller, err := s.StartPoller(t.Context(), consumer)
		if err == nil {
			poller.Stop()
		}
		return (err == nil) == served
	}, moveDeadline, pollEvery)
}

// takeBoundCRD deletes the CRD of a resource that the tenant binds.
func takeBoundCRD(t *testing.T, stack *stack) {
	etcd := stack.etcd(t, "root")
	found, err := etcd.Get(t.Context(), "/registry/apis.kcp.io/apibindings/customresources/"+consumerCluster+"/wild")
	require.NoError(t, err)
	var binding struct {
		Status struct {
			BoundResources []struct {
				Schema struct{ UID string } `json:"schema"`
			} `json:"boundResources"`
		} `json:"status"`
	}
	require.NoError(t, json.Unmarshal(found.Kvs[0].Value, &binding))
	key := definitionsPrefix + "system:bound-crds/" + binding.Status.BoundResources[0].Schema.UID
	stack.restoreLater(t, "root", key)
	_, err = etcd.Delete(t.Context(), key)
	require.NoError(t, err)
}

// ageKcp takes the phase Inactive from a shard, which kcp before 0.32 does not know.
func ageKcp(shard string) func(*testing.T, *stack) {
	return func(t *testing.T, stack *stack) {
		key := definitionsPrefix + "system:system-crds/logicalclusters.core.kcp.io"
		present := stack.restoreLater(t, shard, key)
		older := strings.Replace(string(present), `"Inactive",`, "", 1)
		require.NotEqual(t, string(present), older)
		_, err := stack.etcd(t, shard).Put(t.Context(), key, older)
		require.NoError(t, err)
	}
}

func unreadyShard(t *testing.T, stack *stack) {
	etcd := stack.etcd(t, "root")
	shards, err := etcd.Get(t.Context(), "/registry/core.kcp.io/shards/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(t, err)
	for _, shard := range shards.Kvs {
		if strings.HasSuffix(string(shard.Key), "/shard-1") {
			stack.edit(t, "root", string(shard.Key), func(object map[string]any) {
				object["status"] = map[string]any{"conditions": []any{map[string]any{
					"type": "Ready", "status": "False", "reason": "Draining", "message": "disks are replaced", "lastTransitionTime": "2026-11-30T15:00:00Z",
				}}}
			})
		}
	}
}

func raiseAlarm(t *testing.T, stack *stack) {
	etcd := stack.etcd(t, "shard-1")
	members, err := etcd.MemberList(t.Context())
	require.NoError(t, err)
	alarm := &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE, MemberID: members.Members[0].ID}
	_, err = pb.NewMaintenanceClient(etcd.ActiveConnection()).Alarm(t.Context(), alarm)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := etcd.AlarmDisarm(context.WithoutCancel(t.Context()), &clientv3.AlarmMember{})
		require.NoError(t, err)
	})
}

// etcd dials a shard's etcd, until the test is over and all else is cleaned up.
func (s *stack) etcd(t *testing.T, shardName string) *clientv3.Client {
	t.Helper()
	shard, err := s.Shard(shardName)
	require.NoError(t, err)
	etcd, err := shard.Etcd(context.WithoutCancel(t.Context()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, etcd.Close()) })
	return etcd
}

// edit changes an object in a shard's etcd, until the test is over.
func (s *stack) edit(t *testing.T, shard, key string, change func(object map[string]any)) {
	t.Helper()
	present := s.restoreLater(t, shard, key)
	_, err := s.etcd(t, shard).Put(t.Context(), key, changed(t, present, change))
	require.NoError(t, err)
}

// restoreLater puts a key's value back when the test is over, and gives it.
func (s *stack) restoreLater(t *testing.T, shard, key string) []byte {
	t.Helper()
	etcd := s.etcd(t, shard)
	present, err := etcd.Get(t.Context(), key)
	require.NoError(t, err)
	require.Len(t, present.Kvs, 1, key)
	value := present.Kvs[0].Value
	t.Cleanup(func() {
		_, err := etcd.Put(context.WithoutCancel(t.Context()), key, string(value))
		require.NoError(t, err)
	})
	return value
}

func changed(t *testing.T, value []byte, change func(object map[string]any)) string {
	t.Helper()
	var object map[string]any
	require.NoError(t, json.Unmarshal(value, &object))
	change(object)
	encoded, err := json.Marshal(object)
	require.NoError(t, err)
	return string(encoded)
}
