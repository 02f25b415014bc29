package realkcp

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

func TestMove_AbortedAtTheGate_GoesThroughWhenStartedAgain(t *testing.T) {
	stack := theStack(t)
	tenant := stack.createTenant(t, "hesitant")
	origin, before := stack.exports(t), tenant.inventory(t)
	id := stack.startGated(t, tenant.path)

	stack.command(t, exitAborted, "abort", id, "--reason", "not yet", "--wait")

	stack.requireBack(t, tenant, origin, before)
	stack.requireMovable(t, tenant, before)
	stack.delete(t, "hesitant")
}

func TestMove_AbortedWhileFenced_GoesThroughWhenStartedAgain(t *testing.T) {
	stack := theStack(t)
	tenant := stack.createTenant(t, "repentant")
	origin, before := stack.exports(t), tenant.inventory(t)
	id := stack.startGated(t, tenant.path)
	// Without its worker the destination cannot be filled, so the move stays where the tenant is fenced.
	require.NoError(t, stack.workers[otherShard].Freeze())
	stack.command(t, exitDone, "approve", id)
	stack.awaitStatus(t, id, func(status workflows.Status) bool { return status.Fenced })
	stack.command(t, exitDone, "abort", id, "--reason", "taking too long")
	stack.replaceWorker(t, otherShard)
	stack.command(t, exitAborted, "watch", id)

	stack.requireBack(t, tenant, origin, before)
	stack.requireScheduling(t, rootShard)
	stack.requireMovable(t, tenant, before)
	stack.delete(t, "repentant")
}

// createTenant makes a small tenant on the root shard.
func (s *stack) createTenant(t *testing.T, name string) *workspace {
	t.Helper()
	tenant := s.create(t, name, rootShard)
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

// replaceWorker kills a shard's worker, frozen or not, and starts another.
func (s *stack) replaceWorker(t *testing.T, shard string) {
	t.Helper()
	require.NoError(t, s.workers[shard].Kill())
	worker, err := s.StartWorker(t.Context(), shard)
	require.NoError(t, err)
	s.workers[shard] = worker
}

// requireBack expects the tenant whole and served at the origin, and nothing of it or of the move anywhere else.
func (s *stack) requireBack(t *testing.T, tenant *workspace, before exports, objects inventory) {
	t.Helper()
	after, logicalCluster := s.exports(t), tenant.logicalCluster(t)
	requireArrived(t, logicalCluster, before[rootShard], after[rootShard])
	requireNothingLeft(t, logicalCluster, otherShard, after)
	requireOthersUntouched(t, logicalCluster, before, after)
	requireSameInventory(t, objects, tenant.inventory(t))
	tenant.create(t, configMaps, newConfigMap("written-after-the-abort", nil))
}

func (s *stack) requireMovable(t *testing.T, tenant *workspace, objects inventory) {
	t.Helper()
	s.move(t, tenant.path, otherShard)
	requireSameInventory(t, objects, tenant.inventory(t))
}
