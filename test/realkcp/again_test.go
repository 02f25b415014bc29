package realkcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// Exit codes, as `kcp-migrate --help` lists them.
const (
	exitDone    = 0
	exitAborted = 4
)

// kcp's native migration hangs on the second of these moves (Trap 2 of docs/kcp-findings.md).
func TestTenant_MovedThereAndBackAndThereAgain_IsServed(t *testing.T) {
	stack := theStack(t)
	tenant := stack.createTenant(t, "wanderer")
	for _, destination := range []string{otherShard, rootShard, otherShard} {
		before := tenant.inventory(t)
		stack.move(t, tenant.path, destination)
		requireSameInventory(t, before, tenant.inventory(t))
		tenant.create(t, cowboys, newCowboy("arrived", destination))
		require.NoError(t, tenant.of(cowboys, "default").Delete(t.Context(), "arrived", metav1.DeleteOptions{}))
		tenant.awaitGone(t, cowboys, "default", "arrived")
	}
	stack.requireDeletion(t, "wanderer", tenant.logicalCluster(t))
}

// Trap 6 of docs/kcp-findings.md.
func TestTenant_WhoseRightsWereRevokedElsewhere_StayRevokedAfterItsReturn(t *testing.T) {
	stack := theStack(t)
	tenant := stack.createEntitled(t, "revoking")
	stack.move(t, tenant.path, otherShard)
	stack.requireRevoked(t, tenant)
	stack.delete(t, "revoking")
}

// Another tenant of the shard is fenced right before the first one's entries are deleted there. Moves before have made the
// informers wait for longer than the first one's move goes on waiting.
func TestTenant_WhoseNeighbourLeavesAsItsEntriesGo_HasItsRightsRevokedAllTheSame(t *testing.T) {
	stack := theStack(t)
	tenant, neighbour := stack.createEntitled(t, "followed"), stack.createTenant(t, "following")
	ahead := []*workspace{stack.createTenant(t, "ahead-1"), stack.createTenant(t, "ahead-2"), stack.createTenant(t, "ahead-3")}
	for _, other := range ahead {
		stack.move(t, other.path, otherShard)
	}
	id := stack.startGated(t, neighbour.path)
	stack.command(t, exitDone, "start", tenant.path, otherShard)
	stack.awaitSeen(t, workflows.WorkflowID(tenant.path))

	stack.command(t, exitDone, "approve", id)
	stack.command(t, exitDone, "watch", id)

	stack.command(t, exitDone, "watch", workflows.WorkflowID(tenant.path))
	stack.requireRevoked(t, tenant)
	for _, name := range []string{"followed", "following", "ahead-1", "ahead-2", "ahead-3"} {
		stack.delete(t, name)
	}
}

// createEntitled makes a tenant of the root shard in which somebody has a right.
func (s *stack) createEntitled(t *testing.T, name string) *workspace {
	t.Helper()
	tenant := s.createTenant(t, name)
	tenant.apply(t, "access.yaml")
	await(t, "right to take effect", func(ctx context.Context) error { return tenant.expectAllowed(ctx, true) })
	return tenant
}

// awaitSeen waits until a move has seen the first of the origin's informers connected again, and waits for the others.
func (s *stack) awaitSeen(t *testing.T, id string) {
	t.Helper()
	s.awaitStatus(t, id, func(status workflows.Status) bool { return status.Step == "clean up origin" && status.Advice != "" })
	temporal, err := s.Temporal(t.Context())
	require.NoError(t, err)
	defer temporal.Close()
	await(t, "informers seen by "+id, func(ctx context.Context) error {
		described, err := temporal.DescribeWorkflow(ctx, id, "")
		if err == nil && len(described.RawResponse.GetPendingActivities()) > 0 {
			err = errors.New("it still looks")
		}
		return err
	})
}

