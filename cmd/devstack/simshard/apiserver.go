package simshard

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	dialTimeout       = 5 * time.Second
	readHeaderTimeout = 10 * time.Second
)

// apiServer is one process of a shard: a listener, an etcd client, informers, contexts and a LogicalCluster controller of its own.
type apiServer struct {
	config   Config
	log      *slog.Logger
	store    *store
	contexts *contexts
	catalog  *catalog
	clusters *logicalClusters
	peers    *peers
	url      string
	// signingKeys are the public ones for ServiceAccount tokens, as /openid/v1/jwks tells them.
	signingKeys func() map[string]any
	// oldest is the revision its watch caches begin at.
	oldest int64

	listener net.Listener
	server   *http.Server
	lifetime context.Context //nolint:containedctx // the process's own
	ready    sync.WaitGroup
}

func newAPIServer(ctx, lifetime context.Context, config Config, signingKeys func() map[string]any) (*apiServer, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: config.EtcdEndpoints, DialTimeout: dialTimeout, Context: lifetime,
		Logger: zap.NewNop(), // it tells of every request whose client went away
	})
	if err != nil {
		return nil, fmt.Errorf("dial etcd: %w", err)
	}
	a := &apiServer{
		config: config, log: config.Logger.With("shard", config.Name), lifetime: lifetime, signingKeys: signingKeys,
		store: &store{client: client, layout: newLayout(config.Prefix)}, contexts: newContexts(lifetime),
	}
	if a.oldest, err = a.store.revision(ctx); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	if a.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", cmp.Or(config.Address, "127.0.0.1:0")); err != nil {
		return nil, errors.Join(fmt.Errorf("listen: %w", err), client.Close())
	}
	a.url = "https://" + a.listener.Addr().String()
	a.catalog = newCatalog(a.store.layout)
	a.peers = newPeers(a.url, config)
	a.clusters = newLogicalClusters(a)
	a.server = &http.Server{
		Handler: a, ReadHeaderTimeout: readHeaderTimeout, TLSConfig: config.TLS.Clone(),
		// Handshakes that clients break off are no news.
		ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
	a.ready.Add(2) // the catalog and the LogicalClusters
	return a, nil
}

// run serves until the process's lifetime ends.
func (a *apiServer) run() {
	var work sync.WaitGroup
	work.Go(func() { a.catalog.run(a.lifetime, a.store.client, a.contexts, a.ready.Done) })
	work.Go(func() { a.clusters.run(a.lifetime, a.ready.Done) })
	work.Go(func() {
		if err := a.server.ServeTLS(a.listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			a.log.Error("serve API", "error", err)
		}
	})
	<-a.lifetime.Done()
	if err := a.server.Close(); err != nil {
		a.log.Error("close API server", "error", err)
	}
	work.Wait()
}

func (a *apiServer) awaitReady(ctx context.Context) error {
	ready := make(chan struct{})
	go func() {
		a.ready.Wait()
		close(ready)
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-ready:
		return nil
	}
}

func (a *apiServer) close() {
	if err := a.store.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
		a.log.Error("close etcd client", "error", err)
	}
}

// ServeHTTP passes a request through kcp's filters in kcp's order (pkg/server/config.go):
// cluster, fence, context, authentication.
func (a *apiServer) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	t, err := parseTarget(request)
	if err == nil {
		err = a.resolve(&t)
	}
	if err == nil {
		err = a.clusters.admit(t)
	}
	if err != nil {
		a.finish(request, writeError(writer, err))
		return
	}
	if bound := contextOf(t); bound != "" {
		ctx, release := a.contexts.bind(request.Context(), bound)
		defer release()
		request = request.WithContext(ctx)
	}
	a.finish(request, a.answer(writer, request, t))
}

// finish notes what could not be answered; a client that went away is no news.
func (a *apiServer) finish(request *http.Request, err error) {
	if err != nil && request.Context().Err() == nil {
		a.log.Debug("answer request", "method", request.Method, "error", err)
	}
}

