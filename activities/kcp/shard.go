package kcp

import (
	"fmt"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// ShardConfig says how to reach one shard.
type ShardConfig struct {
	// Name is the Shard object's.
	Name string
	// Kubeconfig is a file. Its user must be allowed everything on the shard, wildcard requests included:
	// a member of system:masters. kcp's own admin.kubeconfig has one in the context "shard-base".
	Kubeconfig string
	// Context of the kubeconfig; its current one unless given.
	Context string
	// Servers are the addresses of every API server of the shard; the kubeconfig's unless given.
	// A server that is left out is one whose clients nobody proves to be fenced.
	Servers []string
}

// Shard is one shard's API through every one of its API servers.
type Shard struct {
	name    string
	servers connections
}

var _ activities.ShardAPI = (*Shard)(nil)

// NewShard reads the kubeconfig and prepares the connections; it does not dial.
func NewShard(config ShardConfig) (*Shard, error) {
	servers, err := connect(config.Kubeconfig, config.Context, config.Servers)
	if err != nil {
		return nil, fmt.Errorf("connect to shard %s: %w", config.Name, err)
	}
	return &Shard{name: config.Name, servers: servers}, nil
}
