package simshard

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
)

// Config says which etcd a simulated shard serves, and as whom.
type Config struct {
	// Name is the shard's own, as in the annotation core.kcp.io/shard.
	Name          string
	EtcdEndpoints []string
	// Prefix is the storage prefix, "/registry" when empty.
	Prefix string
	// APIServers is how many processes the shard is to look like, at least 1.
	APIServers int
	// TLS is the servers' configuration.
	TLS *tls.Config
	// AdminToken is the one bearer token that is let in.
	AdminToken string
	// ExternalURL is the front door's, known late.
	ExternalURL func() string
	// Peers are the other shards, known late.
	Peers  func() []Peer
	Logger *slog.Logger
}

// Peer is another shard and one URL that reaches it.
type Peer struct{ Name, URL string }

// Shard is a running simulated shard.
type Shard struct{}

// Start serves the shard and returns once every API server of it listens.
func Start(ctx context.Context, config Config) (*Shard, error) {
	return nil, errors.New("not implemented")
}

// URLs are the addresses of the shard's API servers.
func (s *Shard) URLs() []string { return nil }

// Stop ends the shard and waits for it.
func (s *Shard) Stop() {}
