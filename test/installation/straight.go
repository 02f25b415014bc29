package installation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/http2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Client is an administrator's for every API server of the shard, past the front doors.
func (s Shard) Client() (*http.Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", s.Kubeconfig, err)
	}
	return rest.HTTPClientFor(config)
}

// ask sends a GET; no timeout is for watches.
func (s Shard) ask(ctx context.Context, server, logicalCluster, path string, timeout time.Duration) (*http.Response, error) {
	client, err := s.Client()
	if err != nil {
		return nil, err
	}
	client.Timeout = timeout
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/clusters/"+logicalCluster+path, nil)
	if err != nil {
		return nil, err
	}
	return client.Do(request)
}

// Answer is the status code with which one API server of the shard answers a question about a logical cluster, or "*"; 504
// also where it breaks off its answer, as kcp does where the context of a logical cluster was cancelled.
func (s Shard) Answer(ctx context.Context, server, logicalCluster string) (int, error) {
	code := 0
	response, err := s.ask(ctx, server, logicalCluster, "/api/v1/namespaces?limit=1", requestTimeout)
	if err == nil {
		code = response.StatusCode
		_, err = io.Copy(io.Discard, response.Body)
		err = errors.Join(err, response.Body.Close())
	}
	var aborted http2.StreamError
	if errors.As(err, &aborted) {
		return http.StatusGatewayTimeout, nil
	}
	return code, err
}

// Expect has every API server of the shard answer a question about each of the logical clusters with a status code.
func (s Shard) Expect(ctx context.Context, want int, logicalClusters ...string) error {
	return s.askEach(ctx, logicalClusters, func(code int) bool { return code == want })
}

// ExpectReleased has no API server of a shard that a tenant has left still cancel its requests.
func (s Shard) ExpectReleased(ctx context.Context, logicalCluster string) error {
	return s.askEach(ctx, []string{logicalCluster}, func(code int) bool { return code != http.StatusGatewayTimeout })
}

func (s Shard) askEach(ctx context.Context, logicalClusters []string, wanted func(code int) bool) error {
	for _, server := range s.APIServers {
		for _, logicalCluster := range logicalClusters {
			code, err := s.Answer(ctx, server, logicalCluster)
			if err != nil {
				return err
			}
			if !wanted(code) {
				return fmt.Errorf("%s answered %d for logical cluster %s", server, code, logicalCluster)
			}
		}
	}
	return nil
}

// StraightWatch is a client's bare watch on a tenant's ConfigMaps, straight through one API server of a shard. It never
// begins anew.
type StraightWatch struct {
	cancel context.CancelFunc
	ended  chan struct{}

	mutex   sync.Mutex
	deleted []string
}

// WatchStraight returns once the watch stands.
func (s Shard) WatchStraight(ctx context.Context, server, logicalCluster string) (*StraightWatch, error) {
	const configMaps = "/api/v1/namespaces/" + tenantNamespace + "/configmaps"
	response, err := s.ask(ctx, server, logicalCluster, configMaps+"?limit=1", requestTimeout)
	if err != nil {
		return nil, err
	}
	var present metav1.PartialObjectMetadataList
	err = json.NewDecoder(response.Body).Decode(&present)
	if closeErr := response.Body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, fmt.Errorf("list ConfigMaps through %s: %w", server, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	response, err = s.ask(ctx, server, logicalCluster, configMaps+"?watch=true&resourceVersion="+present.ResourceVersion, 0)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("watch ConfigMaps through %s: %s", server, response.Status)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	watching := &StraightWatch{cancel: cancel, ended: make(chan struct{})}
	go watching.follow(response.Body)
	return watching, nil
}

// StraightWatches are some, each through an API server of its own.
type StraightWatches []*StraightWatch

// WatchStraightThrough returns once all stand. Stop them even after an error.
func (s Shard) WatchStraightThrough(ctx context.Context, logicalCluster string, servers ...string) (StraightWatches, error) {
	var watches StraightWatches
	for _, server := range servers {
		watching, err := s.WatchStraight(ctx, server, logicalCluster)
		if err != nil {
			return watches, err
		}
		watches = append(watches, watching)
	}
	return watches, nil
}

// Stop ends them all.
func (w StraightWatches) Stop() {
	for _, watching := range w {
		watching.Stop()
	}
}

// Ended reports whether the server has ended the watch.
func (w *StraightWatch) Ended() bool {
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}

// Deleted names the ConfigMaps that were reported deleted.
func (w *StraightWatch) Deleted() []string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.deleted
}

// Stop ends the watch.
func (w *StraightWatch) Stop() {
	w.cancel()
	<-w.ended
}

func (w *StraightWatch) follow(events io.ReadCloser) {
	defer close(w.ended)
	defer events.Close()
	decoder := json.NewDecoder(events)
	for {
		var event struct {
			Type   watch.EventType
			Object metav1.PartialObjectMetadata
		}
		if decoder.Decode(&event) != nil {
			return
		}
		if event.Type == watch.Deleted {
			w.mutex.Lock()
			w.deleted = append(w.deleted, event.Object.Name)
			w.mutex.Unlock()
		}
	}
}
