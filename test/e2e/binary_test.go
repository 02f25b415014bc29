package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const binaryLimit = 80 << 20

func TestBinary_HasNoServerCode(t *testing.T) {
	packages, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "../../cmd/kcp-migrate").Output()
	require.NoError(t, err)
	for name := range strings.Lines(string(packages)) {
		require.False(t, strings.HasPrefix(name, "go.temporal.io/server"), name)
		require.False(t, strings.HasPrefix(name, "go.etcd.io/etcd/server"), name)
		require.False(t, strings.HasPrefix(name, "github.com/temporalio/ui-server"), name)
	}
}

func TestBinary_IsSmall(t *testing.T) {
	info, err := os.Stat(program())
	require.NoError(t, err, "run `make build` and set KCP_MIGRATE_BIN_DIR")
	require.Less(t, info.Size(), int64(binaryLimit))
}

func BenchmarkBinary_Starts(b *testing.B) {
	for b.Loop() {
		require.NoError(b, exec.CommandContext(b.Context(), program(), "version").Run())
	}
}

func program() string { return filepath.Join(os.Getenv("KCP_MIGRATE_BIN_DIR"), "kcp-migrate") }
