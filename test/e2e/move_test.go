package e2e

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	commonpb "go.temporal.io/api/common/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
	"github.com/kcp-migrate/kcp-migrate/test/installation"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// Invariants 1, 2 and 3 as both etcds show them, without clients that write meanwhile.
func TestMove_ThereAndBack_ArrivesByteEqualAndTouchesNobodyElse(t *testing.T) {
	stack := start(t, 0)
	first := stack.export(t, "root")
	for _, leg := range [][2]string{{"root", "shard-1"}, {"shard-1", "root"}} {
		origin, destination := leg[0], leg[1]
		originBefore, destinationBefore := stack.export(t, origin), stack.export(t, destination)

		result := stack.move(t, destination)

		originAfter, destinationAfter := stack.export(t, origin), stack.export(t, destination)
		arrived := unchanging(destinationAfter.Tenant(result.LogicalCluster))
		require.NotEmpty(t, arrived)
		require.Empty(t, installation.Difference(unchanging(originBefore.Tenant(result.LogicalCluster)), arrived))
		require.Empty(t, installation.Difference(unchanging(first.Tenant(result.LogicalCluster)), arrived))
		require.Empty(t, originAfter.Tenant(result.LogicalCluster))
		requireLeasesKept(t, originBefore.Tenant(result.LogicalCluster), destinationAfter.Tenant(result.LogicalCluster))
		requireNeighboursUntouched(t, result.LogicalCluster, originBefore, originAfter)
		requireNeighboursUntouched(t, result.LogicalCluster, destinationBefore, destinationAfter)
		require.Empty(t, originAfter.Claims())
		require.Empty(t, destinationAfter.Claims())
	}
}

// kcp's native migration hangs on the third of these (Trap 2 of docs/kcp-findings.md).
func TestMove_ThereAndBackAndThereAgain_KeepsServing(t *testing.T) {
	stack := start(t, 0)
	for _, destination := range []string{"shard-1", "root", "shard-1"} {
		stack.move(t, destination)
		stack.startPoller(t).Stop()
	}
}

func TestMove_UnderLoad_LosesNothingAndLeavesNoWatchDeaf(t *testing.T) {
	stack := start(t, 0)
	watcher, err := stack.StartWatcher(t.Context(), consumer)
	require.NoError(t, err)
	defer watcher.Stop()
	writer, err := stack.StartWriter(t.Context(), consumer)
	require.NoError(t, err)
	defer writer.Stop()
	within, cancel := context.WithTimeout(t.Context(), 2*moveDeadline)
	defer cancel()

	// The destination's revision is below the origin's in one direction, and above it in the other.
	for _, leg := range [][2]string{{"root", "shard-1"}, {"shard-1", "root"}} {
		destination := leg[1]
		left := stack.export(t, leg[0]).Revision
		stack.move(t, destination)
		require.Greater(t, stack.export(t, destination).Revision, left, "a watch that goes on from there would be deaf")
		_, err := watcher.Probe(within, "seen-on-"+destination)
		require.NoError(t, err)
	}

	writer.Stop()
	lost, err := writer.Verify(t.Context())
	require.NoError(t, err)
	require.Empty(t, lost)
	require.NotZero(t, writer.Acknowledged())
	require.Empty(t, watcher.FalseDeletes(writer.Deleted()))
}

// An Event that ends soon must end at the destination too.
func TestMove_EntryWithALease_StillExpires(t *testing.T) {
	t.Parallel()
	const ttlSeconds = 20
	stack := start(t, 0)
	origin, err := stack.Shard("root")
	require.NoError(t, err)
	etcd, err := origin.Etcd(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, etcd.Close()) }()
	event, err := etcd.Get(t.Context(), "/registry/core/events/"+stack.logicalCluster(t)+"/", clientv3.WithPrefix(), clientv3.WithLimit(1))
	require.NoError(t, err)
	require.NotEmpty(t, event.Kvs)
	lease, err := etcd.Grant(t.Context(), ttlSeconds)
	require.NoError(t, err)
	key := string(event.Kvs[0].Key)
	_, err = etcd.Put(t.Context(), key, string(event.Kvs[0].Value), clientv3.WithLease(lease.ID))
	require.NoError(t, err)

	stack.move(t, "shard-1")

	require.True(t, stack.export(t, "shard-1").Keys[key].Leased)
	require.Eventually(t, func() bool {
		_, found := stack.export(t, "shard-1").Keys[key]
		return !found
	}, moveDeadline, time.Second)
}

// The JSON that `temporal workflow start --input` sends, byte for byte.
func TestMove_StartedWithPlainJSON_Completes(t *testing.T) {
	stack := start(t, 0)
	temporal := stack.temporal(t)
	started, err := temporal.WorkflowService().StartWorkflowExecution(t.Context(), &workflowservice.StartWorkflowExecutionRequest{
		Namespace: "default", WorkflowId: "migrate-consumer", RequestId: t.Name(),
		WorkflowType: &commonpb.WorkflowType{Name: "MigrateLogicalCluster"},
		TaskQueue:    &taskqueuepb.TaskQueue{Name: "kcp-migrate"},
		Input: &commonpb.Payloads{Payloads: []*commonpb.Payload{{
			Metadata: map[string][]byte{"encoding": []byte("json/plain")},
			Data:     []byte(`{"logicalCluster":"root:consumer","destinationShard":"shard-1"}`),
		}}},
	})
	require.NoError(t, err)
	result := finish(t, temporal.GetWorkflow(t.Context(), "migrate-consumer", started.GetRunId()))
	require.Equal(t, consumer, result.Path)
	require.Equal(t, "root", result.OriginShard)
}

