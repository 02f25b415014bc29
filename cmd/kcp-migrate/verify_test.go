package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// workerConfig writes the config file of a shard's worker that nothing listens for.
func workerConfig(t *testing.T, shard string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), shard+".yaml")
	require.NoError(t, os.WriteFile(path, []byte("shard: "+shard+`
etcd-endpoints: [http://127.0.0.1:1]
kubeconfig: nowhere
front-proxy-kubeconfig: nowhere
transfer-listen: 127.0.0.1:0
`), 0o600))
	return path
}

func TestVerify_OfAShardWithItself_IsUsage(t *testing.T) {
	done := typeIn(t.Context(), nil, "verify", "256hdo017n2m0br9",
		"--origin-config", workerConfig(t, "root"), "--destination-config", workerConfig(t, "root"))

	require.Equal(t, exitUsage, done.code)
	require.Contains(t, done.err, "both of shard root; give two shards'")
}

func TestVerify_WhenTheFileIsMissing_IsUsage(t *testing.T) {
	done := typeIn(t.Context(), nil, "verify", "256hdo017n2m0br9",
		"--origin-config", workerConfig(t, "root"), "--destination-config", "nowhere.yaml")

	require.Equal(t, exitUsage, done.code)
	require.Contains(t, done.err, "open nowhere.yaml")
}

// noDirectory knows no logical cluster.
type noDirectory struct{ activities.Directory }

func (noDirectory) Locate(context.Context, string) (activities.Location, error) {
	return activities.Location{}, activities.ErrNotFound
}

func TestVerify_OfAPathThatThereIsNot_SaysWhatToGive(t *testing.T) {
	_, err := locate(t.Context(), noDirectory{}, "root:nope")

	require.Equal(t, exitRefused, exitCode(t.Context(), err))
	require.EqualError(t, err, "no workspace path \"root:nope\"; see `kubectl ws tree` for what there is, or give the logical cluster's name (type: LogicalClusterNotFound, retryable: false)")
}
