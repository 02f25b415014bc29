package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
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
	client, peer, err := freeAddresses()
	if err != nil {
		return nil, err
	}
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

// freeAddresses are two that nobody listens at for the moment.
func freeAddresses() (one, other string, err error) {
	first, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	defer first.Close()
	second, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	defer second.Close()
	return first.Addr().String(), second.Addr().String(), nil
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

func (s *server) proc(file string) string {
	return filepath.Join("/proc", strconv.Itoa(s.process.Process.Pid), file)
}

// memory is RssAnon of /proc/<pid>/status: the database file, which etcd maps into memory, is not in it.
func (s *server) memory() (int64, error) {
	status, err := os.ReadFile(s.proc("status"))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(status) {
		if value, found := bytes.CutPrefix(line, []byte("RssAnon:")); found {
			kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(string(value)), " kB"), 10, 64)
			return kilobytes << 10, err
		}
	}
	return 0, errors.New("no RssAnon in /proc")
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

// processorTime is the 14th and 15th field of /proc/<pid>/stat, in hundredths of a second.
func (s *server) processorTime() (time.Duration, error) {
	stat, err := os.ReadFile(s.proc("stat"))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var ticks int64
	for _, field := range fields[11:13] {
		count, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += count
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
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
