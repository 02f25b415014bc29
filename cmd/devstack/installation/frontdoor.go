package installation

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/frontdoor"
	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/ports"
)

// StartFrontDoor starts one more front door of the simulation that runs, in another process, with this state folder.
func StartFrontDoor(ctx context.Context, folder string, port int) (*frontdoor.FrontDoor, error) {
	content, err := os.ReadFile(filepath.Join(folder, stateName))
	if err != nil {
		return nil, fmt.Errorf("read state: %w", err)
	}
	var state State
	if err := json.Unmarshal(content, &state); err != nil {
		return nil, fmt.Errorf("read state: %w", err)
	}
	admin, err := clientcmd.BuildConfigFromFlags("", state.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", state.Kubeconfig, err)
	}
	serving, err := tls.LoadX509KeyPair(filepath.Join(folder, servingName+".crt"), filepath.Join(folder, servingName+".key"))
	if err != nil {
		return nil, fmt.Errorf("load serving certificate: %w", err)
	}
	authority := x509.NewCertPool()
	authority.AppendCertsFromPEM(admin.CAData)
	urls, etcds := map[string][]string{}, map[string][]string{}
	for _, shard := range state.Shards {
		urls[shard.Name], etcds[shard.Name] = shard.APIServers, shard.EtcdEndpoints
	}
	return frontdoor.Start(ctx, frontdoor.Config{
		Shards:     func() map[string][]string { return urls },
		Etcds:      etcds,
		TLS:        &tls.Config{Certificates: []tls.Certificate{serving}, MinVersion: tls.VersionTLS12},
		ClientCA:   authority,
		AdminToken: admin.BearerToken,
		Address:    ports.Address(port),
	})
}
