package kcp

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const adminToken = "admin-token"

// fakeServer is one API server or front-proxy. It answers by path, and 404 by default.
type fakeServer struct {
	*httptest.Server
	mutex   sync.Mutex
	answers map[string]http.HandlerFunc
	asked   []*http.Request
}

func startServer(t *testing.T) *fakeServer {
	t.Helper()
	fake := &fakeServer{answers: map[string]http.HandlerFunc{}}
	fake.Server = httptest.NewUnstartedServer(http.HandlerFunc(fake.serve))
	fake.EnableHTTP2 = true
	fake.StartTLS()
	t.Cleanup(fake.Close)
	return fake
}

func (f *fakeServer) serve(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+adminToken {
		refuse(http.StatusUnauthorized, "Unauthorized", "who are you")(w, r)
		return
	}
	f.mutex.Lock()
	f.asked = append(f.asked, r.Clone(r.Context()))
	answer, found := f.answers[r.URL.Path]
	f.mutex.Unlock()
	if !found {
		answer = refuse(http.StatusNotFound, "NotFound", "there is no such thing")
	}
	answer(w, r)
}

// on sets the answer at a path.
func (f *fakeServer) on(path string, answer http.HandlerFunc) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.answers[path] = answer
}

// requests are those that came to a path.
func (f *fakeServer) requests(path string) []*http.Request {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	var found []*http.Request
	for _, request := range f.asked {
		if request.URL.Path == path {
			found = append(found, request)
		}
	}
	return found
}

func reply(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(body))
	}
}

// pages answers a list with one body after the other.
func pages(bodies ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var page int
		if token := r.URL.Query().Get("continue"); token != "" {
			if _, err := fmt.Sscanf(token, "page-%d", &page); err != nil {
				panic(err)
			}
		}
		reply(bodies[page])(w, r)
	}
}

func refuse(code int, reason, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(map[string]any{
			"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message,
		})
	}
}

var (
	forbidden = refuse(http.StatusForbidden, "Forbidden", `forbidden: User "nobody" cannot get path "/": access denied`)
	// fenced, unrouted and cancelled are what a real kcp answers, to the letter.
	fenced    = refuse(http.StatusForbidden, "Forbidden", `logicalclusters.core.kcp.io "c1" is forbidden: logical cluster is marked inactive`)
	unrouted  = refuse(http.StatusForbidden, "Forbidden", `forbidden: User "" cannot get path "/clusters/nope": workspace access not permitted`)
	cancelled = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusGatewayTimeout)
		_, _ = w.Write([]byte(`{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the allotted timeout","reason":"Timeout","details":{},"code":504}`))
	}
	unavailable = refuse(http.StatusServiceUnavailable, "ServiceUnavailable", "shutting down")
	empty       = reply(`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7"},"items":[]}`)
)

// hang holds a request until the client gives up.
func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// kubeconfigFor writes a kubeconfig that names one logical cluster of the server, as kcp's do.
func kubeconfigFor(t *testing.T, server *fakeServer) string {
	t.Helper()
	ca := filepath.Join(t.TempDir(), "ca.crt")
	block := &pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(block), 0o600))
	config := clientcmdapi.NewConfig()
	config.Clusters["root"] = &clientcmdapi.Cluster{Server: server.URL + "/clusters/root", CertificateAuthority: ca}
	config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{Token: adminToken}
	config.AuthInfos["nobody"] = &clientcmdapi.AuthInfo{Token: "expired"}
	config.Contexts["root"] = &clientcmdapi.Context{Cluster: "root", AuthInfo: "admin"}
	config.Contexts["weak"] = &clientcmdapi.Context{Cluster: "root", AuthInfo: "nobody"}
	config.CurrentContext = "root"
	path := filepath.Join(t.TempDir(), "admin.kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, path))
	return path
}

// newShard gives shard-1 with these API servers.
func newShard(t *testing.T, servers ...*fakeServer) *Shard {
	t.Helper()
	shard, err := NewShard(ShardConfig{Name: "shard-1", Kubeconfig: kubeconfigFor(t, servers[0]), Servers: urls(servers)})
	require.NoError(t, err)
	return shard
}

// newDirectory gives a Directory with these front-proxies.
func newDirectory(t *testing.T, servers ...*fakeServer) *Directory {
	t.Helper()
	directory, err := NewDirectory(DirectoryConfig{Kubeconfig: kubeconfigFor(t, servers[0]), Servers: urls(servers)})
	require.NoError(t, err)
	return directory
}

func urls(servers []*fakeServer) []string {
	var all []string
	for _, server := range servers {
		all = append(all, server.URL)
	}
	return all
}
