package installation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/fixtures"
)

// State is what <folder>/devstack.json tells: where everything is.
type State struct {
	PID             int      `json:"pid"`
	Folder          string   `json:"dir"`
	RealKcp         bool     `json:"kcp"`
	TemporalAddress string   `json:"temporalAddress"`
	UIURL           string   `json:"uiURL"`
	Kubeconfig      string   `json:"kubeconfig"`
	FrontProxies    []string `json:"frontProxies"`
	Shards          []Shard  `json:"shards"`
	// CacheKubeconfig is for a real kcp's cache server; the stand-in has none.
	CacheKubeconfig string `json:"cacheKubeconfig,omitempty"`
}

// Shard is where one shard is.
type Shard struct {
	Name          string   `json:"name"`
	EtcdEndpoints []string `json:"etcdEndpoints"`
	// EtcdCAFile and its siblings are empty: the etcds speak plain HTTP, on loopback.
	EtcdCAFile   string   `json:"etcdCAFile"`
	EtcdCertFile string   `json:"etcdCertFile"`
	EtcdKeyFile  string   `json:"etcdKeyFile"`
	EtcdPrefix   string   `json:"etcdPrefix"`
	APIServers   []string `json:"apiServers"`
	Kubeconfig   string   `json:"kubeconfig"`
	WorkerConfig string   `json:"workerConfig"`
	// EncryptionProviderConfig is the file that the shard's API servers are started with.
	EncryptionProviderConfig string `json:"encryptionProviderConfig,omitempty"`
}

// stateName is the file in the state folder that says where everything is.
const stateName = "devstack.json"

func (i *Installation) stateFile() string { return i.folder(stateName) }

// writeFiles writes what clients and workers need, and devstack.json last: where it is,
// all else is.
func (i *Installation) writeFiles(kcp kcp) (State, error) {
	state := State{
		PID:             os.Getpid(),
		Folder:          i.options.Folder,
		RealKcp:         i.options.Kind == RealKcp,
		TemporalAddress: i.State.TemporalAddress,
		UIURL:           i.State.UIURL,
		Kubeconfig:      i.folder("admin.kubeconfig"),
		FrontProxies:    kcp.frontProxies,

		CacheKubeconfig: kcp.cacheKubeconfig,
	}
	for _, shard := range fixtures.Shards {
		state.Shards = append(state.Shards, Shard{
			Name:          shard,
			EtcdPrefix:    cmp.Or(i.options.EtcdPrefixes[shard], fixtures.Prefix),
			EtcdEndpoints: i.etcds[shard],
			APIServers:    kcp.apiServers[shard],
			Kubeconfig:    i.folder(shard + ".kubeconfig"),
			WorkerConfig:  i.folder("worker-" + shard + ".yaml"),

			EncryptionProviderConfig: i.options.EncryptionConfigs[shard],
		})
	}
	if err := writeKubeconfigs(state, kcp); err != nil {
		return State{}, err
	}
	if err := writeWorkerConfigs(state); err != nil {
		return State{}, err
	}
	return state, writeState(i.stateFile(), state)
}

// writeState renames a finished file into place, so that whoever waits for it reads all of it.
func writeState(file string, state State) error {
	content, err := json.MarshalIndent(state, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", file, err)
	}
	unfinished := file + ".tmp"
	if err := os.WriteFile(unfinished, append(content, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(unfinished, file)
}
