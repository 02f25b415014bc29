package main

import (
	"context"
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kcp-migrate/kcp-migrate/test/faults/point"
)

// meddleDeadline is far above what anything here takes.
const meddleDeadline = time.Minute

var atLength = flag.Bool("at-length", false, "play what waits for timeouts, too: minutes")

func skipUnlessAtLength(t *testing.T) {
	t.Helper()
	if !*atLength {
		t.Skip("it takes long; make meddlers plays it")
	}
}

// meddling has something done while a move waits at a moment of an activity.
func meddling(activity string, role Role, moment point.Moment, do func(context.Context) error) blow {
	return blow{step: activity, place: place{activity: activity, role: role}, moment: moment, fault: Meddle, meddle: do}
}

// meddle plays a schedule to its end, without the clients and checks of play: what is to come of it each test knows.
func (b *bench) meddle(t *testing.T, schedule schedule) *outcome {
	t.Helper()
	return b.follow(t, b.conduct(schedule, b.legOf(t, b.clusterOf(t, schedule.tenant))))
}

func (b *bench) follow(t *testing.T, conductor *conductor) *outcome {
	t.Helper()
	schedule, leg := conductor.schedule, conductor.leg
	require.NoError(t, b.prepareRevision(t.Context(), schedule, leg))
	outcome := &outcome{schedule: schedule, leg: leg}
	require.NoError(t, conductor.move(t.Context(), outcome))
	require.Empty(t, outcome.violations)
	require.NoError(t, b.awaitReady(t.Context()))
	require.NoError(t, b.noteEmptied(t.Context(), outcome))
	return outcome
}

func (b *bench) legOf(t *testing.T, cluster string) leg {
	t.Helper()
	leg, err := b.locate(t.Context(), cluster)
	require.NoError(t, err)
	return leg
}

// clusterOf reads a workspace's logical cluster.
func (b *bench) clusterOf(t *testing.T, tenant Tenant) string {
	t.Helper()
	if cluster, known := tenants[tenant]; known {
		return cluster
	}
	_, name, _ := strings.Cut(string(tenant), ":")
	found, err := b.workspaces(t).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	cluster, _, err := unstructured.NestedString(found.Object, "spec", "cluster")
	require.NoError(t, err)
	return cluster
}

func (b *bench) workspaces(t *testing.T) dynamic.ResourceInterface {
	t.Helper()
	workspaces, err := b.Workspaces()
	require.NoError(t, err)
	return workspaces
}

// makeTenant makes a workspace in root, with something in it.
func (b *bench) makeTenant(t *testing.T, name string) Tenant {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), meddleDeadline)
	defer cancel()
	tenant := Tenant("root:" + name)
	require.NoError(t, b.CreateWorkspace(ctx, string(tenant), 1))
	return tenant
}

// values is every key of kcp's in a shard's etcd.
func (b *bench) values(t *testing.T, shard string) map[string]string {
	t.Helper()
	answer, err := b.clients[shard].Get(t.Context(), "/registry/", clientv3.WithPrefix())
	require.NoError(t, err)
	found := map[string]string{}
	for _, kv := range answer.Kvs {
		found[string(kv.Key)] = string(kv.Value)
	}
	return found
}
