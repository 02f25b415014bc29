package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/kcp-migrate/kcp-migrate/test/installation"
)

const (
	// quotaBytes is what etcd calls the highest sensible one; all shapes and the neighbours stay well below it.
	quotaBytes = 8 << 30
	// serving is how long an etcd may take to start: it reads its whole index.
	serving   = 2 * time.Minute
	lookEvery = 20 * time.Millisecond
)

// server is one etcd in a process of its own.
type server struct {
	name     string
	folder   string
	binDir   string
	ports    string
	endpoint string
	process  *installation.Process
}

// pair is the origin's etcd and the destination's.
type pair struct {
	origin, destination *server
}

// newPair starts both, empty.
func newPair(ctx context.Context, binDir, folder string) (*pair, error) {
	origin, err := newServer(binDir, folder, "origin")
	if err != nil {
		return nil, err
	}
	destination, err := newServer(binDir, folder, "destination")
	if err != nil {
		return nil, err
	}
	servers := &pair{origin: origin, destination: destination}
	if err := servers.each(ctx, (*server).start); err != nil {
		return nil, errors.Join(err, servers.stop())
	}
	return servers, nil
}

func newServer(binDir, folder, name string) (*server, error) {
	addresses, err := installation.FreeAddresses(2)
	if err != nil {
		return nil, err
	}
	var ports []string
	for _, address := range addresses {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	own := filepath.Join(folder, name)
	if err := os.MkdirAll(own, 0o700); err != nil {
		return nil, err
	}
	return &server{name: name, folder: own, binDir: binDir, ports: strings.Join(ports, ","), endpoint: "http://" + addresses[0]}, nil
}

// each does something to both at once.
func (p *pair) each(ctx context.Context, do func(*server, context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, server := range []*server{p.origin, p.destination} {
		group.Go(func() error {
			if err := do(server, ctx); err != nil {
				return fmt.Errorf("etcd of the %s: %w", server.name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// eachClient does something to both at once, each through a client that is closed afterwards.
func (p *pair) eachClient(ctx context.Context, do func(context.Context, *clientv3.Client) error) error {
	return p.each(ctx, func(s *server, ctx context.Context) error { return s.with(ctx, do) })
}

func (p *pair) stop() error {
	return errors.Join(p.origin.stop(), p.destination.stop())
}

// renew starts both from nothing.
func (p *pair) renew(ctx context.Context) error {
	if err := p.stop(); err != nil {
		return err
	}
	for _, server := range []*server{p.origin, p.destination} {
		if err := os.RemoveAll(server.data()); err != nil {
			return err
		}
	}
	return p.each(ctx, (*server).start)
}

// restart has both forget what they still remember of the requests that filled them.
func (p *pair) restart(ctx context.Context) error {
	if err := p.stop(); err != nil {
		return err
	}
	return p.each(ctx, (*server).start)
}

// data is where devstack puts an etcd's first member.
func (s *server) data() string { return filepath.Join(s.folder, s.name+"-0") }

func (s *server) start(ctx context.Context) (err error) {
	s.process, err = installation.StartProcess(filepath.Join(s.folder, "output.log"), filepath.Join(s.binDir, "devstack"), "etcd",
		"--name", s.name, "--dir", s.folder, "--log-file", filepath.Join(s.folder, "etcd.log"),
		"--ports", s.ports, "--quota-bytes", strconv.Itoa(quotaBytes))
	if err != nil {
		return err
	}
	return s.with(ctx, func(ctx context.Context, etcd *clientv3.Client) error {
		ctx, cancel := context.WithTimeout(ctx, serving)
		defer cancel()
		for {
			_, err := etcd.Get(ctx, migrations, clientv3.WithCountOnly())
			if err == nil || ctx.Err() != nil {
				return err
			}
			select {
			case <-s.process.Done():
				return fmt.Errorf("it ended: %w", s.process.Failure())
			case <-time.After(lookEvery):
			}
		}
	})
}

func (s *server) stop() error {
	if s.process == nil {
		return nil
	}
	return s.process.Stop()
}

func (s *server) with(ctx context.Context, do func(context.Context, *clientv3.Client) error) (err error) {
	etcd, err := dial(ctx, s.endpoint)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, etcd.Close()) }()
	return do(ctx, etcd)
}

func dial(ctx context.Context, endpoint string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Context: ctx, Endpoints: []string{endpoint}, Logger: zap.NewNop()})
}

// requests counts what the server has been asked of keys and leases since it started, as it tells itself.
func (s *server) requests(ctx context.Context) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.endpoint+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("read metrics of the %s's etcd: %w", s.name, err)
	}
	defer response.Body.Close()
	total := 0
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		total += startedRequests(lines.Text())
	}
	return total, lines.Err()
}

// startedRequests reads one line of etcd's metrics.
func startedRequests(line string) int {
	labels, value, found := strings.Cut(line, "} ")
	if !found || !strings.HasPrefix(labels, "grpc_server_started_total{") {
		return 0
	}
	if !strings.Contains(labels, `grpc_service="etcdserverpb.KV"`) && !strings.Contains(labels, `grpc_service="etcdserverpb.Lease"`) {
		return 0
	}
	count, err := strconv.ParseFloat(value, 64) // Prometheus writes large counts as 1e+06
	if err != nil {
		return 0
	}
	return int(count)
}
