package installation

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/certificates"
	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/etcdserver"
	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/fixtures"
	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/frontdoor"
	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/kubeconfigs"
	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/ports"
	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/simshard"
)

// servingName is under which the certificate of all servers lies in the folder, for a front door in another process.
const servingName = "serving"

// simulation is a stand-in for kcp over the shards' etcds.
type simulation struct {
	installation *Installation
	authority    *certificates.Authority
	serverTLS    *tls.Config
	adminToken   string

	mutex     sync.Mutex
	shardURLs map[string][]string // guarded by mutex: shards ask for their peers while others start
}

func (i *Installation) startSimulation(ctx context.Context) (kcp, error) {
	s := &simulation{installation: i, adminToken: rand.Text(), shardURLs: map[string][]string{}}
	if err := s.makeCertificates(); err != nil {
		return kcp{}, err
	}
	for _, shard := range fixtures.Shards {
		if err := s.fillEtcd(ctx, shard); err != nil {
			return kcp{}, err
		}
	}
	for _, shard := range fixtures.Shards {
		if err := s.startShard(ctx, shard); err != nil {
			return kcp{}, err
		}
	}
	if err := s.registerShards(ctx); err != nil {
		return kcp{}, err
	}
	frontDoors, err := s.startFrontDoors(ctx)
	if err != nil {
		return kcp{}, err
	}
	admin := kubeconfigs.Credentials{Token: s.adminToken}
	return kcp{
		frontProxies:    frontDoors,
		apiServers:      s.urls(),
		servingCA:       s.authority.Certificate,
		frontProxyAdmin: admin,
		shardAdmin:      admin,

		frontProxyWorker: admin,
	}, nil
}

func (s *simulation) makeCertificates() (err error) {
	if s.authority, err = certificates.NewAuthority("devstack-serving-ca"); err != nil {
		return err
	}
	server, err := s.authority.Issue(certificates.Subject{Name: "devstack", Hosts: []string{ports.Loopback, "localhost"}})
	if err != nil {
		return err
	}
	if s.serverTLS, err = server.ServerTLS(); err != nil {
		return err
	}
	_, err = server.Write(s.installation.options.Folder, servingName)
	return err
}

func (s *simulation) fillEtcd(ctx context.Context, shard string) (err error) {
	etcdClient, err := etcdserver.NewClient(ctx, s.installation.etcds[shard])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, etcdClient.Close()) }()
	if err := fixtures.Load(ctx, etcdClient, shard); err != nil {
		return err
	}
	if shard == fixtures.Shards[0] {
		return fixtures.Fatten(ctx, etcdClient, s.installation.options.Entries)
	}
	return nil
}

func (s *simulation) startShard(ctx context.Context, name string) error {
	log, err := os.OpenFile(s.installation.logFile(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	s.installation.onStop(log.Close)
	shard, err := simshard.Start(ctx, simshard.Config{
		Name:                name,
		EtcdEndpoints:       s.installation.etcds[name],
		Prefix:              fixtures.Prefix,
		APIServers:          s.installation.options.APIServers,
		TLS:                 s.serverTLS,
		AdminToken:          s.adminToken,
		ExternalURL:         s.externalURL,
		SeparateSigningKeys: s.installation.options.SeparateSigningKeys,
		Peers:               func() []simshard.Peer { return s.peers(name) },
		Logger:              slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		return fmt.Errorf("start simulated shard %s: %w", name, err)
	}
	s.installation.onStop(func() error { shard.Stop(); return nil })
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.shardURLs[name] = shard.URLs()
	return nil
}

// registerShards lets the Shard objects, which live in the logical cluster root of the
// root shard, tell where the shards are now.
func (s *simulation) registerShards(ctx context.Context) (err error) {
	etcdClient, err := etcdserver.NewClient(ctx, s.installation.etcds[fixtures.Shards[0]])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, etcdClient.Close()) }()
	objects, err := etcdClient.Get(ctx, fixtures.Prefix+"/core.kcp.io/shards/", clientv3.WithPrefix())
	if err != nil {
		return fmt.Errorf("read Shards: %w", err)
	}
	for _, object := range objects.Kvs {
		key := string(object.Key)
		urls, found := s.urls()[key[strings.LastIndex(key, "/")+1:]]
		if !found {
			continue
		}
		value, err := withURLs(object.Value, urls[0], s.externalURL())
		if err != nil {
			return fmt.Errorf("edit Shard %s: %w", key, err)
		}
		if _, err := etcdClient.Put(ctx, key, string(value)); err != nil {
			return fmt.Errorf("write Shard %s: %w", key, err)
		}
	}
	return nil
}

func withURLs(shard []byte, baseURL, externalURL string) ([]byte, error) {
	var object map[string]any
	if err := json.Unmarshal(shard, &object); err != nil {
		return nil, err
	}
	object["spec"] = map[string]any{"baseURL": baseURL, "externalURL": externalURL, "virtualWorkspaceURL": baseURL}
	return json.Marshal(object)
}

func (s *simulation) startFrontDoors(ctx context.Context) ([]string, error) {
	var urls []string
	for _, port := range s.installation.options.Ports.FrontDoors {
		door, err := frontdoor.Start(ctx, frontdoor.Config{
			Shards:     s.urls,
			Etcds:      s.installation.etcds,
			TLS:        s.serverTLS,
			ClientCA:   s.authority.Pool(),
			AdminToken: s.adminToken,
			Address:    ports.Address(port),
		})
		if err != nil {
			return nil, fmt.Errorf("start front door on port %d: %w", port, err)
		}
		s.installation.onStop(func() error { door.Stop(); return nil })
		urls = append(urls, door.URL())
	}
	return urls, nil
}

// externalURL is the first front door's, known before it is started.
func (s *simulation) externalURL() string {
	return "https://" + ports.Address(s.installation.options.Ports.FrontDoors[0])
}

func (s *simulation) urls() map[string][]string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return maps.Clone(s.shardURLs)
}

func (s *simulation) peers(of string) []simshard.Peer {
	var peers []simshard.Peer
	for name, urls := range s.urls() {
		if name != of {
			peers = append(peers, simshard.Peer{Name: name, URL: urls[0]})
		}
	}
	return peers
}
