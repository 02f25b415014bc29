package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/ports"
)

func TestEtcd_KilledAndStartedAgain_KeepsItsData(t *testing.T) {
	free, err := ports.FreeSeveral(2)
	require.NoError(t, err)
	folder, url := t.TempDir(), "http://"+ports.Address(free[0])
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{url}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	startMember := func() *exec.Cmd {
		member := exec.Command(os.Args[0], "etcd", "--name", "root", "--dir", folder, "--log-file", filepath.Join(folder, "log"),
			"--ports", strconv.Itoa(free[0])+","+strconv.Itoa(free[1]))
		member.Env = append(os.Environ(), asDevstack+"=1")
		require.NoError(t, member.Start())
		require.Eventually(t, func() bool {
			response, err := http.Get(url + "/health")
			return err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusOK
		}, readyTimeout, pollInterval)
		return member
	}

	first := startMember()
	_, err = client.Put(t.Context(), "kept", "value")
	require.NoError(t, err)
	require.NoError(t, first.Process.Kill())
	require.Error(t, first.Wait())

	second := startMember()
	found, err := client.Get(t.Context(), "kept")
	require.NoError(t, err)
	require.Len(t, found.Kvs, 1)
	require.NoError(t, second.Process.Signal(os.Interrupt))
	require.NoError(t, second.Wait())
}

func TestParts_WithWrongFlags_ExitWithUsage(t *testing.T) {
	for name := range parts {
		code, stderr := runHere(t, name, "--nonsense")
		require.Equal(t, exitUsage, code, name)
		require.NotEmpty(t, stderr)
	}
}

func TestEtcd_OfAMemberThatIsNotNamed_SaysSo(t *testing.T) {
	code, stderr := runHere(t, "etcd", "--ports", "1,2", "--member", "1")
	require.Equal(t, exitError, code)
	require.Contains(t, stderr, "--member 1 is none of them")
}

func TestAPIServer_OfAnUnknownRole_SaysSo(t *testing.T) {
	code, stderr := runHere(t, "api-server", "--role", "idle")
	require.Equal(t, exitError, code)
	require.Contains(t, stderr, "--role must be accompanying or following")
}
