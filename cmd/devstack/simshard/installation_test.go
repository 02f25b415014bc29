package simshard

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/certificates"
	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/etcdserver"
	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/fixtures"
)

const (
	adminToken = "admin"

	consumer  = "256hdo017n2m0br9"
	neighbour = "2ei2q8rs6um1o3uc"
	provider  = "19t7u0s93xoks0di"
	child     = "1sht4x3krp09o2j5"

	// patience is far above what anything takes: it only tells what never happens.
	patience = time.Minute
	interval = 5 * time.Millisecond
)

// installation is two simulated shards over etcds filled from the fixtures.
type installation struct {
	t      testing.TB
	tls    *tls.Config
	etcds  map[string]*clientv3.Client
	shards map[string]*Shard

	mutex sync.Mutex
	urls  map[string]string
}

// start brings up the root shard and shard-1 with so many API servers each.
func start(t testing.TB, apiServers int) *installation {
	t.Helper()
	authority, err := certificates.NewAuthority("test")
	require.NoError(t, err)
	pair, err := authority.Issue(certificates.Subject{Name: "test", Hosts: []string{"127.0.0.1"}})
	require.NoError(t, err)
	serving, err := pair.ServerTLS()
	require.NoError(t, err)
	serving.RootCAs = authority.Pool()
	i := &installation{t: t, tls: serving, etcds: map[string]*clientv3.Client{}, shards: map[string]*Shard{}, urls: map[string]string{}}
	for _, name := range fixtures.Shards {
		i.startShard(name, apiServers)
	}
	return i
}

func (i *installation) startShard(name string, apiServers int) {
	t := i.t
	folder := t.TempDir()
	etcd, err := etcdserver.Start(t.Context(), etcdserver.Config{Name: name, Folder: folder, LogFile: filepath.Join(folder, "log"), Members: 1})
	require.NoError(t, err)
	t.Cleanup(etcd.Stop)
	client, err := etcd.NewClient(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	require.NoError(t, fixtures.Load(t.Context(), client, name))
	shard, err := Start(t.Context(), Config{
		Name: name, EtcdEndpoints: etcd.Endpoints(), APIServers: apiServers, TLS: i.tls, AdminToken: adminToken,
		ExternalURL: func() string { return "https://127.0.0.1:6443" }, Peers: func() []Peer { return i.peers(name) },
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	require.NoError(t, err)
	t.Cleanup(shard.Stop)
	i.mutex.Lock()
	defer i.mutex.Unlock()
	i.etcds[name], i.shards[name], i.urls[name] = client, shard, shard.URLs()[0]
}

func (i *installation) peers(of string) []Peer {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	var peers []Peer
	for name, url := range i.urls {
		if name != of {
			peers = append(peers, Peer{Name: name, URL: url})
		}
	}
	return peers
}

// server is one API server of a shard, as its clients see it.
type server struct {
	t    testing.TB
	tls  *tls.Config
	url  string
	etcd *clientv3.Client
}

func (i *installation) server(shard string, number int) server {
	return server{t: i.t, tls: i.tls, url: i.shards[shard].URLs()[number], etcd: i.etcds[shard]}
}

// on is the server for a subtest.
func (s server) on(t *testing.T) server {
	s.t = t
	return s
}

func (s server) config(cluster string) *rest.Config {
	return &rest.Config{Host: s.url + "/clusters/" + cluster, BearerToken: adminToken, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: -1}
}

func (s server) dynamic(cluster string) dynamic.Interface {
	client, err := dynamic.NewForConfig(s.config(cluster))
	require.NoError(s.t, err)
	return client
}

func (s server) typed(cluster string) kubernetes.Interface {
	client, err := kubernetes.NewForConfig(s.config(cluster))
	require.NoError(s.t, err)
	return client
}

// open sends a GET and leaves the answer's body to the caller.
func (s server) open(path string) *http.Response {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.tls.RootCAs}, DisableKeepAlives: true}} //nolint:gosec // the default minimum will do
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+path, nil)
	require.NoError(s.t, err)
	request.Header.Set("Authorization", "Bearer "+adminToken)
	response, err := client.Do(request)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

// code is the status code of a GET; body what came with it.
func (s server) get(path string) (code int, body string) {
	response := s.open(path)
	content, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	require.NoError(s.t, response.Body.Close())
	return response.StatusCode, string(content)
}

func (s server) code(path string) int {
	code, _ := s.get(path)
	return code
}

// eventually polls until the condition holds.
func (s server) eventually(condition func() bool, what string) {
	s.t.Helper()
	poll := time.NewTicker(interval)
	defer poll.Stop()
	for deadline := time.Now().Add(patience); !condition(); <-poll.C {
		require.True(s.t, time.Now().Before(deadline), what)
	}
}

