package realkcp

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tests on a real kcp run with the rights that are shipped: go:embed does not reach them where they are.
func TestRights_AreThoseThatAreShipped(t *testing.T) {
	shipped, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "rights", "kcp.yaml"))
	require.NoError(t, err)
	given, err := manifests.ReadFile("manifests/rights.yaml")
	require.NoError(t, err)
	require.Equal(t, string(shipped), string(given))
}
