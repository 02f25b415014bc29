package main

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.temporal.io/sdk/client"

	"github.com/kcp-migrate/kcp-migrate/test/faults/point"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// A second tenant of the shard is fenced once the first one's move has found that kcp's informers are connected again, and
// before it deletes what the origin holds: they would never notice (Trap 6 of docs/kcp-findings.md).
func TestMove_WhileAnotherLeavesTheShard_DeletesOnlyWhatInformersSee(t *testing.T) {
	for name, test := range map[string]struct {
		bug    point.Bug
		unseen bool
	}{
		"sound":                   {point.NoBug, false},
		"without asking for cuts": {point.DeletesUnseen, true},
	} {
		t.Run(name, func(t *testing.T) {
			bench := startTestBenchWith(t, test.bug)
			first, second := bench.makeTenant(t, "first"), bench.makeTenant(t, "second")
			cluster := bench.clusterOf(t, first)
			leg := bench.legOf(t, cluster)
			began, err := bench.revision(t.Context(), leg.origin)
			require.NoError(t, err)
			var other client.WorkflowRun

			outcome := bench.meddle(t, schedule{tenant: first, blows: []blow{
				meddling("DeleteOriginEntries", Origin, point.Before, func(ctx context.Context) (err error) {
					other, err = bench.startAndAwaitCut(ctx, t, second, leg)
					return err
				}),
			}})

			require.Equal(t, workflows.Completed, outcome.result.Phase)
			require.Len(t, outcome.hits, 1)
			var result workflows.Result
			require.NoError(t, other.Get(t.Context(), &result))
			require.Equal(t, test.unseen, bench.deletedUnseen(t, leg.origin, began, cluster))
			bench.requireNothingOf(t, cluster, leg.origin)
			bench.requireNoClaims(t)
		})
	}
}

const (
	cutPrefix = "/kcp-migrate/cut/"
	// signPrefix is of what a move shows the shard's informers to see whether they are back.
	signPrefix = "/registry/rbac.authorization.k8s.io/clusterrolebindings/system:shard/kcp-migrate:"
)

// startAndAwaitCut returns once the other tenant's fence has been asked for.
func (b *bench) startAndAwaitCut(ctx context.Context, t *testing.T, tenant Tenant, leg leg) (client.WorkflowRun, error) {
	cuts := b.clients[leg.origin].Watch(ctx, cutPrefix, clientv3.WithPrefix())
	run, err := b.temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: t.Name(), TaskQueue: workflows.TaskQueue},
		workflows.MigrateLogicalClusterName, workflows.Input{LogicalCluster: string(tenant), DestinationShard: leg.destination})
	if err != nil {
		return nil, err
	}
	if response := <-cuts; len(response.Events) == 0 {
		return nil, errors.Join(errors.New("no cut was noted"), response.Err(), ctx.Err())
	}
	return run, nil
}

// deletedUnseen reports whether an entry of the logical cluster was deleted after a cut and before its move had looked whether
// the informers were back. It reads etcd's history.
func (b *bench) deletedUnseen(t *testing.T, shard string, began int64, cluster string) bool {
	t.Helper()
	end, err := b.revision(t.Context(), shard)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	family := []byte("/registry/core/configmaps/" + cluster + "/")
	seeing, deletions := false, 0
	for response := range b.clients[shard].Watch(ctx, "/", clientv3.WithPrefix(), clientv3.WithRev(began), clientv3.WithProgressNotify()) {
		require.NoError(t, response.Err())
		for _, event := range response.Events {
			key := event.Kv.Key
			switch {
			case bytes.HasPrefix(key, []byte(cutPrefix)):
				seeing = false
			case string(key) == signPrefix+cluster && event.Type == mvccpb.PUT:
				seeing = true
			case bytes.HasPrefix(key, family) && event.Type == mvccpb.DELETE:
				if !seeing {
					return true
				}
				deletions++
			}
			if event.Kv.ModRevision >= end {
				require.Positive(t, deletions)
				return false
			}
		}
	}
	require.NoError(t, t.Context().Err())
	return false
}
