package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	binaryLimit = 80 << 20
	// startLimit is on busy cores; a start takes some ten milliseconds.
	startLimit = time.Second
)

func TestBinary_HasNoServerCode(t *testing.T) {
	packages, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "../../cmd/kcp-migrate").Output()
	require.NoError(t, err)
	for name := range strings.Lines(string(packages)) {
		require.False(t, strings.HasPrefix(name, "go.temporal.io/server"), name)
		require.False(t, strings.HasPrefix(name, "go.etcd.io/etcd/server"), name)
		require.False(t, strings.HasPrefix(name, "github.com/temporalio/ui-server"), name)
	}
}

func TestBinary_IsSmallAndStartsFast(t *testing.T) {
	program := filepath.Join(os.Getenv("KCP_MIGRATE_BIN_DIR"), "kcp-migrate")
	info, err := os.Stat(program)
	require.NoError(t, err, "run `make build` and set KCP_MIGRATE_BIN_DIR")
	require.Less(t, info.Size(), int64(binaryLimit))

	started := time.Now()
	require.NoError(t, exec.CommandContext(t.Context(), program, "version").Run())
	require.Less(t, time.Since(started), startLimit)
}
