package installation

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/ports"
	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/simshard"
)

// APIServerOptions say which shard has one more API server.
type APIServerOptions struct {
	Shard string
	Port  int
	Role  simshard.Role
}

// StartAPIServer starts one more API server of a shard of the simulation that runs, in another process, with this state
// folder. That installation's front doors do not know of it.
func StartAPIServer(ctx context.Context, folder string, options APIServerOptions) (*simshard.Shard, error) {
	running, err := readSimulation(folder)
	if err != nil {
		return nil, err
	}
	var etcd []string
	var peers []simshard.Peer
	for _, shard := range running.state.Shards {
		if shard.Name == options.Shard {
			etcd = shard.EtcdEndpoints
		} else {
			peers = append(peers, simshard.Peer{Name: shard.Name, URL: shard.APIServers[0]})
		}
	}
	if etcd == nil {
		return nil, fmt.Errorf("find shard %q: the installation in %s has none of that name", options.Shard, folder)
	}
	return simshard.Start(ctx, simshard.Config{
		Name:          options.Shard,
		EtcdEndpoints: etcd,
		APIServers:    1,
		Role:          options.Role,
		Address:       ports.Address(options.Port),
		TLS:           &tls.Config{Certificates: []tls.Certificate{running.serving}, RootCAs: running.authority, MinVersion: tls.VersionTLS12},
		AdminToken:    running.adminToken,
		ExternalURL:   func() string { return running.state.FrontProxies[0] },
		Peers:         func() []simshard.Peer { return peers },
		Logger:        slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
}
