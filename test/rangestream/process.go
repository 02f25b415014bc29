package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/kcp-migrate/kcp-migrate/test/installation"
)

const (
	startTimeout = time.Minute
	memoryTick   = 5 * time.Millisecond
)

// server is an etcd as a process.
type server struct {
	endpoint string
	process  *exec.Cmd
	// atRest is its memory before anything was asked of it.
	atRest int64
}

// startEtcd runs one on the data in a folder.
func startEtcd(binary, folder string) (*server, error) {
	addresses, err := installation.FreeAddresses(2)
	if err != nil {
		return nil, err
	}
	client, peer := addresses[0], addresses[1]
	s := &server{endpoint: client}
	s.process = exec.Command(binary, "--data-dir", folder, "--unsafe-no-fsync", "--log-level", "panic", "--quota-backend-bytes", "8589934592",
		"--listen-client-urls", "http://"+client, "--advertise-client-urls", "http://"+client,
		"--listen-peer-urls", "http://"+peer, "--initial-advertise-peer-urls", "http://"+peer, "--initial-cluster", "default=http://"+peer)
	if err := s.process.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", binary, err)
	}
	if err := s.await(); err != nil {
		return nil, errors.Join(fmt.Errorf("await %s: %w", binary, err), s.stop())
	}
	s.atRest, err = s.memory()
	return s, err
}

func (s *server) await() error {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{s.endpoint}})
	if err != nil {
		return err
	}
	defer etcd.Close()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	_, err = etcd.Get(ctx, "ready")
	return err
}

func (s *server) stop() error {
	if err := s.process.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	// It says how it was told to end, which is no failure.
	_ = s.process.Wait()
	return nil
}

// readInProcess has a process of its own read once, and adds what that cost the server.
func (s *server) readInProcess(ctx context.Context, contender string) (reading, error) {
	before, err := s.processorTime()
	if err != nil {
		return reading{}, err
	}
	own, err := os.Executable()
	if err != nil {
		return reading{}, err
	}
	child := exec.CommandContext(ctx, own, "--read", contender, "--endpoint", s.endpoint)
	child.Stderr = os.Stderr
	peak := s.watchMemory()
	output, err := child.Output()
	most := peak()
	if err != nil {
		return reading{}, fmt.Errorf("read by %s: %w", contender, err)
	}
	var one reading
	if err := json.Unmarshal(output, &one); err != nil {
		return reading{}, err
	}
	after, err := s.processorTime()
	if err != nil {
		return reading{}, err
	}
	one.ServerMilliseconds = milliseconds(after - before)
	one.ServerBytes = most - s.atRest
	return one, nil
}

// memory leaves out the database file, which etcd maps into memory.
func (s *server) memory() (int64, error) {
	return installation.Memory(s.process.Process.Pid, installation.OwnMemory)
}

// watchMemory looks at the memory every few milliseconds; peak ends that and gives the most.
func (s *server) watchMemory() (peak func() int64) {
	stop, stopped := make(chan struct{}), make(chan int64)
	go func() {
		ticker := time.NewTicker(memoryTick)
		defer ticker.Stop()
		var most int64
		for {
			if now, err := s.memory(); err == nil {
				most = max(most, now)
			}
			select {
			case <-ticker.C:
			case <-stop:
				stopped <- most
				return
			}
		}
	}()
	return func() int64 { close(stop); return <-stopped }
}

func (s *server) processorTime() (time.Duration, error) {
	return installation.ProcessorTime(s.process.Process.Pid)
}

const (
	fillTxnBytes = 1 << 20
	fillTxnOps   = 128
	fillInFlight = 4
	// A shard has some hundred resources, most of which hold little.
	smallResources = 100
	neighbours     = 50
)

// fill puts a tenant between its neighbours.
func fill(ctx context.Context, endpoint string, shape shape) error {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}})
	if err != nil {
		return err
	}
	defer etcd.Close()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(fillInFlight)
	var puts []clientv3.Op
	size := 0
	flush := func() {
		txn := puts
		group.Go(func() error {
			_, err := etcd.Txn(ctx).Then(txn...).Commit()
			return err
		})
		puts, size = nil, 0
	}
	put := func(key, value string) {
		puts = append(puts, clientv3.OpPut(key, value))
		if size += len(value); len(puts) == fillTxnOps || size > fillTxnBytes {
			flush()
		}
	}
	for i := range smallResources {
		// Half of them come before the large ones of the core group, half behind.
		group := []string{"api", "group"}[i%2]
		put(fmt.Sprintf("%s%s%03d.io/things/root/thing", shardPrefix, group, i), "{}")
	}
	value := strings.Repeat("v", 1000)
	for i := range shape.Neighbours {
		name := string(rune('a'+i%neighbours%26)) + strconv.Itoa(i%neighbours) + strings.Repeat("x", 10)
		put(fmt.Sprintf("%score/%s/%s/default/object-%08d", shardPrefix, resourceOf(i), name, i), value)
	}
	value = strings.Repeat("v", shape.ValueBytes)
	for i := range shape.Keys {
		put(fmt.Sprintf("%score/%s/%s/default/object-%08d", shardPrefix, resourceOf(i), tenantName, i), value)
	}
	flush()
	return group.Wait()
}

func resourceOf(i int) string { return []string{"configmaps", "secrets"}[i%2] }
