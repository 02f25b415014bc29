package installation

import (
	"context"
	"crypto/tls"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/frontdoor"
	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/ports"
)

// StartFrontDoor starts one more front door of the simulation that runs, in another process, with this state folder.
func StartFrontDoor(ctx context.Context, folder string, port int) (*frontdoor.FrontDoor, error) {
	running, err := readSimulation(folder)
	if err != nil {
		return nil, err
	}
	urls, etcds := map[string][]string{}, map[string][]string{}
	for _, shard := range running.state.Shards {
		urls[shard.Name], etcds[shard.Name] = shard.APIServers, shard.EtcdEndpoints
	}
	return frontdoor.Start(ctx, frontdoor.Config{
		Shards:     func() map[string][]string { return urls },
		Etcds:      etcds,
		TLS:        &tls.Config{Certificates: []tls.Certificate{running.serving}, MinVersion: tls.VersionTLS12},
		ClientCA:   running.authority,
		AdminToken: running.adminToken,
		Address:    ports.Address(port),
	})
}
