package frontdoor

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/simshard"
	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/simshard/follow"
)

const (
	dialTimeout       = 5 * time.Second
	readHeaderTimeout = 10 * time.Second
	// idleConnections is what one busy tenant's clients keep open to an API server.
	idleConnections = 64
)

// Config says what stands behind a front door.
type Config struct {
	// Shards gives the URLs of each shard's API servers, known late.
	Shards func() map[string][]string
	// Etcds gives the endpoints of each shard's etcd, watched for LogicalClusters and Workspaces.
	Etcds map[string][]string
	// TLS is the server's configuration.
	TLS *tls.Config
	// ClientCA is what the shards' certificates are checked with.
	ClientCA *x509.CertPool
	// AdminToken is the one bearer token that is let in, and is presented to the shards.
	AdminToken string
	// Address to listen on; 127.0.0.1:0 when empty.
	Address string
}

// FrontDoor is a running front door.
type FrontDoor struct {
	config Config
	index  *index
	url    string
	server *http.Server
	proxy  *httputil.ReverseProxy
	// turn makes requests go round a shard's API servers.
	turn    atomic.Uint64
	cancel  context.CancelFunc
	work    sync.WaitGroup
	clients []*clientv3.Client
}

// Start serves the front door and returns once it listens and knows what lives where.
// It lives until Stop; ctx bounds the start alone.
func Start(ctx context.Context, config Config) (*FrontDoor, error) {
	lifetime, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &FrontDoor{config: config, index: newIndex(), cancel: cancel}
	if err := f.start(ctx, lifetime); err != nil {
		f.Stop()
		return nil, fmt.Errorf("start front door: %w", err)
	}
	return f, nil
}

func (f *FrontDoor) start(ctx, lifetime context.Context) error {
	if err := f.learn(ctx, lifetime); err != nil {
		return err
	}
	address := f.config.Address
	if address == "" {
		address = "127.0.0.1:0"
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	f.url = "https://" + listener.Addr().String()
	f.proxy = &httputil.ReverseProxy{
		Rewrite:       f.rewrite,
		FlushInterval: -1, // watches must not wait for a buffer to fill
		Transport: &http.Transport{
			TLSClientConfig:     &tls.Config{RootCAs: f.config.ClientCA, MinVersion: tls.VersionTLS12},
			MaxIdleConnsPerHost: idleConnections,
		},
	}
	f.server = &http.Server{Handler: f, ReadHeaderTimeout: readHeaderTimeout, TLSConfig: f.config.TLS.Clone()}
	f.work.Go(func() { _ = f.server.ServeTLS(listener, "", "") }) // ends with Stop
	return nil
}

// learn follows every shard's LogicalClusters and Workspaces, and waits for the first complete lists.
func (f *FrontDoor) learn(ctx, lifetime context.Context) error {
	var lists sync.WaitGroup
	for shard, endpoints := range f.config.Etcds {
		client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: dialTimeout, Context: lifetime, Logger: zap.NewNop()})
		if err != nil {
			return fmt.Errorf("dial etcd of shard %s: %w", shard, err)
		}
		f.clients = append(f.clients, client)
		lists.Add(2)
		clusters := &clusterInformer{index: f.index, shard: shard, ready: sync.OnceFunc(lists.Done)}
		children := &workspaceInformer{index: f.index, shard: shard, ready: sync.OnceFunc(lists.Done)}
		f.work.Go(func() { follow.New(client, logicalClusters, clusters).Run(lifetime) })
		f.work.Go(func() { follow.New(client, workspaces, children).Run(lifetime) })
	}
	complete := make(chan struct{})
	go func() {
		lists.Wait()
		close(complete)
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-complete:
		return nil
	}
}

// URL is the address of the front door.
func (f *FrontDoor) URL() string { return f.url }

// Stop ends the front door and waits for it.
func (f *FrontDoor) Stop() {
	f.cancel()
	if f.server != nil {
		_ = f.server.Close() // its listener is all that can fail to close
	}
	f.work.Wait()
	for _, client := range f.clients {
		_ = client.Close() // its context has ended already, and it says so
	}
}

// ServeHTTP lets the administrator through to the shard of what was asked for.
func (f *FrontDoor) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	switch request.URL.Path {
	case "/readyz", "/livez", "/healthz":
		_, _ = writer.Write([]byte("ok")) // a client that went away needs no answer
		return
	}
	token := strings.TrimPrefix(request.Header.Get("Authorization"), "Bearer ")
	if subtle.ConstantTimeCompare([]byte(token), []byte(f.config.AdminToken)) != 1 {
		refuse(writer, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")
		return
	}
	path, found := strings.CutPrefix(request.URL.Path, "/clusters/")
	if !found {
		http.NotFound(writer, request)
		return
	}
	name, trail, _ := strings.Cut(path, "/")
	cluster, shard, found := f.index.lookup(name)
	urls := f.config.Shards()[shard]
	if !found || len(urls) == 0 {
		refuse(writer, http.StatusForbidden, metav1.StatusReasonForbidden,
			fmt.Sprintf("forbidden: User \"\" cannot get path %q: workspace access not permitted", request.URL.Path))
		return
	}
	upstream := urls[f.turn.Add(1)%uint64(len(urls))] + "/clusters/" + cluster + "/" + trail
	f.proxy.ServeHTTP(writer, request.WithContext(context.WithValue(request.Context(), upstreamKey{}, upstream)))
}

// upstreamKey is under which a request's context carries the URL to ask.
type upstreamKey struct{}

func (f *FrontDoor) rewrite(proxied *httputil.ProxyRequest) {
	upstream, isText := proxied.In.Context().Value(upstreamKey{}).(string)
	target, err := url.Parse(upstream)
	if !isText || err != nil {
		return // the request stays without a host, and fails
	}
	target.RawQuery = proxied.In.URL.RawQuery
	proxied.Out.URL = target
	proxied.Out.Host = target.Host
	proxied.Out.Header.Set("Authorization", "Bearer "+f.config.AdminToken)
	proxied.Out.Header.Set(simshard.RemoteUserHeader, "kcp-admin")
}

func refuse(writer http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Message: message, Reason: reason, Details: &metav1.StatusDetails{}, Code: int32(code), //nolint:gosec // an HTTP status code
	}
	writer.Header().Set("Content-Type", "application/json")
	writer.WriteHeader(code)
	_ = json.NewEncoder(writer).Encode(status) // a client that went away needs no answer
}
