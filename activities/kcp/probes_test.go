package kcp

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

const (
	clusterNamespaces  = "/clusters/c1/api/v1/namespaces"
	wildcardNamespaces = "/clusters/*/api/v1/namespaces"
)

func TestProbeServing_WhenServersDiffer_TellsEachApart(t *testing.T) {
	good, stale, blind, closed := startServer(t), startServer(t), startServer(t), startServer(t)
	for server, answers := range map[*fakeServer][2]http.HandlerFunc{
		good:   {empty, empty},
		stale:  {cancelled, empty},
		blind:  {empty, cancelled},
		closed: {fenced, unavailable},
	} {
		server.on(clusterNamespaces, answers[0])
		server.on(wildcardNamespaces, answers[1])
	}
	require.Equal(t, []activities.Probe{
		{Server: good.URL, OK: true},
		{Server: stale.URL, Detail: "logical cluster: 504 Timeout"},
		{Server: blind.URL, Detail: "wildcard list: 504 Timeout"},
		{Server: closed.URL, Detail: "logical cluster: 403 inactive; wildcard list: 503 ServiceUnavailable"},
	}, newShard(t, good, stale, blind, closed).ProbeServing(t.Context(), "c1"))
}

func TestProbeServing_AsksForNoValues(t *testing.T) {
	server := startServer(t)
	newShard(t, server).ProbeServing(t.Context(), "c1")
	for _, path := range []string{clusterNamespaces, wildcardNamespaces} {
		requests := server.requests(path)
		require.Len(t, requests, 1)
		require.Equal(t, "1", requests[0].URL.Query().Get("limit"))
		require.Contains(t, requests[0].Header.Get("Accept"), "as=PartialObjectMetadataList")
	}
}

func TestProbe_WhenAServerHangs_AnswersInTimeForAll(t *testing.T) {
	t.Parallel()
	good, hung := startServer(t), startServer(t)
	good.on(wildcardNamespaces, empty)
	hung.on(wildcardNamespaces, hang)
	probes := newShard(t, good, hung).ProbeWildcard(t.Context())
	require.True(t, probes[0].OK)
	require.False(t, probes[1].OK)
	require.Equal(t, "wildcard list: context deadline exceeded", probes[1].Detail)
}

func TestProbe_WhenAServerIsGone_SaysWhy(t *testing.T) {
	server := startServer(t)
	shard := newShard(t, server)
	server.Close()
	probes := shard.ProbeWildcard(t.Context())
	require.False(t, probes[0].OK)
	require.Contains(t, probes[0].Detail, "connection refused")
}

func TestProbeFenced_TakesOnlyTheFencesOwn403(t *testing.T) {
	standing, open, weak := startServer(t), startServer(t), startServer(t)
	standing.on(clusterNamespaces, fenced)
	open.on(clusterNamespaces, empty)
	weak.on(clusterNamespaces, forbidden)
	require.Equal(t, []activities.Probe{
		{Server: standing.URL, OK: true},
		{Server: open.URL, Detail: "logical cluster: 200"},
		{Server: weak.URL, Detail: "logical cluster: 403 Forbidden"},
	}, newShard(t, standing, open, weak).ProbeFenced(t.Context(), "c1"))
}

func TestProbeResources_FindsTheVersionThatIsServed(t *testing.T) {
	server := startServer(t)
	server.on("/clusters/c1/apis/wild.dev", reply(`{"name":"wild.dev","versions":[{"version":"v2"},{"version":"v1"}]}`))
	server.on("/clusters/c1/apis/wild.dev/v1/cowboys", empty)
	server.on("/clusters/c1/api/v1/things", empty)
	resources := []activities.BoundResource{{Group: "wild.dev", Resource: "cowboys"}, {Resource: "things"}}
	require.Equal(t, []activities.Probe{{Server: server.URL, OK: true}},
		newShard(t, server).ProbeResources(t.Context(), "c1", resources))
}

func TestProbeResources_WhenSomeAreNotServed_NamesThem(t *testing.T) {
	server := startServer(t)
	server.on("/clusters/c1/apis/wild.dev", reply(`{"name":"wild.dev","versions":[{"version":"v1"}]}`))
	server.on("/clusters/c1/apis/wild.dev/v1/cowboys", empty)
	server.on("/clusters/c1/apis/wild.dev/v1/horses", cancelled)
	resources := []activities.BoundResource{
		{Group: "wild.dev", Resource: "cowboys"}, {Group: "wild.dev", Resource: "sheriffs"},
		{Group: "wild.dev", Resource: "horses"}, {Group: "gone.dev", Resource: "ghosts"},
	}
	require.Equal(t, []activities.Probe{{
		Server: server.URL,
		Detail: "sheriffs.wild.dev: 404 NotFound; horses.wild.dev: 504 Timeout; ghosts.gone.dev: 404 NotFound",
	}}, newShard(t, server).ProbeResources(t.Context(), "c1", resources))
}

func TestProbeResources_WithManyFailures_TellsTheFirst(t *testing.T) {
	server := startServer(t)
	resources := make([]activities.BoundResource, failuresTold+3)
	for i := range resources {
		resources[i] = activities.BoundResource{Group: "gone.dev", Resource: "ghosts"}
	}
	probes := newShard(t, server).ProbeResources(t.Context(), "c1", resources)
	require.Contains(t, probes[0].Detail, "and 3 more")
}

// kcp breaks an answer off where the context of the logical cluster was cancelled after it had begun: a nudge mends that.
func TestProbe_WhoseAnswerIsBrokenOff_WasAnswered(t *testing.T) {
	server := startServer(t)
	server.on(clusterNamespaces, abruptly)
	probe := newShard(t, server).ProbeCluster(t.Context(), "c1")[0]
	require.False(t, probe.OK)
	require.False(t, probe.Unreachable)
	require.Contains(t, probe.Detail, "stream error")
}