// requireRevoked revokes the right at the other shard and moves the tenant back.
func (s *stack) requireRevoked(t *testing.T, tenant *workspace) {
	t.Helper()
	binding := tenant.of(resources["ClusterRoleBinding"], "")
	require.NoError(t, binding.Delete(t.Context(), "someone", metav1.DeleteOptions{}))
	await(t, "right to be revoked", func(ctx context.Context) error { return tenant.expectAllowed(ctx, false) })

	s.move(t, tenant.path, rootShard)

	holds(t, "the right stays revoked", func(ctx context.Context) error { return tenant.expectAllowed(ctx, false) })
}

// expectAllowed gives no error while the user someone may, or may not, list Secrets.
func (w *workspace) expectAllowed(ctx context.Context, allowed bool) error {
	review, err := w.kubernetes.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "someone",
			Groups:             []string{"system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Version: "v1", Resource: "secrets", Verb: "list"},
		},
	}, metav1.CreateOptions{})
	if err == nil && review.Status.Allowed != allowed {
		err = fmt.Errorf("someone may list Secrets: %t", review.Status.Allowed)
	}
	return err
}

func TestMove_AbortedAtTheGate_GoesThroughWhenStartedAgain(t *testing.T) {
	stack := theStack(t)
	tenant := stack.createTenant(t, "hesitant")
	origin, before := stack.settledExports(t, tenant), tenant.inventory(t)
	id := stack.startGated(t, tenant.path)

	stack.command(t, exitAborted, "abort", id, "--reason", "not yet", "--wait")

	stack.requireBack(t, tenant, origin, before)
	stack.requireMovable(t, tenant, before)
	stack.delete(t, "hesitant")
}

func TestMove_AbortedWhileFenced_GoesThroughWhenStartedAgain(t *testing.T) {
	stack := theStack(t)
	tenant := stack.createTenant(t, "repentant")
	origin, before := stack.settledExports(t, tenant), tenant.inventory(t)
	id := stack.startGated(t, tenant.path)
	// The destination cannot be filled then, so the move stays where the tenant is fenced.
	stack.withoutWorker(t, otherShard, func() {
		stack.command(t, exitDone, "approve", id)
		stack.awaitStatus(t, id, func(status workflows.Status) bool { return status.Fenced })
		stack.command(t, exitDone, "abort", id, "--reason", "taking too long")
	})
	stack.command(t, exitAborted, "watch", id)

	stack.requireBack(t, tenant, origin, before)
	stack.requireScheduling(t, rootShard)
	stack.requireMovable(t, tenant, before)
	stack.delete(t, "repentant")
}

// What writes at the origin in spite of the fence ends the move, in either direction. On the way to the parent's shard its
// path must not be lost with the destination's LogicalCluster.
func TestMove_ThatNeverAgrees_IsUndoneAndTheTenantBack(t *testing.T) {
	stack := theStack(t)
	for _, leg := range thereAndBack {
		tenant := stack.createTenantOn(t, "disputed", leg.origin)
		tenant.create(t, configMaps, newConfigMap("counter", map[string]any{"count": counterStart}))
		before, objects := stack.settledExports(t, tenant), tenant.inventory(t)
		stop := stack.count(t, tenant, leg.origin)

		stack.command(t, exitAborted, "start", tenant.path, leg.destination, "--wait")

		stop()
		delete(objects, "/configmaps default/counter")
		after, found := stack.exports(t), tenant.inventory(t)
		delete(found, "/configmaps default/counter")
		requireSameInventory(t, objects, found)
		logicalCluster := tenant.logicalCluster(t)
		requireNothingLeft(t, logicalCluster, leg.destination, after)
		stack.requireOthersUntouched(t, tenant, logicalCluster, before, after)
		stack.delete(t, "disputed")
	}
}

// counterStart is replaced in the stored value, so its length must not change.
const counterStart = "0000000000"

