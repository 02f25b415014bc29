package kcp

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

const (
	shardsPath    = "/clusters/root/apis/core.kcp.io/v1alpha1/shards"
	consumerPath  = "/clusters/root:consumer/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
	namedPath     = "/clusters/c1/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
	workspacePath = "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces/consumer"
	consumer      = `{"metadata":{"name":"cluster","annotations":{"kcp.io/cluster":"c1","kcp.io/path":"root:consumer","core.kcp.io/shard":"shard-1"}},
		"spec":{"owner":{"apiVersion":"tenancy.kcp.io/v1alpha1","resource":"workspaces","name":"consumer","cluster":"root","uid":"u1"}}}`
)

func TestLocate_ByPathOrName_TellsWhereItIsAndWhose(t *testing.T) {
	proxy := startServer(t)
	proxy.on(consumerPath, reply(consumer))
	proxy.on(namedPath, reply(consumer))
	for _, pathOrName := range []string{"root:consumer", "c1"} {
		location, err := newDirectory(t, proxy).Locate(t.Context(), pathOrName)
		require.NoError(t, err)
		require.Equal(t, activities.Location{
			LogicalCluster: "c1", Path: "root:consumer", Shard: "shard-1",
			Owner: &activities.OwnerRef{LogicalCluster: "root", Name: "consumer", UID: "u1"},
		}, location)
	}
}

func TestLocate_WithoutOwner_HasNone(t *testing.T) {
	proxy := startServer(t)
	proxy.on(namedPath, reply(`{"metadata":{"annotations":{"kcp.io/cluster":"c1","core.kcp.io/shard":"root"}}}`))
	location, err := newDirectory(t, proxy).Locate(t.Context(), "c1")
	require.NoError(t, err)
	require.Equal(t, activities.Location{LogicalCluster: "c1", Shard: "root"}, location)
}

// kcp answers 403 for a workspace that does not exist, to a user without rights, and while a front-proxy is starting.
func TestLocate_When403_TellsMissingFromForbidden(t *testing.T) {
	proxy := startServer(t)
	proxy.on(consumerPath, unrouted)
	proxy.on(shardsPath, empty)
	_, err := newDirectory(t, proxy).Locate(t.Context(), "root:consumer")
	require.ErrorIs(t, err, activities.ErrNotFound)
	require.NotErrorIs(t, err, activities.ErrForbidden)

	proxy.on(shardsPath, forbidden)
	_, err = newDirectory(t, proxy).Locate(t.Context(), "root:consumer")
	require.ErrorIs(t, err, activities.ErrForbidden)
	require.NotErrorIs(t, err, activities.ErrNotFound)

	proxy.on(shardsPath, unavailable)
	_, err = newDirectory(t, proxy).Locate(t.Context(), "root:consumer")
	require.ErrorContains(t, err, "shutting down")
	require.NotErrorIs(t, err, activities.ErrNotFound)
	require.NotErrorIs(t, err, activities.ErrForbidden, "nobody knows yet: worth a retry")

	proxy.on(shardsPath, unrouted)
	_, err = newDirectory(t, proxy).Locate(t.Context(), "root:consumer")
	require.Error(t, err)
	require.NotErrorIs(t, err, activities.ErrNotFound, "a front-proxy that does not know root has just started")
	require.NotErrorIs(t, err, activities.ErrForbidden)
}

func TestLocate_WhenOneFrontProxyHasJustStarted_AsksTheNext(t *testing.T) {
	starting, ready := startServer(t), startServer(t)
	starting.on(consumerPath, unrouted)
	ready.on(consumerPath, reply(consumer))
	location, err := newDirectory(t, starting, ready).Locate(t.Context(), "root:consumer")
	require.NoError(t, err)
	require.Equal(t, "c1", location.LogicalCluster)
}

func TestLocate_WithWhatCannotBeAPath_DoesNotAsk(t *testing.T) {
	proxy := startServer(t)
	for _, pathOrName := range []string{"", "*", "../root", "root/consumer", "Root:Consumer", "root:"} {
		_, err := newDirectory(t, proxy).Locate(t.Context(), pathOrName)
		require.ErrorIs(t, err, activities.ErrNotFound, pathOrName)
	}
	require.Empty(t, proxy.asked)
}