// stays polls and requires the condition to hold for so long.
func (s server) stays(condition func() bool, duration time.Duration, what string) {
	s.t.Helper()
	poll := time.NewTicker(10 * interval)
	defer poll.Stop()
	for end := time.Now().Add(duration); time.Now().Before(end); <-poll.C {
		require.True(s.t, condition(), what)
	}
}

const (
	configMaps  = "/api/v1/namespaces/default/configmaps"
	allClusters = "/clusters/*/api/v1/namespaces?limit=1"
)

func in(cluster, path string) string { return "/clusters/" + cluster + path }

// watch reads the events of a watch until it ends.
func (s server) watch(path string) (events <-chan watchEvent, ended <-chan time.Time) {
	response := s.open(path)
	require.Equal(s.t, http.StatusOK, response.StatusCode)
	received, over := make(chan watchEvent, 1000), make(chan time.Time, 1)
	go func() {
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 4<<20)
		for lines.Scan() {
			var event watchEvent
			if json.Unmarshal(lines.Bytes(), &event) == nil {
				received <- event
			}
		}
		over <- time.Now()
		close(received)
	}()
	return received, over
}

type watchEvent struct {
	Type   string                    `json:"type"`
	Object unstructured.Unstructured `json:"object"`
}

// key is where a LogicalCluster stands in etcd.
func clusterKey(cluster string) string {
	return "/registry/core.kcp.io/logicalclusters/customresources/" + cluster + "/cluster"
}

// logicalCluster reads the object in etcd; nil when there is none.
func (s server) logicalCluster(cluster string) *unstructured.Unstructured {
	answer, err := s.etcd.Get(s.t.Context(), clusterKey(cluster))
	require.NoError(s.t, err)
	if len(answer.Kvs) == 0 {
		return nil
	}
	read, err := decodeJSON(answer.Kvs[0].Value)
	require.NoError(s.t, err)
	return read
}

// write puts a LogicalCluster into etcd, as a mover does.
func (s server) write(cluster string, object *unstructured.Unstructured) {
	value, err := object.MarshalJSON()
	require.NoError(s.t, err)
	_, err = s.etcd.Put(s.t.Context(), clusterKey(cluster), string(value))
	require.NoError(s.t, err)
}

func (s server) awaitPhase(cluster, phase string) {
	s.t.Helper()
	s.eventually(func() bool {
		object := s.logicalCluster(cluster)
		return object != nil && phaseOf(object) == phase && object.GetLabels()[phaseLabel] == phase
	}, fmt.Sprintf("phase %s of %s", phase, cluster))
}

// fence annotates the LogicalCluster and waits for the acknowledgement.
func (s server) fence(cluster string) {
	s.t.Helper()
	s.annotate(cluster)
	s.awaitPhase(cluster, phaseInactive)
}

func (s server) annotate(cluster string) {
	object := s.logicalCluster(cluster)
	object.SetAnnotations(withAnnotation(object.GetAnnotations(), inactiveAnnotation, "true"))
	s.write(cluster, object)
}

// lift removes the annotation and waits for Ready.
func (s server) lift(cluster string) {
	s.t.Helper()
	object := s.logicalCluster(cluster)
	annotations := object.GetAnnotations()
	delete(annotations, inactiveAnnotation)
	object.SetAnnotations(annotations)
	s.write(cluster, object)
	s.awaitPhase(cluster, phaseReady)
}

// nudge writes the object once more with phase Inactive and without the annotation (traps 2 and 3).
func nudged(object *unstructured.Unstructured) *unstructured.Unstructured {
	object = object.DeepCopy()
	annotations := object.GetAnnotations()
	delete(annotations, inactiveAnnotation)
	object.SetAnnotations(annotations)
	object.SetLabels(withAnnotation(object.GetLabels(), phaseLabel, phaseInactive))
	object.Object["status"].(map[string]any)["phase"] = phaseInactive
	return object
}

// export is every key and value of a shard's etcd.
func (s server) export() map[string]string {
	answer, err := s.etcd.Get(s.t.Context(), "/registry/", clientv3.WithPrefix())
	require.NoError(s.t, err)
	all := make(map[string]string, len(answer.Kvs))
	for _, kv := range answer.Kvs {
		all[string(kv.Key)] = string(kv.Value)
	}
	return all
}

func (s server) revision() int64 {
	answer, err := s.etcd.Get(s.t.Context(), "none")
	require.NoError(s.t, err)
	return answer.Header.Revision
}

func revisionText(revision int64) string { return strconv.FormatInt(revision, 10) }