func TestMove_AbortedAtTheGate_CanBeStartedAgain(t *testing.T) {
	stack := start(t, 0)
	origin, destination := stack.export(t, "root"), stack.export(t, "shard-1")
	run := stack.begin(t, workflows.Input{LogicalCluster: consumer, DestinationShard: "shard-1", RequireApproval: true})
	status := stack.awaitStatus(t, run, func(status workflows.Status) bool { return status.WaitsForApproval })
	stack.steer(t, "abort", run)
	require.Error(t, run.Get(t.Context(), nil))

	requireTenantBack(t, stack, status.LogicalCluster, origin, destination)
	stack.move(t, "shard-1")
}

func TestMove_CancelledWhileFenced_PutsTheTenantBack(t *testing.T) {
	t.Parallel()
	stack := start(t, 0)
	origin, destination := stack.export(t, "root"), stack.export(t, "shard-1")
	run := stack.begin(t, workflows.Input{LogicalCluster: consumer, DestinationShard: "shard-1", RequireApproval: true})
	stack.awaitStatus(t, run, func(status workflows.Status) bool { return status.WaitsForApproval })
	// Without its worker the destination cannot be filled, so the move stays where the tenant is fenced.
	require.NoError(t, stack.workers["shard-1"].Freeze())
	stack.steer(t, "approve", run)
	status := stack.awaitStatus(t, run, func(status workflows.Status) bool { return status.Fenced })
	require.NoError(t, stack.temporal(t).CancelWorkflow(t.Context(), run.GetID(), run.GetRunID()))
	require.NoError(t, stack.workers["shard-1"].Kill())
	stack.startWorker(t, "shard-1")
	require.Error(t, run.Get(t.Context(), nil))

	requireTenantBack(t, stack, status.LogicalCluster, origin, destination)
}

// requireTenantBack expects the tenant whole and writable at the origin, and nothing of it at the destination.
func requireTenantBack(t *testing.T, stack *stack, logicalCluster string, origin, destination installation.Export) {
	t.Helper()
	originNow, destinationNow := stack.export(t, "root"), stack.export(t, "shard-1")
	require.Empty(t, installation.Difference(unchanging(origin.Tenant(logicalCluster)), unchanging(originNow.Tenant(logicalCluster))))
	require.Empty(t, destinationNow.Tenant(logicalCluster))
	require.Empty(t, originNow.Claims())
	require.Empty(t, destinationNow.Claims())
	requireNeighboursUntouched(t, logicalCluster, origin, originNow)
	requireNeighboursUntouched(t, logicalCluster, destination, destinationNow)
	tenant, err := stack.Tenant(consumer)
	require.NoError(t, err)
	written := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "written-again-"}}
	_, err = tenant.CoreV1().ConfigMaps("default").Create(t.Context(), written, metav1.CreateOptions{})
	require.NoError(t, err)
}

func requireNeighboursUntouched(t *testing.T, logicalCluster string, before, after installation.Export) {
	t.Helper()
	require.Empty(t, installation.Difference(before.Neighbours(logicalCluster), after.Neighbours(logicalCluster)))
}

// requireLeasesKept expects a lease on the very entries that had one.
func requireLeasesKept(t *testing.T, before, after map[string]installation.Exported) {
	t.Helper()
	for key, exported := range after {
		if old, found := before[key]; found {
			require.Equal(t, old.Leased, exported.Leased, key)
		}
	}
}

// unchanging leaves out what rightly differs between shards: the LogicalCluster object, which says where the tenant
// lives, every kube-root-ca.crt, for each shard has a CA of its own, quotas, which controllers count anew, and
// entries that end by themselves. The move's own digests, which are taken while nobody may write, leave out nothing.
func unchanging(tenant map[string]installation.Exported) map[string]installation.Exported {
	kept := maps.Clone(tenant)
	maps.DeleteFunc(kept, func(key string, exported installation.Exported) bool {
		return exported.Leased || strings.Contains(key, "/"+keyspace.LogicalClusters.String()+"/") ||
			strings.HasSuffix(key, "/kube-root-ca.crt") || strings.Contains(key, "/core/resourcequotas/")
	})
	return kept
}

// logicalCluster resolves the consumer with a dry run.
func (s *stack) logicalCluster(t *testing.T) string {
	t.Helper()
	run := s.begin(t, workflows.Input{LogicalCluster: consumer, DestinationShard: "shard-1", DryRun: true})
	var result workflows.Result
	require.NoError(t, run.Get(t.Context(), &result))
	return result.LogicalCluster
}

// steer runs one of the commands that take a move.
func (s *stack) steer(t *testing.T, command string, run client.WorkflowRun) {
	t.Helper()
	outcome, err := s.Run(t.Context(), t.Output(), command, run.GetID())
	require.NoError(t, err)
	require.Zero(t, outcome.ExitCode, "%s", outcome.Stdout)
}
