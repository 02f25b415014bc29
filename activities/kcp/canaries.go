package kcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// canaryLife is how long the API server leaves a canary alone, in seconds: longer than any time away,
// so that a canary's end is the cut and nothing else.
const canaryLife = "86400"

// canary is one watch through one API server.
type canary struct {
	server string
	// ended is closed when the watch is over; one that Close ends was never cut, and counts as standing.
	ended chan struct{}
	// lost, once ended is closed, is what the connection broke by; nil where the server has ended the watch.
	lost error
}

// canaries are the watches of one logical cluster. They never reconnect: a watch that does proves nothing.
type canaries struct {
	all  []*canary
	stop context.CancelFunc
	// running are the goroutines that read the watches.
	running sync.WaitGroup
}

// OpenCanaries opens a watch that delivers nothing through every API server at once.
// They outlive ctx and stand until Close.
func (s *Shard) OpenCanaries(ctx context.Context, logicalCluster string) (activities.Canaries, error) {
	standing, stop := context.WithCancel(context.WithoutCancel(ctx))
	opened := &canaries{all: make([]*canary, len(s.servers)), stop: stop}
	var opening errgroup.Group
	for i, server := range s.servers {
		opening.Go(func() error {
			watching, err := server.openWatch(ctx, standing, logicalCluster)
			if err != nil {
				return err
			}
			opened.all[i] = opened.follow(server.server, watching)
			return nil
		})
	}
	if err := opening.Wait(); err != nil {
		opened.Close()
		return nil, err
	}
	return opened, nil
}

// openWatch returns when the watch stands. It is bound to standing; ctx and the request's timeout bound the opening.
func (c connection) openWatch(ctx, standing context.Context, logicalCluster string) (io.ReadCloser, error) {
	var present metav1.PartialObjectMetadataList
	if err := c.get(ctx, oneOf(logicalCluster, namespaces), &present, requestTimeout); err != nil {
		return nil, err
	}
	opening, giveUp := context.WithCancel(standing)
	defer context.AfterFunc(ctx, giveUp)()
	timer := time.AfterFunc(requestTimeout, giveUp)
	defer timer.Stop()
	return c.stream(opening, query{
		path: listPath(logicalCluster, namespaces),
		params: url.Values{
			"watch": {"true"},
			// From now on, so that nothing is replayed; and nothing is ever called like this.
			"resourceVersion": {present.ResourceVersion},
			"fieldSelector":   {"metadata.name=kcp-migrate.canary"},
			"timeoutSeconds":  {canaryLife},
		},
		accept: metadataOnly,
	})
}

// follow reads a watch to its end.
func (c *canaries) follow(server string, watching io.ReadCloser) *canary {
	one := &canary{server: server, ended: make(chan struct{})}
	c.running.Go(func() {
		defer watching.Close()
		one.lost = readToEnd(watching)
		if !errors.Is(one.lost, context.Canceled) {
			close(one.ended)
		}
	})
	return one
}

// readToEnd returns nil when the server has ended the watch, with or without an error event, and what came instead where
// the connection broke: then the server may still hold what other clients watch.
func readToEnd(watching io.Reader) error {
	events := json.NewDecoder(watching)
	for {
		var event metav1.WatchEvent
		var reset http2.StreamError // the server's own word on this one watch
		switch err := events.Decode(&event); {
		case errors.Is(err, io.EOF), errors.As(err, &reset):
			return nil
		case err != nil:
			return err
		case event.Type == string(watch.Error):
			return nil
		}
	}
}

// AwaitCut returns when every canary has been cut, or with the servers whose canary has not and the reason that ctx is done.
// A canary whose connection broke is an error: it can prove nothing any more.
func (c *canaries) AwaitCut(ctx context.Context) (uncut []string, err error) {
	for _, one := range c.all {
		select {
		case <-one.ended:
		case <-ctx.Done():
		}
	}
	for _, one := range c.all {
		switch {
		case !one.isOver():
			uncut = append(uncut, one.server)
		case one.lost != nil:
			return nil, fmt.Errorf("canary watch through %s was lost: %w", one.server, one.lost)
		}
	}
	if len(uncut) > 0 {
		return uncut, ctx.Err()
	}
	return nil, nil
}

func (c *canary) isOver() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// Close ends the canaries that still stand.
func (c *canaries) Close() {
	c.stop()
	c.running.Wait()
}
