package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/installation"
	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/realkcp"
)

const (
	// asDevstack and asParent make this test binary another program, see TestMain.
	asDevstack = "DEVSTACK_TEST_AS_DEVSTACK"
	asParent   = "DEVSTACK_TEST_AS_PARENT"

	readyTimeout = 2 * time.Minute
	stopTimeout  = time.Minute
	pollInterval = 50 * time.Millisecond
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(asDevstack) != "":
		main()
	case os.Getenv(asParent) != "":
		parent()
	default:
		os.Exit(m.Run())
	}
}

func TestDevstack_WhenInterrupted_StopsAllAndExitsZero(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "state")
	devstack := start(t, "--free-ports", "--dir", folder, "--api-servers", "2", "--front-doors", "2")
	state := devstack.awaitState(t, folder, readyTimeout)

	require.Equal(t, devstack.cmd.Process.Pid, state.PID)
	require.Len(t, state.FrontProxies, 2)
	requireServes(t, state.UIURL+"/healthz")
	requireServes(t, state.Shards[0].EtcdEndpoints[0]+"/health")
	for _, shard := range state.Shards {
		require.Len(t, shard.APIServers, 2)
		requireWorkerConfig(t, shard)
		requireKubeconfigOf(t, shard.Kubeconfig, shard.APIServers[0])
	}
	requireKubeconfigOf(t, state.Kubeconfig, state.FrontProxies[0]+"/clusters/root")

	require.NoError(t, devstack.cmd.Process.Signal(os.Interrupt))
	require.NoError(t, devstack.wait(t))
	require.Empty(t, devstack.stderr.String())
	require.Contains(t, devstack.stdout.String(), state.UIURL)
	require.Contains(t, devstack.stdout.String(), "not kcp itself")
	require.NoFileExists(t, filepath.Join(folder, "devstack.json"))
	_, err := net.Dial("tcp", state.TemporalAddress)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

func TestDevstack_WhenItsParentEnds_EndsToo(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "state")
	cmd := exec.Command(os.Args[0], "--free-ports", "--exit-with-parent", "--dir", folder)
	cmd.Env = append(os.Environ(), asParent+"=1")
	require.NoError(t, cmd.Run(), "the parent ends once devstack is ready")

	lock := flock.New(filepath.Join(folder, lockName))
	require.Eventually(t, func() bool {
		locked, err := lock.TryLock()
		return err == nil && locked
	}, stopTimeout, pollInterval, "devstack lets go of its folder")
	require.NoError(t, lock.Unlock())
	require.NoFileExists(t, filepath.Join(folder, "devstack.json"))
}

func TestRun_WhenAFixedPortIsTaken_SaysWhatToDo(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:7233")
	if err == nil { // else somebody else takes it
		t.Cleanup(func() { require.NoError(t, listener.Close()) })
	}
	code, stderr := runHere(t)
	require.Equal(t, exitError, code)
	require.Contains(t, stderr, "--free-ports")
	require.Contains(t, stderr, "address already in use")
}

func TestRun_WhenAFolderIsNotItsOwn_LeavesItAlone(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "logs")
	require.NoError(t, os.WriteFile(file, []byte("precious"), 0o600))
	code, stderr := runHere(t, "--free-ports", "--dir", folder)
	require.Equal(t, exitError, code)
	require.Contains(t, stderr, "not empty")
	require.FileExists(t, file)
}

func TestRun_WhenKcpIsNotInstalled_SaysWhereItLooked(t *testing.T) {
	t.Setenv(realkcp.BinaryFolderVariable, t.TempDir())
	code, stderr := runHere(t, "--free-ports", "--kcp")
	require.Equal(t, exitError, code)
	require.Contains(t, stderr, "$"+realkcp.BinaryFolderVariable)
}

func TestRun_WithWrongFlags_ExitsWithUsage(t *testing.T) {
	for _, args := range [][]string{
		{"--nonsense"}, {"argument"}, {"--entries=-1"}, {"--api-servers=0"}, {"--front-doors=0"}, {"--etcd-members=2"}, {"--kcp", "--separate-signing-keys"},
		{"--etcd-prefix=shard-1=/elsewhere"}, {"--encryption-provider-config=root"},
	} {
		code, stderr := runHere(t, args...)
		require.Equal(t, exitUsage, code, args)
		require.NotEmpty(t, stderr)
	}
}

