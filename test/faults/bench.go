package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.temporal.io/sdk/client"

	"github.com/kcp-migrate/kcp-migrate/test/installation"
)

const (
	// etcdMembers is how many members each shard's etcd has: one dies alone, the other shard's can lose a member.
	rootMembers, shard1Members = 1, 3
	// readyDeadline bounds how long all parts may take until they serve, at the start and after a case.
	readyDeadline = 90 * time.Second
	pollEvery     = 50 * time.Millisecond
)

// bench is an installation of which every part that may fail is a process of its own, and every connection a proxy.
type bench struct {
	*installation.Installation
	folder   string
	binDir   string
	temporal client.Client
	control  *control

	temporalServer *program
	etcds          map[string][]*program
	etcdEndpoints  map[string][]string
	frontDoor      *program
	workers        map[string]*program
	workerHealth   map[string]string
	frontDoorURL   string
	links          []link
	// clients reach the shards' etcds past all proxies.
	clients map[string]*clientv3.Client
	// emptied is until which revision a tenant's entries may have been deleted on a shard.
	emptied map[abode]int64
	// marker is the value of a Secret of every tenant.
	marker string
	stops  []func() error
}

// link is a proxy and what it connects.
type link struct {
	*proxy
	from, to string
}

// benchOptions say what to start.
type benchOptions struct {
	binDir, folder string
	// bug is what the workers are to do wrong.
	bug string
	// entries fatten root:consumer.
	entries int
}

func startBench(ctx context.Context, options benchOptions) (*bench, error) {
	b := &bench{
		folder: options.folder, binDir: options.binDir,
		etcds: map[string][]*program{}, etcdEndpoints: map[string][]string{},
		workers: map[string]*program{}, workerHealth: map[string]string{}, clients: map[string]*clientv3.Client{}, emptied: map[abode]int64{},
	}
	if err := b.start(ctx, options); err != nil {
		return nil, errors.Join(err, b.Stop())
	}
	return b, nil
}

// Stop ends all parts, the last one started first.
func (b *bench) Stop() error {
	var failures []error
	for i := len(b.stops) - 1; i >= 0; i-- {
		failures = append(failures, b.stops[i]())
	}
	return errors.Join(failures...)
}

func (b *bench) onStop(stop func() error) { b.stops = append(b.stops, stop) }

func (b *bench) start(ctx context.Context, options benchOptions) error {
	var err error
	if b.control, err = startControl(); err != nil {
		return err
	}
	b.onStop(b.control.close)
	temporalAddress, err := b.startTemporal()
	if err != nil {
		return err
	}
	for shard, members := range map[string]int{"root": rootMembers, "shard-1": shard1Members} {
		if err := b.startEtcd(shard, members); err != nil {
			return err
		}
	}
	if err := b.startDevstack(ctx, temporalAddress, options.entries); err != nil {
		return err
	}
	if err := b.startFrontDoor(); err != nil {
		return err
	}
	if b.temporal, err = b.Temporal(ctx); err != nil {
		return err
	}
	b.onStop(func() error { b.temporal.Close(); return nil })
	if err := b.startWorkers(temporalAddress, options.bug); err != nil {
		return err
	}
	if err := b.awaitReady(ctx); err != nil {
		return err
	}
	return b.markSecrets(ctx)
}

func (b *bench) run(name string, path string, arguments ...string) (*program, error) {
	started, err := startProgram(b.folder, name, filepath.Join(b.binDir, path), arguments...)
	if err != nil {
		return nil, err
	}
	b.onStop(started.stop)
	return started, nil
}

// through puts a proxy between two parts and gives its address.
func (b *bench) through(from, to, target string) (string, error) {
	proxy, err := startProxy(target)
	if err != nil {
		return "", fmt.Errorf("put a proxy between %s and %s: %w", from, to, err)
	}
	b.onStop(proxy.close)
	b.links = append(b.links, link{proxy: proxy, from: from, to: to})
	return proxy.address(), nil
}

func (b *bench) startTemporal() (address string, err error) {
	ports, err := freePorts(2)
	if err != nil {
		return "", err
	}
	b.temporalServer, err = b.run("temporal", "devstack", "temporal", "--port", strconv.Itoa(ports[0]), "--ui-port", strconv.Itoa(ports[1]),
		"--temporal-file", b.temporalFile())
	return local(ports[0]), err
}

func (b *bench) temporalFile() string { return filepath.Join(b.folder, "temporal", "temporal.db") }

func (b *bench) startEtcd(shard string, members int) error {
	ports, err := freePorts(2 * members)
	if err != nil {
		return err
	}
	list := strings.Trim(strings.ReplaceAll(fmt.Sprint(ports), " ", ","), "[]")
	for member := range members {
		name := etcdName(shard, member)
		process, err := b.run(name, "devstack", "etcd", "--name", shard, "--dir", filepath.Join(b.folder, "etcd"),
			"--log-file", filepath.Join(b.folder, name+".etcd.log"), "--ports", list, "--member", strconv.Itoa(member))
		if err != nil {
			return err
		}
		b.etcds[shard] = append(b.etcds[shard], process)
		b.etcdEndpoints[shard] = append(b.etcdEndpoints[shard], local(ports[2*member]))
	}
	return nil
}

