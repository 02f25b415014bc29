// Package installation composes a whole installation to move tenants in: Temporal with
// its web UI, an etcd per shard, and either the simulation of kcp over them or a real kcp.
package installation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/etcdserver"
	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/fixtures"
	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/temporal"
)

// Kind is what answers for kcp.
type Kind string

const (
	// Simulated is a stand-in that speaks kcp's API over the shards' etcds.
	Simulated Kind = "simulated"
	// RealKcp is kcp's own binaries.
	RealKcp Kind = "kcp"
)

// Options say what the installation consists of.
type Options struct {
	// Folder takes all state, logs, certificates and configuration files.
	Folder string
	Kind   Kind
	Ports  Ports
	// Entries is by how many ConfigMaps root:consumer is fattened.
	Entries int
	// APIServers is how many API servers each shard has.
	APIServers int
	// LeaderElection has the API servers of each shard of a real kcp elect the one whose controllers run.
	LeaderElection bool
	// EtcdMembers is how many members each shard's etcd has.
	EtcdMembers int
	// SeparateSigningKeys gives each simulated shard its own keys for ServiceAccount tokens.
	SeparateSigningKeys bool
	// EncryptionConfigs are the files that the API servers of a real kcp's shards get as --encryption-provider-config, and
	// EtcdPrefixes what they get as --etcd-prefix; a shard that is not in them stores in the clear, below the usual prefix.
	EncryptionConfigs map[string]string
	EtcdPrefixes      map[string]string
	// TemporalFile keeps Temporal's state across restarts; empty keeps it in memory.
	TemporalFile string
	// TemporalAddress is of a Temporal that runs elsewhere; empty starts one.
	TemporalAddress string
	// Etcds are the endpoints of shards' etcds that run elsewhere, and are empty; without them it starts its own.
	Etcds map[string][]string
}

// Installation is all that runs.
type Installation struct {
	// State says where everything is.
	State State

	options Options
	failed  chan error
	ended   chan struct{}

	mutex sync.Mutex // guards what follows while the etcds start beside each other
	etcds map[string][]string
	stops []func() error
}

// Start returns once everything serves and <folder>/devstack.json says where.
func Start(ctx context.Context, options Options) (*Installation, error) {
	i := &Installation{
		options: options,
		etcds:   maps.Clone(options.Etcds),
		failed:  make(chan error, 1),
		ended:   make(chan struct{}),
	}
	if err := i.start(ctx); err != nil {
		return nil, errors.Join(err, i.Stop())
	}
	return i, nil
}

// Failed delivers the error of the first part that died.
func (i *Installation) Failed() <-chan error { return i.failed }

// Stop ends all parts, the last one started first.
func (i *Installation) Stop() error {
	close(i.ended)
	var err error
	for n := len(i.stops) - 1; n >= 0; n-- {
		err = errors.Join(err, i.stops[n]())
	}
	return err
}

func (i *Installation) start(ctx context.Context) error {
	if err := i.prepareFolder(); err != nil {
		return err
	}
	if err := i.startTemporal(ctx); err != nil {
		return err
	}
	if err := i.startEtcds(ctx); err != nil {
		return err
	}
	kcp, err := i.startKcp(ctx)
	if err != nil {
		return err
	}
	i.State, err = i.writeFiles(kcp)
	return err
}

// prepareFolder clears what an earlier installation left: shards are always filled anew.
func (i *Installation) prepareFolder() error {
	for _, leftover := range []string{i.stateFile(), i.folder("etcd"), i.folder("kcp"), i.folder("logs")} {
		if err := os.RemoveAll(leftover); err != nil {
			return fmt.Errorf("clear folder %s: %w", i.options.Folder, err)
		}
	}
	i.onStop(func() error { return os.RemoveAll(i.stateFile()) })
	return os.MkdirAll(i.folder("logs"), 0o700)
}

func (i *Installation) startTemporal(ctx context.Context) error {
	if i.options.TemporalAddress != "" {
		i.State.TemporalAddress = i.options.TemporalAddress
		return nil
	}
	server, err := temporalserver.Start(ctx, temporalserver.Config{
		Port: i.options.Ports.Temporal, UIPort: i.options.Ports.UI, File: i.options.TemporalFile,
	})
	if err != nil {
		return err
	}
	i.onStop(server.Stop)
	i.watch(server.Failed())
	i.State.TemporalAddress, i.State.UIURL = server.Address(), server.UIURL()
	return nil
}

// startEtcds starts one for each shard, at once: each waits a second for its election.
func (i *Installation) startEtcds(ctx context.Context) error {
	if len(i.etcds) > 0 {
		return nil
	}
	i.etcds = map[string][]string{}
	var starts errgroup.Group
	for _, shard := range fixtures.Shards {
		starts.Go(func() error {
			etcd, err := i.startEtcd(ctx, etcdserver.Config{Name: shard, Members: i.options.EtcdMembers})
			if err != nil {
				return err
			}
			i.mutex.Lock()
			defer i.mutex.Unlock()
			i.etcds[shard] = etcd.Endpoints()
			return nil
		})
	}
	return starts.Wait()
}

func (i *Installation) startEtcd(ctx context.Context, config etcdserver.Config) (*etcdserver.Cluster, error) {
	config.Folder, config.LogFile = i.folder("etcd"), i.logFile("etcd-"+config.Name)
	etcd, err := etcdserver.Start(ctx, config)
	if err != nil {
		return nil, err
	}
	i.onStop(func() error { etcd.Stop(); return nil })
	i.watch(etcd.Failed())
	return etcd, nil
}

func (i *Installation) startKcp(ctx context.Context) (kcp, error) {
	if i.options.Kind == RealKcp {
		return i.startRealKcp(ctx)
	}
	return i.startSimulation(ctx)
}

func (i *Installation) onStop(stop func() error) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	i.stops = append(i.stops, stop)
}

// watch passes on the first failure of a part.
func (i *Installation) watch(failed <-chan error) {
	go func() {
		select {
		case err := <-failed:
			select {
			case i.failed <- err:
			default: // another part died first and is the cause
			}
		case <-i.ended:
		}
	}()
}

func (i *Installation) folder(name string) string { return filepath.Join(i.options.Folder, name) }

func (i *Installation) logFile(name string) string {
	return filepath.Join(i.folder("logs"), name+".log")
}
