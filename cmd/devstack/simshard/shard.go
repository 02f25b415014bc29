package simshard

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"
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
	// Role is what else they do.
	Role Role
	// Address is where the only API server listens; a free port of loopback when empty.
	Address string
	// TLS is the servers' configuration. Its RootCAs, where given, are what peers' certificates are checked with.
	TLS *tls.Config
	// AdminToken is the one bearer token that is let in.
	AdminToken string
	// SeparateSigningKeys gives the shard keys of its own for ServiceAccount tokens; all others of the process share theirs.
	SeparateSigningKeys bool
	// ExternalURL is the front door's, known late; empty until then.
	ExternalURL func() string
	// Peers are the other shards, known late.
	Peers  func() []Peer
	Logger *slog.Logger
}

// Role is which of a shard's controllers run in this process.
type Role string

const (
	// Leading runs all of them.
	Leading Role = ""
	// Accompanying runs those that each process of a shard has one of, beside a process that leads.
	Accompanying Role = "accompanying"
	// Following runs none, as a process of a kcp with --enable-leader-election that has not been elected.
	Following Role = "following"
)

// Peer is another shard and one URL that reaches it.
type Peer struct{ Name, URL string }

// Shard is a running simulated shard.
type Shard struct {
	servers []*apiServer
	cancel  context.CancelFunc
	work    sync.WaitGroup
}

// Start serves the shard and returns once every API server of it listens and knows what is there.
// The shard lives until Stop; ctx bounds the start alone.
func Start(ctx context.Context, config Config) (*Shard, error) {
	lifetime, cancel := context.WithCancel(context.WithoutCancel(ctx))
	shard := &Shard{cancel: cancel}
	keys := sharedSigningKeys
	if config.SeparateSigningKeys {
		keys = sync.OnceValue(newSigningKeys)
	}
	for range max(config.APIServers, 1) {
		server, err := newAPIServer(ctx, lifetime, config, keys)
		if err != nil {
			shard.Stop()
			return nil, fmt.Errorf("start API server of shard %s: %w", config.Name, err)
		}
		shard.servers = append(shard.servers, server)
	}
	if config.Role == Leading {
		shard.lead(lifetime)
	}
	for _, server := range shard.servers {
		shard.work.Go(server.run)
	}
	for _, server := range shard.servers {
		if err := server.awaitReady(ctx); err != nil {
			shard.Stop()
			return nil, fmt.Errorf("wait for API server of shard %s: %w", config.Name, err)
		}
	}
	return shard, nil
}

// lead runs, in the first API server's process, the controllers of which a shard has one
// active instance: what meddles with tenants, schedules and deletes, and the compaction of etcd.
func (s *Shard) lead(ctx context.Context) {
	leader := s.servers[0]
	controllers := newMeddlers(leader)
	leader.clusters.onChange = controllers.mark
	s.work.Go(func() { controllers.run(ctx) })
	s.work.Go(func() { leader.store.compact(ctx, leader.log) })
}

// URLs are the addresses of the shard's API servers.
func (s *Shard) URLs() []string {
	urls := make([]string, 0, len(s.servers))
	for _, server := range s.servers {
		urls = append(urls, server.url)
	}
	return urls
}

// Stop ends the shard and waits for it.
func (s *Shard) Stop() {
	s.cancel()
	s.work.Wait()
	for _, server := range s.servers {
		server.close()
	}
}

var errStale = errors.New("the object has been modified; please apply your changes to the latest version and try again")