func etcdName(shard string, member int) string { return fmt.Sprintf("etcd-%s-%d", shard, member) }

// etcdThrough gives the URLs at which a part reaches a shard's etcd.
func (b *bench) etcdThrough(from, shard string) ([]string, error) {
	var urls []string
	for member, endpoint := range b.etcdEndpoints[shard] {
		address, err := b.through(from, etcdName(shard, member), endpoint)
		if err != nil {
			return nil, err
		}
		urls = append(urls, "http://"+address)
	}
	return urls, nil
}

// startDevstack starts the shards' API servers and the front door that nothing happens to, over the etcds.
func (b *bench) startDevstack(ctx context.Context, temporalAddress string, entries int) error {
	flags := []string{"--temporal-address", temporalAddress}
	for shard := range b.etcdEndpoints {
		urls, err := b.etcdThrough("kcp", shard)
		if err != nil {
			return err
		}
		flags = append(flags, "--etcd", shard+"="+strings.Join(urls, " "))
	}
	running, err := installation.Start(ctx, installation.Options{BinDir: b.binDir, Dir: b.folder, Entries: entries, Extra: flags})
	if err != nil {
		return err
	}
	b.Installation = running
	b.onStop(running.Stop)
	// What the bench itself reads and writes there must not be cut.
	for i := range b.Shards {
		b.Shards[i].EtcdEndpoints = nil
		for _, endpoint := range b.etcdEndpoints[b.Shards[i].Name] {
			b.Shards[i].EtcdEndpoints = append(b.Shards[i].EtcdEndpoints, "http://"+endpoint)
		}
		etcd, err := b.Shards[i].Etcd(ctx)
		if err != nil {
			return err
		}
		b.onStop(etcd.Close)
		b.clients[b.Shards[i].Name] = etcd
	}
	return nil
}

func (b *bench) startFrontDoor() error {
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	b.frontDoor, err = b.run("front-door", "devstack", "front-door", "--dir", b.Dir, "--port", strconv.Itoa(ports[0]))
	if err != nil {
		return err
	}
	address, err := b.through("workers", "front-door", local(ports[0]))
	b.frontDoorURL = "https://" + address
	return err
}

func (b *bench) startWorkers(temporalAddress, bug string) error {
	transfers := map[string]string{}
	ports, err := freePorts(2 * len(b.Shards))
	if err != nil {
		return err
	}
	for i, shard := range b.Shards {
		transfers[shard.Name] = local(ports[2*i])
		b.workerHealth[shard.Name] = local(ports[2*i+1])
	}
	for _, shard := range b.Shards {
		name := workerName(shard.Name)
		etcd, err := b.etcdThrough(name, shard.Name)
		if err != nil {
			return err
		}
		temporal, err := b.through(name, "temporal", temporalAddress)
		if err != nil {
			return err
		}
		advertised, err := b.through("worker", name, transfers[shard.Name])
		if err != nil {
			return err
		}
		b.workers[shard.Name], err = b.run(name, "faults-worker", "--config", shard.WorkerConfig,
			"--control", b.control.url(), "--break", bug,
			"--etcd-endpoints", strings.Join(etcd, ","), "--temporal-address", temporal,
			"--transfer-listen", transfers[shard.Name], "--transfer-advertise", advertised,
			"--front-proxies", b.frontDoorURL+","+b.FrontProxies[0], "--health-listen", b.workerHealth[shard.Name])
		if err != nil {
			return err
		}
	}
	return nil
}

func workerName(shard string) string { return "worker-" + shard }

// awaitReady waits until every part serves.
func (b *bench) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyDeadline)
	defer cancel()
	for _, address := range b.workerHealth {
		if err := awaitOK(ctx, "http://"+address+"/readyz"); err != nil {
			return err
		}
	}
	for shard, endpoints := range b.etcdEndpoints {
		for _, endpoint := range endpoints {
			if err := awaitOK(ctx, "http://"+endpoint+"/health"); err != nil {
				return fmt.Errorf("await etcd of shard %s: %w", shard, err)
			}
		}
	}
	return b.awaitFrontDoor(ctx)
}

func (b *bench) awaitFrontDoor(ctx context.Context) error {
	root, err := b.clientAt(b.frontDoorURL, "root")
	if err != nil {
		return err
	}
	return await(ctx, "the front door", func() error { return root.ask(ctx, "/api/v1/namespaces/default") })
}

func awaitOK(ctx context.Context, url string) error {
	return await(ctx, url, func() error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d", response.StatusCode)
		}
		return nil
	})
}

// await asks until it gets no error, or gives the last one when ctx ends.
func await(ctx context.Context, what string, ask func() error) error {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("await %s: %w", what, err)
		case <-ticker.C:
		}
	}
}

// freePorts gives ports that nobody listens on.
func freePorts(count int) ([]int, error) {
	addresses, err := installation.FreeAddresses(count)
	if err != nil {
		return nil, err
	}
	ports := make([]int, count)
	for i, address := range addresses {
		found, err := netip.ParseAddrPort(address)
		if err != nil {
			return nil, err
		}
		ports[i] = int(found.Port())
	}
	return ports, nil
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// makeFolder makes the folder of a bench; it is kept when something went wrong.
func makeFolder() (string, error) { return os.MkdirTemp("", "kcp-migrate-faults-") }
