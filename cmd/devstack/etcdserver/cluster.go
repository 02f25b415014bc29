// Package etcdserver runs real etcds inside this process.
package etcdserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/ports"
)

// startTimeout bounds the wait for a leader; a loaded machine takes a few seconds.
const startTimeout = 60 * time.Second

// Config says how big an etcd is and where it keeps its data.
type Config struct {
	// Name distinguishes its members from those of another etcd.
	Name string
	// Folder holds one folder per member. Earlier data there is taken up again.
	Folder string
	// LogFile takes what the members log.
	LogFile string
	// Members is 1 or an odd number above it.
	Members int
	// Ports are a client port and a peer port for each member; free ones when empty.
	Ports []int
	// QuotaBytes is etcd's --quota-backend-bytes; 0 means its default.
	QuotaBytes int64
}

// Cluster is a running etcd of one or more members.
type Cluster struct {
	name    string
	members []*embed.Etcd
	failed  chan error
	stopped chan struct{}
	watches sync.WaitGroup

	mutex   sync.Mutex
	servers []*grpc.Server // guarded by mutex: the members add to them as they get ready
}

// Start returns once every member serves.
func Start(ctx context.Context, config Config) (*Cluster, error) {
	c := newCluster(config)
	if err := c.start(ctx, config); err != nil {
		c.Stop()
		return nil, fmt.Errorf("start etcd %s: %w", config.Name, err)
	}
	return c, nil
}

// StartMember starts one member alone and returns once it serves, for which most of the others must run too.
func StartMember(ctx context.Context, config Config, number int) (*Cluster, error) {
	c := newCluster(config)
	members, err := memberConfigs(config)
	if err == nil {
		err = c.startMembers(ctx, members[number:number+1])
	}
	if err != nil {
		c.Stop()
		return nil, fmt.Errorf("start member %d of etcd %s: %w", number, config.Name, err)
	}
	return c, nil
}

func newCluster(config Config) *Cluster {
	return &Cluster{name: config.Name, failed: make(chan error, config.Members), stopped: make(chan struct{})}
}

// Endpoints are the members' client URLs.
func (c *Cluster) Endpoints() []string {
	endpoints := make([]string, len(c.members))
	for i, member := range c.members {
		endpoints[i] = "http://" + member.Clients[0].Addr().String()
	}
	return endpoints
}

// NewClient connects to the etcd; the caller closes it.
func (c *Cluster) NewClient(ctx context.Context) (*clientv3.Client, error) {
	return NewClient(ctx, c.Endpoints())
}

// NewClient connects to an etcd; the caller closes it.
func NewClient(ctx context.Context, endpoints []string) (*clientv3.Client, error) {
	etcdClient, err := clientv3.New(clientv3.Config{Context: ctx, Endpoints: endpoints})
	if err != nil {
		return nil, fmt.Errorf("connect to etcd %s: %w", strings.Join(endpoints, ", "), err)
	}
	return etcdClient, nil
}

// Failed delivers the error that made a member give up.
func (c *Cluster) Failed() <-chan error { return c.failed }

// Stop ends every member at once. It ends clients' watches with them and lets no leader
// hand over to another member that stops too: on either, a member would wait for seven
// seconds.
func (c *Cluster) Stop() {
	close(c.stopped)
	c.mutex.Lock()
	for _, server := range c.servers {
		server.Stop()
	}
	c.mutex.Unlock()

	var ends sync.WaitGroup
	for _, member := range c.members {
		ends.Go(func() {
			member.Server.HardStop()
			member.Close()
		})
	}
	ends.Wait()
	c.watches.Wait()
}

func (c *Cluster) start(ctx context.Context, config Config) error {
	members, err := memberConfigs(config)
	if err != nil {
		return err
	}
	return c.startMembers(ctx, members)
}

func (c *Cluster) startMembers(ctx context.Context, members []*embed.Config) error {
	for _, memberConfig := range members {
		memberConfig.ServiceRegister = c.remember
		member, err := embed.StartEtcd(memberConfig)
		if err != nil {
			return err
		}
		c.members = append(c.members, member)
		c.watches.Go(func() { c.watch(member) })
	}
	return c.awaitLeader(ctx)
}

func (c *Cluster) remember(server *grpc.Server) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.servers = append(c.servers, server)
}

// awaitLeader waits for all members, because one alone has no leader to be ready with.
func (c *Cluster) awaitLeader(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, member := range c.members {
		select {
		case <-member.Server.ReadyNotify():
		case err := <-c.failed:
			return err
		case <-ctx.Done():
			return fmt.Errorf("await leader: %w", ctx.Err())
		}
	}
	return nil
}

func (c *Cluster) watch(member *embed.Etcd) {
	select {
	case err, open := <-member.Err():
		if !open {
			err = errors.New("its listeners closed")
		}
		c.report(err)
	case <-member.Server.StopNotify():
		c.report(errors.New("its server stopped"))
	case <-c.stopped:
	}
}

// report drops what follows from a wanted stop.
func (c *Cluster) report(err error) {
	select {
	case <-c.stopped:
	default:
		c.failed <- fmt.Errorf("etcd %s: %w", c.name, err)
	}
}

// memberConfigs chooses all ports beforehand: the members must be told each other's, and
// a member's own JSON gateway dials the port that it was told, not the one it listens on.
func memberConfigs(config Config) ([]*embed.Config, error) {
	chosen := config.Ports
	if len(chosen) == 0 {
		var err error
		if chosen, err = ports.FreeSeveral(2 * config.Members); err != nil {
			return nil, err
		}
	}
	configs := make([]*embed.Config, config.Members)
	initial := make([]string, config.Members)
	for i := range config.Members {
		member := embed.NewConfig()
		member.Name = fmt.Sprintf("%s-%d", config.Name, i)
		member.Dir = filepath.Join(config.Folder, member.Name)
		member.ListenClientUrls = []url.URL{loopback(chosen[2*i])}
		member.AdvertiseClientUrls = member.ListenClientUrls
		member.ListenPeerUrls = []url.URL{loopback(chosen[2*i+1])}
		member.AdvertisePeerUrls = member.ListenPeerUrls
		// As a kcp shard does with its etcd.
		member.AutoCompactionMode, member.AutoCompactionRetention = embed.CompactorModePeriodic, "5m"
		member.QuotaBackendBytes = config.QuotaBytes
		member.LogLevel, member.LogOutputs = "warn", []string{config.LogFile}
		configs[i] = member
		initial[i] = member.Name + "=" + member.ListenPeerUrls[0].String()
	}
	for _, member := range configs {
		member.InitialCluster = strings.Join(initial, ",")
		member.InitialClusterToken = config.Name
	}
	return configs, nil
}

func loopback(port int) url.URL { return url.URL{Scheme: "http", Host: ports.Address(port)} }
