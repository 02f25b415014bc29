// Package realkcp runs a real kcp of several shards out of kcp's own binaries: a cache
// server, each shard with one or more API servers over an etcd given by the caller, and
// front-proxies. What they must be told was learned from kcp's cmd/sharded-test-server.
package realkcp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/certificates"
	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/fixtures"
	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/ports"
)

const (
	// readyTimeout bounds the start of one process; a shard takes 20 s on two busy cores.
	readyTimeout = 3 * time.Minute
	pollInterval = 200 * time.Millisecond
)

// Config says what the kcp consists of.
type Config struct {
	Binaries Binaries
	// Folder takes certificates and what the processes keep.
	Folder    string
	LogFolder string
	// CacheEtcd and ShardEtcds are the endpoints of the cache server's and of each shard's etcd.
	CacheEtcd  []string
	ShardEtcds map[string][]string
	// Encryption has the EncryptionConfiguration file of each shard that encrypts, and EtcdPrefixes the storage prefix of
	// each that has not the usual one.
	Encryption   map[string]string
	EtcdPrefixes map[string]string
	// APIServers is how many processes serve each shard.
	APIServers int
	// LeaderElection lets the controllers of one process of each shard run at a time.
	LeaderElection bool
	// FrontProxyPorts has one port for each front-proxy.
	FrontProxyPorts []int
}

// Kcp is a running kcp.
type Kcp struct {
	// FrontProxies are the front-proxies' URLs.
	FrontProxies []string
	// APIServers are the URLs of each shard's API servers.
	APIServers map[string][]string
	// CacheKubeconfig is the shards' own for the cache server.
	CacheKubeconfig string
	// ServingCA signed the certificates of all of them, PEM-encoded.
	ServingCA []byte
	// FrontProxyAdmin and ShardAdmin may do everything there.
	FrontProxyAdmin certificates.Pair
	ShardAdmin      certificates.Pair
	// FrontProxyWorker may do what a worker needs there, and nothing else.
	FrontProxyWorker certificates.Pair

	config         Config
	apiServerPorts map[string][]int
	pki            *pki
	processes      []*process
	failed         chan error
	ending         chan struct{}
}

// Start returns once all processes are ready.
func Start(ctx context.Context, config Config) (*Kcp, error) {
	k := &Kcp{
		APIServers:     map[string][]string{},
		config:         config,
		apiServerPorts: map[string][]int{},
		failed:         make(chan error, 1),
		ending:         make(chan struct{}),
	}
	if err := k.start(ctx); err != nil {
		k.Stop()
		return nil, fmt.Errorf("start kcp: %w", err)
	}
	return k, nil
}

// Failed delivers the failure of the first process that ended unasked.
func (k *Kcp) Failed() <-chan error { return k.failed }

// Stop ends all processes.
func (k *Kcp) Stop() {
	close(k.ending)
	var ends sync.WaitGroup
	for _, p := range k.processes {
		ends.Go(p.end)
	}
	ends.Wait()
}

func (k *Kcp) start(ctx context.Context) (err error) {
	folder := filepath.Join(k.config.Folder, "pki")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	if k.pki, err = newPKI(folder); err != nil {
		return err
	}
	k.ServingCA, k.FrontProxyAdmin, k.ShardAdmin = k.pki.serving.Certificate, k.pki.kcpAdmin, k.pki.shardAdmin
	k.FrontProxyWorker = k.pki.worker
	if err := k.choosePorts(); err != nil {
		return err
	}
	cacheURL, err := k.startCacheServer()
	if err != nil {
		return err
	}
	if err := k.awaitReady(ctx, cacheURL); err != nil {
		return err
	}
	if err := k.startFrontProxies(); err != nil {
		return err
	}
	if err := k.startShards(ctx, cacheURL); err != nil {
		return err
	}
	return k.awaitReady(ctx, k.FrontProxies...)
}

// choosePorts is done first, because the processes are told of each other.
func (k *Kcp) choosePorts() error {
	for _, port := range k.config.FrontProxyPorts {
		k.FrontProxies = append(k.FrontProxies, urlOf(port))
	}
	for _, shard := range fixtures.Shards {
		free, err := ports.FreeSeveral(k.config.APIServers)
		if err != nil {
			return err
		}
		k.apiServerPorts[shard] = free
		for _, port := range free {
			k.APIServers[shard] = append(k.APIServers[shard], urlOf(port))
		}
	}
	return nil
}

func urlOf(port int) string { return "https://" + ports.Address(port) }

// run starts a process that is to run until Stop.
func (k *Kcp) run(name string, command ...string) error {
	logFile := filepath.Join(k.config.LogFolder, name+".log")
	p, err := startProcess(name, logFile, command, func(p *process) {
		select {
		case <-k.ending:
		default:
			select {
			case k.failed <- p.failure():
			default: // another ended first and is the cause
			}
		}
	})
	if err != nil {
		return err
	}
	k.processes = append(k.processes, p)
	return nil
}

// awaitReady returns once all the URLs' servers say that they are ready.
func (k *Kcp) awaitReady(ctx context.Context, urls ...string) error {
	admin, err := tls.X509KeyPair(k.pki.shardAdmin.Certificate, k.pki.shardAdmin.Key)
	if err != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: k.pki.serving.Pool(), Certificates: []tls.Certificate{admin}, MinVersion: tls.VersionTLS12,
	}}
	defer transport.CloseIdleConnections()
	httpClient := &http.Client{Transport: transport}
	for _, url := range urls {
		err := k.poll(ctx, "await "+url+"/readyz", func(ctx context.Context) error {
			return get(ctx, httpClient, url+"/readyz")
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func get(ctx context.Context, httpClient *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := httpClient.Do(request)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return errors.Join(err, response.Body.Close())
}

// poll tries until it goes well, a process ends, or readyTimeout is over.
func (k *Kcp) poll(ctx context.Context, what string, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case failure := <-k.failed:
			k.failed <- failure // for whoever waits as well
			return fmt.Errorf("%s: %w", what, failure)
		case <-ctx.Done():
			return fmt.Errorf("%s: %w (last: %w)", what, ctx.Err(), err)
		case <-ticker.C:
		}
	}
}
