package frontdoor

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/certificates"
	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/etcdserver"
	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/fixtures"
)

const (
	consumer = "256hdo017n2m0br9"
	child    = "1sht4x3krp09o2j5"
)

// entrance is a front door before two shards that answer with their own name and the path they were asked for.
type entrance struct {
	t     *testing.T
	url   string
	etcds map[string]*clientv3.Client
	http  *http.Client
}

func open(t *testing.T) *entrance {
	authority, err := certificates.NewAuthority("test")
	require.NoError(t, err)
	pair, err := authority.Issue(certificates.Subject{Name: "test", Hosts: []string{"127.0.0.1"}})
	require.NoError(t, err)
	serving, err := pair.ServerTLS()
	require.NoError(t, err)
	e := &entrance{t: t, etcds: map[string]*clientv3.Client{}, http: &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: authority.Pool(), MinVersion: tls.VersionTLS12}, DisableKeepAlives: true,
	}}}
	endpoints, urls := map[string][]string{}, map[string][]string{}
	for _, shard := range fixtures.Shards {
		endpoints[shard] = e.startEtcd(shard)
		urls[shard] = []string{startUpstream(t, shard+"/0", serving), startUpstream(t, shard+"/1", serving)}
	}
	door, err := Start(t.Context(), Config{
		Shards: func() map[string][]string { return urls }, Etcds: endpoints, TLS: serving, ClientCA: authority.Pool(), AdminToken: "admin",
	})
	require.NoError(t, err)
	t.Cleanup(door.Stop)
	e.url = door.URL()
	return e
}

func (e *entrance) startEtcd(shard string) []string {
	folder := e.t.TempDir()
	etcd, err := etcdserver.Start(e.t.Context(), etcdserver.Config{Name: shard, Folder: folder, LogFile: filepath.Join(folder, "log"), Members: 1})
	require.NoError(e.t, err)
	e.t.Cleanup(etcd.Stop)
	client, err := etcd.NewClient(context.Background())
	require.NoError(e.t, err)
	e.t.Cleanup(func() { require.NoError(e.t, client.Close()) })
	require.NoError(e.t, fixtures.Load(e.t.Context(), client, shard))
	e.etcds[shard] = client
	return etcd.Endpoints()
}

// startUpstream answers with its name; a path that ends in /stream is kept open after the first bytes.
func startUpstream(t *testing.T, name string, serving *tls.Config) string {
	upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if request.Header.Get("Authorization") != "Bearer admin" {
			writer.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(writer, name+" "+request.URL.RequestURI())
		if filepath.Base(request.URL.Path) == "stream" {
			writer.(http.Flusher).Flush()
			<-request.Context().Done()
		}
	}))
	upstream.TLS = serving.Clone()
	upstream.StartTLS()
	t.Cleanup(upstream.Close)
	return upstream.URL
}

func (e *entrance) request(path, token string) *http.Response {
	request, err := http.NewRequestWithContext(e.t.Context(), http.MethodGet, e.url+path, nil)
	require.NoError(e.t, err)
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := e.http.Do(request)
	require.NoError(e.t, err)
	e.t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

func (e *entrance) get(path string) (int, string) {
	response := e.request(path, "admin")
	body, err := io.ReadAll(response.Body)
	require.NoError(e.t, err)
	require.NoError(e.t, response.Body.Close())
	return response.StatusCode, string(body)
}

// shard is which one answers for a logical cluster; empty when none does.
func (e *entrance) shard(cluster string) string {
	code, body := e.get("/clusters/" + cluster + "/api")
	if code != http.StatusOK {
		return ""
	}
	return filepath.Dir(body[:len(body)-len(" /clusters/"+cluster+"/api")])
}

func (e *entrance) becomes(cluster, shard string) {
	e.t.Helper()
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(time.Minute); e.shard(cluster) != shard; <-poll.C {
		require.True(e.t, time.Now().Before(deadline), "%s does not come to live on %q", cluster, shard)
	}
}

// stays requires that for a while nothing else answers.
func (e *entrance) stays(cluster, shard string) {
	e.t.Helper()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); <-poll.C {
		require.Equal(e.t, shard, e.shard(cluster))
	}
}

func (e *entrance) touch(shard, cluster string) {
	_, err := e.etcds[shard].Put(e.t.Context(), logicalClusters+cluster+"/cluster", "{}")
	require.NoError(e.t, err)
}

func (e *entrance) forget(shard, cluster string) {
	_, err := e.etcds[shard].Delete(e.t.Context(), logicalClusters+cluster+"/cluster")
	require.NoError(e.t, err)
}

func TestFrontDoor_WhenAskedByNameOrPath_ReachesTheShardOfTheCluster(t *testing.T) {
	e := open(t)
	for path, wanted := range map[string]string{
		"/clusters/" + consumer + "/api/v1/x?a=b":   "/clusters/" + consumer + "/api/v1/x?a=b",
		"/clusters/root:consumer/api/v1/x":          "/clusters/" + consumer + "/api/v1/x",
		"/clusters/root:consumer:child/apis/g/v1/y": "/clusters/" + child + "/apis/g/v1/y",
		"/clusters/root:remote":                     "/clusters/2n4nmk6b9s8l87p2/",
	} {
		code, body := e.get(path)
		require.Equal(t, http.StatusOK, code, path)
		require.Contains(t, body, " "+wanted)
	}
}

func TestFrontDoor_WhenTheClusterIsUnknown_RefusesAsKcpDoes(t *testing.T) {
	e := open(t)
	for _, cluster := range []string{"unknowncluster", "root:nope", "*", "system:shard"} {
		code, body := e.get("/clusters/" + cluster + "/api")
		require.Equal(t, http.StatusForbidden, code, cluster)
		require.Contains(t, body, "workspace access not permitted")
	}
	require.Equal(t, http.StatusUnauthorized, e.request("/clusters/root/api", "other").StatusCode)
}

func TestFrontDoor_WhenTwoShardsHoldTheObject_FollowsTheLastWriter(t *testing.T) {
	e := open(t)
	require.Equal(t, "root", e.shard(consumer))
	e.touch("shard-1", consumer)
	e.becomes(consumer, "shard-1")
	e.forget("root", consumer)
	e.stays(consumer, "shard-1")
}

func TestFrontDoor_WhenTheLastWriterDeletes_ForgetsUntilTheOthersNextEvent(t *testing.T) {
	e := open(t)
	e.touch("shard-1", consumer)
	e.becomes(consumer, "shard-1")
	e.touch("root", consumer)
	e.becomes(consumer, "root")
	e.forget("root", consumer)
	e.becomes(consumer, "")
	e.stays(consumer, "")
	e.touch("shard-1", consumer)
	e.becomes(consumer, "shard-1")
}

func TestFrontDoor_WhenAShardStreams_PassesItOnAtOnce(t *testing.T) {
	e := open(t)
	response := e.request("/clusters/root/stream", "admin")
	first := make([]byte, len("root/"))
	_, err := io.ReadFull(response.Body, first)
	require.NoError(t, err)
	require.Equal(t, "root/", string(first))
}

func TestFrontDoor_WhenAShardHasSeveralServers_UsesThemAll(t *testing.T) {
	e := open(t)
	seen := map[string]bool{}
	for range 4 {
		_, body := e.get("/clusters/root/api")
		seen[body[:len("root/0")]] = true
	}
	require.Len(t, seen, 2)
}
