package installation

import (
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/certificates"
	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/ports"
	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/temporal"
)

// workerName is in the certificates by which workers know each other.
const workerName = "kcp-migrate-worker"

// workerConfig has the flags of `kcp-migrate worker`, as its --config file spells them.
type workerConfig struct {
	Shard                string   `json:"shard"`
	EtcdEndpoints        []string `json:"etcd-endpoints"`
	EtcdPrefix           string   `json:"etcd-prefix"`
	EncryptionConfig     string   `json:"encryption-provider-config,omitempty"`
	Kubeconfig           string   `json:"kubeconfig"`
	APIServers           []string `json:"api-servers"`
	FrontProxyKubeconfig string   `json:"front-proxy-kubeconfig"`
	FrontProxies         []string `json:"front-proxies"`
	CacheKubeconfig      string   `json:"cache-kubeconfig,omitempty"`
	TransferListen       string   `json:"transfer-listen"`
	TransferAdvertise    string   `json:"transfer-advertise"`
	TransferCAFile       string   `json:"transfer-ca-file"`
	TransferCertFile     string   `json:"transfer-cert-file"`
	TransferKeyFile      string   `json:"transfer-key-file"`
	TemporalAddress      string   `json:"temporal-address"`
	TemporalNamespace    string   `json:"temporal-namespace"`
	HealthListen         string   `json:"health-listen"`
}

// writeWorkerConfigs writes a worker's configuration and certificate for each shard.
func writeWorkerConfigs(state State) error {
	authority, err := certificates.NewAuthority("kcp-migrate-worker-ca")
	if err != nil {
		return err
	}
	caFile := filepath.Join(state.Folder, "worker-ca.crt")
	if err := os.WriteFile(caFile, authority.Certificate, 0o644); err != nil {
		return err
	}
	for _, shard := range state.Shards {
		pair, err := authority.Issue(certificates.Subject{Name: workerName, Hosts: []string{workerName}})
		if err != nil {
			return err
		}
		files, err := pair.Write(state.Folder, "worker-"+shard.Name)
		if err != nil {
			return err
		}
		if err := writeWorkerConfig(state, shard, caFile, files); err != nil {
			return err
		}
	}
	return nil
}

// frontProxyKubeconfig is the file of what workers may do through the front door.
func (s State) frontProxyKubeconfig() string {
	return filepath.Join(s.Folder, "front-proxy.kubeconfig")
}

func writeWorkerConfig(state State, shard Shard, caFile string, certificate certificates.Files) error {
	transferPort, err := ports.Free()
	if err != nil {
		return err
	}
	transferAddress := ports.Address(transferPort)
	content, err := yaml.Marshal(workerConfig{
		Shard:                shard.Name,
		EtcdEndpoints:        shard.EtcdEndpoints,
		EtcdPrefix:           shard.EtcdPrefix,
		EncryptionConfig:     shard.EncryptionProviderConfig,
		Kubeconfig:           shard.Kubeconfig,
		APIServers:           shard.APIServers,
		FrontProxyKubeconfig: state.frontProxyKubeconfig(),
		FrontProxies:         state.FrontProxies,
		CacheKubeconfig:      state.CacheKubeconfig,
		TransferListen:       transferAddress,
		TransferAdvertise:    transferAddress,
		TransferCAFile:       caFile,
		TransferCertFile:     certificate.Certificate,
		TransferKeyFile:      certificate.Key,
		TemporalAddress:      state.TemporalAddress,
		TemporalNamespace:    temporalserver.Namespace,
		HealthListen:         ports.Address(0),
	})
	if err != nil {
		return fmt.Errorf("encode %s: %w", shard.WorkerConfig, err)
	}
	return os.WriteFile(shard.WorkerConfig, content, 0o600)
}
