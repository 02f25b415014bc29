// Package temporalserver runs a real Temporal server and its real web UI inside this
// process, as the Temporal CLI's `server start-dev` does.
//
// One server a process: the server's Stop leaves goroutines behind.
package temporalserver

import (
	"context"
	"errors"
	"fmt"

	"github.com/gofrs/flock"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/temporal"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/ports"
)

// Config says where the server listens and where it keeps its state.
type Config struct {
	// Port is the frontend's port.
	Port int
	// UIPort is the web UI's port.
	UIPort int
	// File is the SQLite file that holds the state; empty keeps it in memory.
	File string
}

// Server is a running Temporal server with its web UI.
type Server struct {
	config Config
	server temporal.Server
	ui     *webUI
	lock   *flock.Flock
	failed chan error
}

// Start returns once the frontend and the web UI serve.
func Start(ctx context.Context, config Config) (*Server, error) {
	lock, err := lockFile(config.File)
	if err != nil {
		return nil, err
	}
	s := &Server{config: config, lock: lock, failed: make(chan error, 1)}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// Address is host:port of the frontend.
func (s *Server) Address() string { return ports.Address(s.config.Port) }

// UIURL is the web UI's address.
func (s *Server) UIURL() string { return "http://" + ports.Address(s.config.UIPort) }

// Failed delivers the error that made a part of the server give up.
func (s *Server) Failed() <-chan error { return s.failed }

// Stop ends the UI, then the server, then lets go of the file.
func (s *Server) Stop() error {
	var err error
	if s.ui != nil {
		err = s.ui.stop()
	}
	if s.server != nil {
		err = errors.Join(err, s.server.Stop())
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Unlock())
	}
	return err
}

func (s *Server) start(ctx context.Context) error {
	// Neither server returns an error when its port is taken: look first.
	for what, port := range map[string]int{"Temporal server": s.config.Port, "Temporal web UI": s.config.UIPort} {
		if err := ports.Check(port); err != nil {
			return fmt.Errorf("start %s on %s: %w", what, ports.Address(port), err)
		}
	}
	store := newStore(s.config.File)
	if err := store.prepare(); err != nil {
		return err
	}
	if err := s.startServer(ctx, store); err != nil {
		return fmt.Errorf("start Temporal server on %s: %w", s.Address(), err)
	}
	if err := awaitFrontend(ctx, s.Address()); err != nil {
		return err
	}
	ui, err := startWebUI(ctx, s.config.UIPort, s.Address())
	if err != nil {
		return err
	}
	s.ui = ui
	return nil
}

// startServer runs the start aside, for a fatal error ends the goroutine that meets it.
func (s *Server) startServer(ctx context.Context, store store) error {
	serverConfig, err := newServerConfig(s.config.Port, store)
	if err != nil {
		return err
	}
	type outcome struct {
		server temporal.Server
		err    error
	}
	started := make(chan outcome, 1)
	go func() {
		server, err := newServer(serverConfig, s.failed)
		if err == nil {
			err = server.Start()
		}
		started <- outcome{server, err}
	}()
	select {
	case o := <-started:
		s.server = o.server
		return o.err
	case err := <-s.failed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func newServer(serverConfig *config.Config, failed chan<- error) (temporal.Server, error) {
	return temporal.NewServer(
		temporal.WithConfig(serverConfig),
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithStaticHosts(staticHosts(serverConfig)),
		temporal.WithDynamicConfigClient(dynamicConfig),
		temporal.WithLogger(fatalOnly{failed: failed}),
	)
}