func (a *apiServer) answer(writer http.ResponseWriter, request *http.Request, t target) error {
	if err := a.authenticate(request, t); err != nil {
		return writeError(writer, err)
	}
	isWatch := request.Method == http.MethodGet && isTrue(request.URL.Query().Get("watch"))
	if request.Context().Err() != nil && !isWatch {
		return writeCancelled(writer)
	}
	err := a.route(writer, request, t, isWatch)
	switch {
	case err == nil:
		return nil
	case request.Context().Err() != nil:
		return writeCancelled(writer)
	default:
		return writeError(writer, err)
	}
}

func isTrue(text string) bool { return text == "true" || text == "1" }

func (a *apiServer) route(writer http.ResponseWriter, request *http.Request, t target, isWatch bool) error {
	if strings.HasPrefix(t.path, exportServices) {
		return a.serveExport(writer, request, t.path)
	}
	if !t.isResource() {
		return a.discover(writer, request, t)
	}
	if t.cluster == "" {
		return apierrors.NewInternalError(errors.New("no cluster found in the context"))
	}
	if review, is := reviews[t.groupResource()]; is && request.Method == http.MethodPost {
		return review(writer, request)
	}
	r, serves := a.catalog.lookup(t)
	if !serves {
		return notServed(request.Method)
	}
	handle := a.handler(request.Method, t, isWatch)
	if handle == nil {
		return apierrors.NewMethodNotSupported(t.groupResource(), strings.ToLower(request.Method))
	}
	return handle(writer, request, r, t)
}

type handler func(http.ResponseWriter, *http.Request, resource, target) error

// handler picks what answers a method; wildcard requests may only list and watch.
func (a *apiServer) handler(method string, t target, isWatch bool) handler {
	switch {
	case method == http.MethodGet && isWatch:
		return a.watch
	case method == http.MethodGet && t.name == "":
		return a.list
	case t.cluster == wildcard:
		return nil
	case method == http.MethodGet:
		return a.get
	case method == http.MethodPost && t.name == "":
		return a.create
	case method == http.MethodDelete && t.name == "":
		return a.removeAll
	case t.name == "":
		return nil
	}
	return map[string]handler{http.MethodPut: a.update, http.MethodPatch: a.patch, http.MethodDelete: a.remove}[method]
}

// resolve turns a path into the logical cluster's name by what this shard alone knows, as kcp's local proxy does.
func (a *apiServer) resolve(t *target) error {
	if !strings.Contains(t.cluster, ":") || strings.HasPrefix(t.cluster, "system:") {
		return nil
	}
	segments := strings.Split(t.cluster, ":")
	cluster := segments[0]
	for _, name := range segments[1:] {
		workspaces, serves := a.catalog.lookup(target{cluster: cluster, group: workspaceGroup, version: workspaceVersion, resource: "workspaces"})
		if !serves {
			return unknownPath(t.cluster)
		}
		found, err := a.store.get(a.lifetime, place{family: workspaces.family, cluster: cluster, name: name})
		if err != nil {
			return unknownPath(t.cluster)
		}
		cluster = specCluster(found)
	}
	if !a.clusters.has(cluster) {
		return unknownPath(t.cluster)
	}
	t.cluster = cluster
	return nil
}

func specCluster(workspace object) string {
	read, isUnstructured := workspace.(*unstructured.Unstructured)
	if !isUnstructured {
		return ""
	}
	cluster, _, _ := unstructured.NestedString(read.Object, "spec", "cluster")
	return cluster
}

func unknownPath(path string) error {
	return apierrors.NewNotFound(schema.GroupResource{Group: workspaceGroup, Resource: "workspaces"}, path)
}

// tlsForPeers trusts what the configuration says. Without that it trusts any
// certificate: simulated shards listen on loopback only.
func tlsForPeers(config Config) *tls.Config {
	return &tls.Config{RootCAs: config.TLS.RootCAs, InsecureSkipVerify: config.TLS.RootCAs == nil, MinVersion: tls.VersionTLS12} //nolint:gosec // see above
}
