// Package e2e moves tenants of a whole installation, everything in processes of its own, and looks at
// what is in both etcds and what clients saw. Package realkcp does so on a real kcp.
package e2e

import (
	"cmp"
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/kcp-migrate/kcp-migrate/test/installation"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

const (
	// consumer is the tenant that moves.
	consumer = "root:consumer"
	// moveDeadline bounds one move; it is far above what one takes.
	moveDeadline = 5 * time.Minute
	pollEvery    = 20 * time.Millisecond
)

// stack is an installation with a worker beside each shard.
type stack struct {
	*installation.Installation
	workers map[string]*installation.Process
}

// start starts an installation that ends with the test; flags are devstack's.
func start(t *testing.T, entries int, flags ...string) *stack {
	t.Helper()
	dir, err := os.MkdirTemp("", "kcp-migrate-e2e-") //nolint:usetesting // the logs of a failed test are kept
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("logs are kept in %s", dir)
			return
		}
		require.NoError(t, os.RemoveAll(dir))
	})
	running, err := installation.Start(t.Context(), installation.Options{Dir: dir, Entries: entries, Extra: flags})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, running.Stop()) })
	stack := &stack{Installation: running, workers: map[string]*installation.Process{}}
	for _, shard := range running.Shards {
		stack.startWorker(t, shard.Name)
	}
	return stack
}

func (s *stack) startWorker(t *testing.T, shard string, flags ...string) {
	t.Helper()
	worker, err := s.StartWorker(t.Context(), shard, flags...)
	require.NoError(t, err)
	s.workers[shard] = worker
}

// begin starts a move through Temporal alone, as any client may. It may take its time, however busy the machine is.
func (s *stack) begin(t *testing.T, input workflows.Input) client.WorkflowRun {
	t.Helper()
	return s.beginAs(t, t.Name(), input)
}

func (s *stack) beginAs(t *testing.T, name string, input workflows.Input) client.WorkflowRun {
	t.Helper()
	input.MaxTimeAway = cmp.Or(input.MaxTimeAway, workflows.Duration(moveDeadline))
	run, err := s.temporal(t).ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
		ID: workflows.WorkflowID(name), TaskQueue: workflows.TaskQueue,
	}, workflows.MigrateLogicalClusterName, input)
	require.NoError(t, err)
	return run
}

func (s *stack) temporal(t *testing.T) client.Client {
	t.Helper()
	temporal, err := s.Temporal(t.Context())
	require.NoError(t, err)
	t.Cleanup(temporal.Close)
	return temporal
}

// move moves the consumer and gives the result of a completed move.
func (s *stack) move(t *testing.T, destination string) workflows.Result {
	t.Helper()
	return finish(t, s.begin(t, workflows.Input{LogicalCluster: consumer, DestinationShard: destination}))
}

// finish waits for a move and expects it to be completed.
func finish(t *testing.T, run client.WorkflowRun) workflows.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), moveDeadline)
	defer cancel()
	var result workflows.Result
	require.NoError(t, run.Get(ctx, &result))
	require.Equal(t, workflows.Completed, result.Phase)
	return result
}

// awaitStatus queries a move until its status is as wanted.
func (s *stack) awaitStatus(t *testing.T, run client.WorkflowRun, wanted func(workflows.Status) bool) workflows.Status {
	t.Helper()
	temporal := s.temporal(t)
	var status workflows.Status
	require.Eventually(t, func() bool {
		answer, err := temporal.QueryWorkflow(t.Context(), run.GetID(), run.GetRunID(), workflows.StatusQuery)
		return err == nil && answer.Get(&status) == nil && wanted(status)
	}, moveDeadline, pollEvery)
	return status
}

// export reads the whole etcd of a shard.
func (s *stack) export(t *testing.T, shardName string) installation.Export {
	t.Helper()
	shard, err := s.Shard(shardName)
	require.NoError(t, err)
	export, err := shard.Export(t.Context())
	require.NoError(t, err)
	return export
}

func (s *stack) startPoller(t *testing.T) *installation.Poller {
	t.Helper()
	poller, err := s.StartPoller(t.Context(), consumer)
	require.NoError(t, err)
	return poller
}