func TestShards_TellWhyOneIsNotReady(t *testing.T) {
	proxy := startServer(t)
	proxy.on(shardsPath, pages(
		`{"metadata":{"continue":"page-1"},"items":[{"metadata":{"name":"root"}},
			{"metadata":{"name":"sick"},"status":{"conditions":[{"type":"Ready","status":"False","reason":"Down","message":"no etcd"}]}}]}`,
		`{"items":[{"metadata":{"name":"well"},"status":{"conditions":[{"type":"Ready","status":"True"}]}},
			{"metadata":{"name":"unknown"},"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}},
			{"metadata":{"name":"closed","annotations":{"experimental.core.kcp.io/unschedulable":""}}}]}`,
	))
	shards, err := newDirectory(t, proxy).Shards(t.Context())
	require.NoError(t, err)
	require.Equal(t, []activities.ShardInfo{
		{Name: "root"},
		{Name: "sick", NotReady: "condition Ready is False: Down: no etcd"},
		{Name: "well"},
		{Name: "unknown"},
		{Name: "closed", NotReady: "annotated experimental.core.kcp.io/unschedulable"},
	}, shards)
}

func TestOwnerShard_ReadsTheNameNotTheHash(t *testing.T) {
	proxy := startServer(t)
	proxy.on(workspacePath, reply(`{"metadata":{"name":"consumer","uid":"u1","annotations":{"core.kcp.io/shard":"shard-1","internal.tenancy.kcp.io/shard":"1pfxsevk"}}}`))
	shard, err := newDirectory(t, proxy).OwnerShard(t.Context(), activities.OwnerRef{LogicalCluster: "root", Name: "consumer", UID: "u1"})
	require.NoError(t, err)
	require.Equal(t, "shard-1", shard)
}

func TestOwnerShard_WhenTheOwnerIsGoneOrAnother_IsNotFound(t *testing.T) {
	proxy := startServer(t)
	proxy.on(workspacePath, reply(`{"metadata":{"name":"consumer","uid":"another"}}`))
	proxy.on(workspacePath+"-unrouted", unrouted)
	proxy.on(shardsPath, empty)
	for _, name := range []string{"consumer", "gone", "consumer-unrouted"} {
		_, err := newDirectory(t, proxy).OwnerShard(t.Context(), activities.OwnerRef{LogicalCluster: "root", Name: name, UID: "u1"})
		require.ErrorIs(t, err, activities.ErrNotFound)
	}
}

func TestTouchOwner_AnnotatesTheVeryWorkspace(t *testing.T) {
	proxy := startServer(t)
	proxy.on(workspacePath, reply(`{"metadata":{"name":"consumer","uid":"u1"}}`))
	directory := newDirectory(t, proxy)
	require.NoError(t, directory.TouchOwner(t.Context(), activities.OwnerRef{LogicalCluster: "root", Name: "consumer", UID: "u1"}))
	requests := proxy.requests(workspacePath)
	require.Equal(t, http.MethodPatch, requests[len(requests)-1].Method)

	err := directory.TouchOwner(t.Context(), activities.OwnerRef{LogicalCluster: "root", Name: "consumer", UID: "another"})
	require.ErrorIs(t, err, activities.ErrNotFound)
}

func TestProbeFrontProxies_WantsTheShardAndTheLogicalClusterOpen(t *testing.T) {
	right, stale, closed, lost := startServer(t), startServer(t), startServer(t), startServer(t)
	for proxy, answers := range map[*fakeServer][2]http.HandlerFunc{
		right:  {reply(consumer), empty},
		stale:  {reply(`{"metadata":{"annotations":{"core.kcp.io/shard":"root"}}}`), empty},
		closed: {reply(consumer), fenced},
		lost:   {unrouted, unrouted},
	} {
		proxy.on(namedPath, answers[0])
		proxy.on(clusterNamespaces, answers[1])
	}
	require.Equal(t, []activities.Probe{
		{Server: right.URL, OK: true},
		{Server: stale.URL, Detail: `route: shard "root", want "shard-1"`},
		{Server: closed.URL, Detail: "logical cluster: 403 inactive"},
		{Server: lost.URL, Detail: "route: 403 unknown to the front-proxy; logical cluster: 403 unknown to the front-proxy"},
	}, newDirectory(t, right, stale, closed, lost).ProbeFrontProxies(t.Context(), "c1", "shard-1"))
}
