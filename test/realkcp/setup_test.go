package realkcp

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/test/installation"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

var apiServers = flag.Int("api-servers", 1, "API servers of each shard")

const (
	rootShard  = "root"
	otherShard = "shard-1"
	// deadline bounds every wait; it is far above what two busy cores need.
	deadline  = 2 * time.Minute
	pollEvery = 20 * time.Millisecond
	// progressTail is how many bytes of a failed move's progress are worth reading.
	progressTail = 1_000
	// settleTime is how long kcp's controllers get to do harm, where what must be seen is that they do none.
	settleTime = 5 * time.Second
)

// stack is the installation that all tests share, with a worker beside each shard.
type stack struct {
	*installation.Installation
	workers map[string]*installation.Process
}

// shared is started by the first test that needs it: a real kcp takes about a minute.
var shared struct {
	start sync.Once
	dir   string
	stack *stack
	err   error
}

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if err := tearDown(code != 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func tearDown(keepLogs bool) error {
	if shared.dir == "" {
		return nil
	}
	var err error
	if shared.stack != nil {
		err = shared.stack.Stop()
	}
	if keepLogs || err != nil {
		fmt.Fprintln(os.Stderr, "logs are kept in", shared.dir)
		return err
	}
	return os.RemoveAll(shared.dir)
}

// theStack gives the shared installation, and skips the test where there is no kcp.
func theStack(t testing.TB) *stack {
	t.Helper()
	requireBinaries(t)
	shared.start.Do(func() { shared.err = startShared(t.Context()) })
	require.NoError(t, shared.err)
	return shared.stack
}

func requireBinaries(t testing.TB) {
	t.Helper()
	for _, binary := range []string{"kcp", "kcp-front-proxy", "cache-server"} {
		if _, err := exec.LookPath(filepath.Join(os.Getenv("KCP_BIN_DIR"), binary)); err != nil {
			t.Skipf("a real kcp is needed, on PATH or in $KCP_BIN_DIR: %v", err)
		}
	}
}

func startShared(ctx context.Context) (err error) {
	if shared.dir, err = os.MkdirTemp("", "kcp-migrate-realkcp-"); err != nil {
		return err
	}
	shared.stack, err = startStack(ctx, shared.dir)
	return err
}

// startStack gives a stack that is to be stopped even where there is an error too.
func startStack(ctx context.Context, dir string, flags ...string) (*stack, error) {
	running, err := installation.Start(ctx, installation.Options{
		Dir: dir, KCP: true, Extra: append([]string{"--api-servers", strconv.Itoa(*apiServers)}, flags...),
	})
	if err != nil {
		return nil, err
	}
	started := &stack{Installation: running, workers: map[string]*installation.Process{}}
	for _, shard := range running.Shards {
		if started.workers[shard.Name], err = running.StartWorker(ctx, shard.Name); err != nil {
			return started, err
		}
	}
	return started, nil
}

// move moves a workspace with the command line, and tells how it went.
func (s *stack) move(t testing.TB, path, destination string) workflows.Result {
	t.Helper()
	var progress bytes.Buffer
	result, err := s.Move(t.Context(), &progress, path, destination)
	require.NoError(t, err, "progress ended: %s", progress.Bytes()[max(0, progress.Len()-progressTail):])
	require.Equal(t, workflows.Completed, result.Phase)
	for _, straggler := range result.Stragglers {
		require.True(t, straggler.Discarded, straggler)
	}
	t.Logf("moved %s (%s) to shard %s: %d entries, %d bytes, away for %s; discarded at the origin: %d; warnings: %q",
		path, result.LogicalCluster, destination, result.Entries, result.Bytes, time.Duration(result.TimeAway), len(result.Stragglers), result.Warnings)
	return result
}

// command runs the command line and expects an exit code.
func (s *stack) command(t testing.TB, exitCode int, arguments ...string) string {
	t.Helper()
	var errors bytes.Buffer
	outcome, err := s.Run(t.Context(), &errors, arguments...)
	require.NoError(t, err)
	require.Equal(t, exitCode, outcome.ExitCode, "%q: %s", arguments, &errors)
	return string(outcome.Stdout)
}

// shard finds a shard of the installation.
func (s *stack) shard(t testing.TB, name string) installation.Shard {
	t.Helper()
	shard, err := s.Shard(name)
	require.NoError(t, err)
	return shard
}

// await looks at a condition until it gives no error any more.
func await(t testing.TB, what string, condition func(ctx context.Context) error) {
	t.Helper()
	require.NoError(t, poll(t.Context(), deadline, what, condition))
}

func poll(ctx context.Context, within time.Duration, what string, condition func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for last := errors.New("not looked at yet"); ; {
		err := condition(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("await %s: %w (last: %w)", what, ctx.Err(), last)
		case <-ticker.C:
		}
	}
}

// holds looks at a condition for as long as controllers get to break it.
func holds(t testing.TB, what string, condition func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), settleTime)
	defer cancel()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		if err := condition(ctx); err != nil && ctx.Err() == nil {
			require.NoError(t, err, what)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
