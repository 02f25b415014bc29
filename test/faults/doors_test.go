package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/kcp-migrate/kcp-migrate/test/faults/point"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// The workers know two front doors. One is restarted while both shards hold the LogicalCluster, and hears of the origin's last.
func TestMove_WhoseFrontDoorIsRestartedWhileBothShardsHaveTheTenant_EndsOnceBothLeadToTheDestination(t *testing.T) {
	bench := startTestBench(t)
	cluster := tenants[Neighbour]
	origin := bench.legOf(t, cluster).origin
	var doors []string
	outcome := bench.meddle(t, schedule{tenant: Neighbour, blows: []blow{
		meddling("DropOriginLogicalCluster", Origin, point.Before, func(ctx context.Context) error {
			return errors.Join(bench.restartFrontDoor(ctx), bench.touch(ctx, origin, cluster))
		}),
		meddling("Release", Origin, point.Before, func(ctx context.Context) error {
			for _, door := range []string{bench.FrontProxies[0], bench.frontDoorURL} {
				doors = append(doors, bench.leadsTo(ctx, door, cluster))
			}
			return nil
		}),
	}})

	require.Equal(t, workflows.Completed, outcome.result.Phase)
	require.Len(t, outcome.hits, 2)
	require.Equal(t, []string{outcome.leg.destination, outcome.leg.destination}, doors, "at the end of the move")
}

func TestMove_WhileAFrontDoorIsDown_WaitsForIt(t *testing.T) {
	bench := startTestBench(t)
	var conductor *conductor
	waited := false
	down := func(ctx context.Context) error {
		conductor.healing.Go(func() {
			err := bench.awaitWaiting(ctx, conductor.id, bench.frontDoorURL)
			waited = err == nil
			bench.frontDoor.release()
			conductor.note("", err)
		})
		return bench.frontDoor.kill()
	}
	conductor = bench.conduct(schedule{tenant: Neighbour, blows: []blow{meddling("AwaitRoute", Either, point.Before, down)}},
		bench.legOf(t, tenants[Neighbour]))

	outcome := bench.follow(t, conductor)

	require.True(t, waited)
	require.Equal(t, workflows.Completed, outcome.result.Phase)
}

// awaitWaiting waits until an activity of a workflow says that it waits for something.
func (b *bench) awaitWaiting(ctx context.Context, workflow, reason string) error {
	ctx, cancel := context.WithTimeout(ctx, endDeadline)
	defer cancel()
	return await(ctx, "an activity that waits for "+reason, func() error {
		described, err := b.temporal.DescribeWorkflow(ctx, workflow, "")
		if err != nil {
			return err
		}
		for _, pending := range described.RawResponse.GetPendingActivities() {
			for _, details := range pending.GetHeartbeatDetails().GetPayloads() {
				if strings.Contains(string(details.GetData()), reason) {
					return nil
				}
			}
		}
		return errors.New("there is none")
	})
}

func (b *bench) restartFrontDoor(ctx context.Context) error {
	if err := b.frontDoor.kill(); err != nil {
		return err
	}
	b.frontDoor.release()
	return b.awaitFrontDoor(ctx)
}

// touch writes a shard's LogicalCluster as it is, as kcp's controllers may: every front door leads there then.
func (b *bench) touch(ctx context.Context, shard, cluster string) error {
	key := logicalClusterKey(cluster)
	found, err := b.clients[shard].Get(ctx, key)
	if err != nil || len(found.Kvs) == 0 {
		return errors.Join(err, errors.New("it has no LogicalCluster"))
	}
	_, err = b.clients[shard].Put(ctx, key, string(found.Kvs[0].Value))
	return err
}

// leadsTo is the shard to which a front door leads, or why it does not.
func (b *bench) leadsTo(ctx context.Context, door, cluster string) string {
	config, err := b.TenantConfig(cluster)
	if err != nil {
		return err.Error()
	}
	config.Host = door + "/clusters/" + cluster
	others, err := dynamic.NewForConfig(config)
	if err != nil {
		return err.Error()
	}
	found, err := admin{dynamic: others}.logicalClusters().Get(ctx, "cluster", metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	return found.GetAnnotations()["core.kcp.io/shard"]
}

func TestMove_WhoseWorkspaceIsGoneAtTheEnd_CompletesWithAWarning(t *testing.T) {
	bench := startTestBench(t)
	tenant := bench.makeTenant(t, "orphan")
	cluster := bench.clusterOf(t, tenant)
	vanish := func(ctx context.Context) error { return bench.eraseWorkspace(ctx, "orphan") }

	outcome := bench.meddle(t, schedule{tenant: tenant, blows: []blow{meddling("AwaitOwner", Either, point.Before, vanish)}})

	require.Equal(t, workflows.Completed, outcome.result.Phase)
	require.Contains(t, strings.Join(outcome.result.Warnings, "\n"), "OwnerGone: Workspace orphan")
	require.Equal(t, "shard-1", bench.leadsTo(t.Context(), bench.frontDoorURL, cluster))
	bench.requireServed(t, cluster)
	bench.requireNothingOf(t, cluster, outcome.leg.origin)
	bench.requireNoClaims(t)
}

// eraseWorkspace takes a Workspace in root out of etcd, so that nobody deletes what belongs to it.
func (b *bench) eraseWorkspace(ctx context.Context, name string) error {
	etcd := b.clients["root"]
	found, err := etcd.Get(ctx, "/registry/tenancy.kcp.io/workspaces/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return err
	}
	for _, kv := range found.Kvs {
		if strings.HasSuffix(string(kv.Key), "/root/"+name) {
			_, err := etcd.Delete(ctx, string(kv.Key))
			return err
		}
	}
	return errors.New("there is no Workspace " + name)
}
