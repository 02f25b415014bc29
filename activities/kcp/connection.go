package kcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// requestTimeout bounds one request, so that a server that hangs is passed over.
	requestTimeout = 5 * time.Second
	// unlimited lifts client-go's limit of 5 requests a second: probes are in the tenant's time away,
	// and there are few of them.
	unlimited = -1

	contentTypeJSON = "application/json"
	// metadataOnly and metadataListOnly have the server leave out everything but the metadata.
	metadataOnly     = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	metadataListOnly = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// query is one GET.
type query struct {
	path   string
	params url.Values
	// accept is the wanted form of the answer, JSON unless given.
	accept string
}

// change is one request that writes.
type change struct {
	verb string
	path string
	// body is JSON of the content type; none where it is nil.
	body        any
	contentType string
}

// touchedAnnotation is what a touch leaves.
const touchedAnnotation = "kcp-migrate.io/touched-at"

// touch edits an object only for all who watch it to hear of it again.
func touch(path string) change {
	annotations := map[string]string{touchedAnnotation: time.Now().UTC().Format(time.RFC3339Nano)}
	patch := map[string]any{"metadata": map[string]any{"annotations": annotations}}
	return change{verb: http.MethodPatch, path: path, body: patch, contentType: string(types.MergePatchType)}
}

// connection is one server.
type connection struct {
	server string
	client rest.Interface
}

// connections are servers that give the same answers: a shard's API servers, or the front-proxies.
type connections []connection

// connect gives one connection a server, with the credentials of a kubeconfig's context ("": its current one).
// Without servers it is the kubeconfig's own. Nothing is dialled yet.
func connect(kubeconfig, kubeContext string, servers []string) (connections, error) {
	config, err := loadKubeconfig(kubeconfig, kubeContext)
	if err != nil {
		return nil, err
	}
	transport, err := newRotatingTransport(kubeconfig, kubeContext)
	if err != nil {
		return nil, fmt.Errorf("load kubeconfig %s: %w", kubeconfig, err)
	}
	if len(servers) == 0 {
		servers = []string{config.Host}
	}
	all := make(connections, 0, len(servers))
	for _, server := range servers {
		one, err := newConnection(config, transport, server)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

func loadKubeconfig(kubeconfig, kubeContext string) (*rest.Config, error) {
	if kubeconfig == "" {
		return nil, errors.New("load kubeconfig: no file is named; name one whose user may reach kcp")
	}
	if _, err := os.Stat(kubeconfig); err != nil {
		return nil, fmt.Errorf("load kubeconfig %s: %w; name a file that exists and that this process may read", kubeconfig, err)
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig},
		&clientcmd.ConfigOverrides{CurrentContext: kubeContext},
	).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("load kubeconfig %s: %w; check the file, and the context that it or the configuration chooses", kubeconfig, err)
	}
	config.UserAgent = "kcp-migrate"
	return config, nil
}

func newConnection(base *rest.Config, transport http.RoundTripper, server string) (connection, error) {
	host, err := serverRoot(server)
	if err != nil {
		return connection{}, err
	}
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // to decode Status
	config := rest.CopyConfig(base)
	config.Host = host
	config.QPS = unlimited
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.WarningHandlerWithContext = rest.NoWarnings{}
	client, err := rest.UnversionedRESTClientForConfigAndClient(config, &http.Client{Transport: transport})
	if err != nil {
		return connection{}, fmt.Errorf("set up connection to %s: %w", host, err)
	}
	return connection{server: host, client: client}, nil
}

// serverRoot strips the path, as kcp's kubeconfigs name one logical cluster in it: /clusters/root.
func serverRoot(server string) (string, error) {
	parsed, err := url.Parse(server)
	if err != nil {
		return "", fmt.Errorf("parse address of server %q: %w", server, err)
	}
	if parsed.Scheme != "https" && parsed.Scheme != "http" || parsed.Host == "" {
		return "", fmt.Errorf("parse address of server %q: want https://host:port", server)
	}
	return parsed.Scheme + "://" + parsed.Host, nil
}

// get asks one server after the other until one answers, be it with a refusal.
func (c connections) get(ctx context.Context, q query, into any) error {
	return c.untilAnswered(func(one connection) error { return one.get(ctx, q, into, requestTimeout) })
}

// send makes a change through one server after the other until one answers, be it with a refusal.
func (c connections) send(ctx context.Context, change change) error {
	return c.untilAnswered(func(one connection) error { return one.send(ctx, change, nil) })
}

func (c connections) untilAnswered(ask func(connection) error) error {
	var failures []error
	for _, one := range c {
		err := ask(one)
		if err == nil || isRefusal(err) {
			return err
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// get asks the server and decodes its answer; into may be nil.
func (c connection) get(ctx context.Context, q query, into any, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	result := c.request(q).Do(ctx)
	if err := result.Error(); err != nil {
		return c.explain(http.MethodGet, q.path, err)
	}
	body, err := result.Raw()
	if err != nil {
		return c.explain(http.MethodGet, q.path, err)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("decode %s from %s: %w", q.path, c.server, err)
	}
	return nil
}

// send makes a change; into, where it is not nil, takes the answer.
func (c connection) send(ctx context.Context, change change, into any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	request := c.client.Verb(change.verb).AbsPath(change.path).SetHeader("Accept", contentTypeJSON).MaxRetries(0)
	if change.body != nil {
		body, err := json.Marshal(change.body)
		if err != nil {
			return fmt.Errorf("encode body for %s: %w", change.path, err)
		}
		request = request.SetHeader("Content-Type", change.contentType).Body(body)
	}
	result := request.Do(ctx)
	if err := result.Error(); err != nil {
		return c.explain(change.verb, change.path, err)
	}
	body, err := result.Raw()
	if err != nil || into == nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("decode %s from %s: %w", change.path, c.server, err)
	}
	return nil
}

// stream asks the server and returns once its answer begins.
func (c connection) stream(ctx context.Context, q query) (io.ReadCloser, error) {
	body, err := c.request(q).Stream(ctx)
	if err != nil {
		return nil, c.explain(http.MethodGet, q.path, err)
	}
	return body, nil
}

// request never repeats itself, as client-go would on Retry-After: the callers do, and know for how long.
func (c connection) request(q query) *rest.Request {
	accept := q.accept
	if accept == "" {
		accept = contentTypeJSON
	}
	request := c.client.Get().AbsPath(q.path).SetHeader("Accept", accept).MaxRetries(0)
	for name, values := range q.params {
		for _, value := range values {
			request = request.Param(name, value)
		}
	}
	return request
}