// It is the whole of --kcp in one test, because a real kcp takes long to start.
func TestDevstack_WithRealKcp_IsFilledAndStopsWhenAPartDies(t *testing.T) {
	if testing.Short() {
		t.Skip("a real kcp takes a minute to start")
	}
	if _, err := realkcp.FindBinaries(); err != nil {
		t.Skip(err)
	}
	folder := filepath.Join(t.TempDir(), "state")
	devstack := start(t, "--kcp", "--free-ports", "--dir", folder, "--entries", "20")
	state := devstack.awaitState(t, folder, 5*time.Minute)
	require.True(t, state.RealKcp)
	requireTenants(t, state)

	cacheServer := childNamed(t, devstack.cmd.Process.Pid, "cache-server")
	require.NoError(t, cacheServer.Kill())
	var exit *exec.ExitError
	require.ErrorAs(t, devstack.wait(t), &exit)
	require.Equal(t, exitError, exit.ExitCode())
	require.Contains(t, devstack.stderr.String(), "cache-server ended unasked")
}

// program is a devstack in a process of its own.
type program struct {
	cmd            *exec.Cmd
	ended          chan error
	stdout, stderr bytes.Buffer // to be read once it has ended
}

func start(t *testing.T, args ...string) *program {
	t.Helper()
	p := &program{cmd: exec.Command(os.Args[0], append(args, "--exit-with-parent")...), ended: make(chan error, 1)}
	p.cmd.Env = append(os.Environ(), asDevstack+"=1")
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	require.NoError(t, p.cmd.Start())
	go func() { p.ended <- p.cmd.Wait() }()
	t.Cleanup(func() { _ = p.cmd.Process.Kill() }) // most often it has ended
	return p
}

func (p *program) awaitState(t *testing.T, folder string, timeout time.Duration) installation.State {
	t.Helper()
	deadline := time.After(timeout)
	for {
		content, err := os.ReadFile(filepath.Join(folder, "devstack.json"))
		if err == nil {
			var state installation.State
			require.NoError(t, json.Unmarshal(content, &state))
			return state
		}
		select {
		case err := <-p.ended:
			require.FailNow(t, "devstack ended", "%v: %s", err, p.stderr.String())
		case <-deadline:
			require.FailNow(t, "devstack is not ready")
		case <-time.After(pollInterval):
		}
	}
}

func (p *program) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-p.ended:
		return err
	case <-time.After(stopTimeout):
		require.FailNow(t, "devstack does not end")
		return nil
	}
}

// parent starts a devstack and ends, without a word to it, once that is ready.
func parent() {
	args := os.Args[1:]
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asDevstack+"=1")
	if err := cmd.Start(); err != nil {
		os.Exit(exitError)
	}
	state := filepath.Join(args[len(args)-1], "devstack.json")
	for deadline := time.Now().Add(readyTimeout); time.Now().Before(deadline); time.Sleep(pollInterval) {
		if _, err := os.Stat(state); err == nil {
			os.Exit(exitDone)
		}
	}
	os.Exit(exitError)
}

func runHere(t *testing.T, args ...string) (code int, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), readyTimeout)
	defer cancel()
	var out, errs bytes.Buffer
	return run(ctx, args, &out, &errs), errs.String()
}

func requireServes(t *testing.T, url string) {
	t.Helper()
	response, err := http.Get(url)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode, url)
}

func requireWorkerConfig(t *testing.T, shard installation.Shard) {
	t.Helper()
	content, err := os.ReadFile(shard.WorkerConfig)
	require.NoError(t, err)
	var config map[string]any
	require.NoError(t, yaml.Unmarshal(content, &config))
	require.Equal(t, shard.Name, config["shard"])
	require.Len(t, config["api-servers"], len(shard.APIServers))
	for flag, value := range config {
		if strings.HasSuffix(flag, "-file") {
			require.FileExists(t, value.(string))
		}
	}
}

func requireKubeconfigOf(t *testing.T, file, server string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", file)
	require.NoError(t, err)
	require.Equal(t, server, config.Host)
	require.NotEmpty(t, config.CAData)
}
