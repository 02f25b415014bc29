package installation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// pollInterval is how often conditions are looked at that nothing announces.
const pollInterval = 20 * time.Millisecond

// State is what devstack tells about itself in devstack.json.
type State struct {
	PID             int      `json:"pid"`
	Dir             string   `json:"dir"`
	KCP             bool     `json:"kcp"`
	TemporalAddress string   `json:"temporalAddress"`
	UIURL           string   `json:"uiURL"`
	Kubeconfig      string   `json:"kubeconfig"`
	FrontProxies    []string `json:"frontProxies"`
	Shards          []Shard  `json:"shards"`
}

// Shard is one shard of the installation.
type Shard struct {
	Name          string   `json:"name"`
	EtcdEndpoints []string `json:"etcdEndpoints"`
	EtcdCAFile    string   `json:"etcdCAFile"`
	EtcdCertFile  string   `json:"etcdCertFile"`
	EtcdKeyFile   string   `json:"etcdKeyFile"`
	EtcdPrefix    string   `json:"etcdPrefix"`
	APIServers    []string `json:"apiServers"`
	Kubeconfig    string   `json:"kubeconfig"`
	WorkerConfig  string   `json:"workerConfig"`
	// EncryptionProviderConfig is the file that a real kcp's API servers of this shard were started with, if any.
	EncryptionProviderConfig string `json:"encryptionProviderConfig"`
}

// Shard finds a shard by its name.
func (s State) Shard(name string) (Shard, error) {
	for _, shard := range s.Shards {
		if shard.Name == name {
			return shard, nil
		}
	}
	return Shard{}, fmt.Errorf("find shard %q: devstack has none of that name", name)
}

// awaitState waits for the file that devstack writes, whole, once everything serves.
func awaitState(ctx context.Context, path string, devstack *Process) (State, error) {
	var state State
	err := await(ctx, func() (bool, error) {
		select {
		case <-devstack.Done():
			return false, fmt.Errorf("devstack ended before it served: %w", devstack.Failure())
		default:
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		return true, json.Unmarshal(text, &state)
	})
	if err != nil {
		return State{}, fmt.Errorf("await %s: %w", path, err)
	}
	return state, nil
}

// await looks at a condition until it holds, fails, or ctx is done.
func await(ctx context.Context, condition func() (bool, error)) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		done, err := condition()
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}