// count writes a ConfigMap anew all the time, straight into etcd, until it is stopped.
func (s *stack) count(t *testing.T, tenant *workspace, shardName string) (stop func()) {
	t.Helper()
	shard := s.shard(t, shardName)
	etcd := dialEtcd(t, shard)
	family := keyspace.Family{Group: "core", Resource: "configmaps"}
	key := keyspace.NewLayout(shard.EtcdPrefix).FamilyPrefix(family, tenant.logicalCluster(t)) + "default/counter"
	found, err := etcd.Get(t.Context(), key)
	require.NoError(t, err)
	require.Len(t, found.Kvs, 1)
	ctx, cancel := context.WithCancel(t.Context())
	var counting sync.WaitGroup
	counting.Go(func() {
		for count := 0; ctx.Err() == nil; count++ {
			value := bytes.Replace(found.Kvs[0].Value, []byte(counterStart), fmt.Appendf(nil, "%010d", count), 1)
			if _, err := etcd.Put(ctx, key, string(value)); err != nil && ctx.Err() == nil {
				t.Errorf("count: %v", err)
				return
			}
		}
	})
	return func() {
		cancel()
		counting.Wait()
	}
}

// createTenant makes a small tenant on the root shard.
func (s *stack) createTenant(t *testing.T, name string) *workspace {
	t.Helper()
	return s.createTenantOn(t, name, rootShard)
}

func (s *stack) createTenantOn(t *testing.T, name, shard string) *workspace {
	t.Helper()
	tenant := s.create(t, name, shard)
	tenant.apply(t, "binding.yaml")
	tenant.create(t, configMaps, newConfigMap("settings", map[string]any{"owner": name}))
	tenant.create(t, cowboys, newCowboy("billy", name))
	return tenant
}

// startGated starts a move to the other shard that waits for approval, and gives its workflow ID.
func (s *stack) startGated(t *testing.T, path string) (id string) {
	t.Helper()
	id = workflows.WorkflowID(path)
	s.command(t, exitDone, "start", path, otherShard, "--require-approval")
	s.awaitStatus(t, id, func(status workflows.Status) bool { return status.WaitsForApproval })
	return id
}

func (s *stack) awaitStatus(t *testing.T, id string, wanted func(workflows.Status) bool) {
	t.Helper()
	temporal, err := s.Temporal(t.Context())
	require.NoError(t, err)
	defer temporal.Close()
	await(t, "status of "+id, func(ctx context.Context) error {
		answer, err := temporal.QueryWorkflow(ctx, id, "", workflows.StatusQuery)
		if err != nil {
			return err
		}
		var status workflows.Status
		if err := answer.Get(&status); err != nil {
			return err
		}
		if wanted(status) {
			return nil
		}
		text, err := json.Marshal(status)
		return errors.Join(errors.New(string(text)), err)
	})
}

// withoutWorker does something while a shard has no worker.
func (s *stack) withoutWorker(t *testing.T, shard string, do func()) {
	t.Helper()
	require.NoError(t, s.workers[shard].Kill())
	defer func() {
		worker, err := s.StartWorker(t.Context(), shard)
		require.NoError(t, err)
		s.workers[shard] = worker
	}()
	do()
}

// requireBack expects the tenant whole and served at the origin, and nothing of it or of the move anywhere else.
func (s *stack) requireBack(t *testing.T, tenant *workspace, before exports, objects inventory) {
	t.Helper()
	after, logicalCluster := s.exports(t), tenant.logicalCluster(t)
	s.requireArrived(t, logicalCluster, leg{rootShard, rootShard}, before, after)
	requireNothingLeft(t, logicalCluster, otherShard, after)
	s.requireOthersUntouched(t, tenant, logicalCluster, before, after)
	requireSameInventory(t, objects, tenant.inventory(t))
	tenant.create(t, configMaps, newConfigMap("written-after-the-abort", nil))
}

func (s *stack) requireMovable(t *testing.T, tenant *workspace, objects inventory) {
	t.Helper()
	s.move(t, tenant.path, otherShard)
	requireSameInventory(t, objects, tenant.inventory(t))
}
