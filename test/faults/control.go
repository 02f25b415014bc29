package main

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"sync"

	"github.com/kcp-migrate/kcp-migrate/test/faults/point"
)

// control hears from the workers where they are. A worker waits there until at has returned.
type control struct {
	listener net.Listener
	server   *http.Server

	mutex sync.Mutex
	at    func(point.Point)
}

func startControl() (*control, error) {
	listener, err := net.Listen("tcp", local(0))
	if err != nil {
		return nil, err
	}
	c := &control{listener: listener}
	c.server = &http.Server{Handler: c} //nolint:gosec // it serves its own workers
	go func() {
		if err := c.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			say("control endpoint ended: %v", err)
		}
	}()
	return c, nil
}

func (c *control) url() string { return "http://" + c.listener.Addr().String() }

func (c *control) close() error { return c.server.Close() }

// listen has at called at every point from now on; nil for nobody.
func (c *control) listen(at func(point.Point)) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.at = at
}

// ServeHTTP answers when the worker may go on.
func (c *control) ServeHTTP(out http.ResponseWriter, request *http.Request) {
	var reached point.Point
	if err := json.NewDecoder(request.Body).Decode(&reached); err != nil {
		http.Error(out, err.Error(), http.StatusBadRequest)
		return
	}
	c.mutex.Lock()
	at := c.at
	c.mutex.Unlock()
	if at != nil {
		at(reached)
	}
}
