package kcp

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// replaceIn rewrites a file as a renewal of credentials does: at once.
func replaceIn(t *testing.T, path, old, replacement string) {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	renewed := path + ".renewed"
	require.NoError(t, os.WriteFile(renewed, []byte(strings.ReplaceAll(string(content), old, replacement)), 0o600))
	require.NoError(t, os.Rename(renewed, path))
}

func TestConnection_WhenTheKubeconfigIsRenewed_UsesItsCredentials(t *testing.T) {
	server := startServer(t)
	server.on("/version", reply(`{}`))
	path := kubeconfigFor(t, server)
	all, err := connect(path, "", nil)
	require.NoError(t, err)
	ask := func() error { return all.get(t.Context(), query{path: "/version"}, nil) }
	require.NoError(t, ask())

	replaceIn(t, path, adminToken, "revoked")
	require.ErrorIs(t, ask(), activities.ErrForbidden)
	replaceIn(t, path, "token: revoked", "token: "+adminToken)
	require.NoError(t, ask())
}

func TestConnection_WhenItsAuthorityIsRenewed_BelievesTheNewOne(t *testing.T) {
	server := startServer(t)
	server.on("/version", reply(`{}`))
	path := kubeconfigFor(t, server)
	config, err := clientcmd.LoadFromFile(path)
	require.NoError(t, err)
	authority := config.Clusters["root"].CertificateAuthority
	all, err := connect(path, "", nil)
	require.NoError(t, err)
	ask := func() error { return all.get(t.Context(), query{path: "/version"}, nil) }
	require.NoError(t, ask())

	right, err := os.ReadFile(authority)
	require.NoError(t, err)
	replaceIn(t, authority, string(right), otherAuthority(t))
	require.ErrorContains(t, ask(), "unknown authority")
	require.NoError(t, os.WriteFile(authority, []byte("half wr"), 0o600))
	require.ErrorContains(t, ask(), "unknown authority", "what cannot be read counts for nothing")
	require.NoError(t, os.WriteFile(authority, right, 0o600))
	require.NoError(t, ask())
}

func TestConnection_WhenCredentialsAreRenewed_KeepsItsWatches(t *testing.T) {
	server := startServer(t)
	server.on(clusterNamespaces, watched(nil, cleanly))
	server.on("/version", reply(`{}`))
	path := kubeconfigFor(t, server)
	shard, err := NewShard(ShardConfig{Name: "shard-1", Kubeconfig: path})
	require.NoError(t, err)
	canaries, err := shard.OpenCanaries(t.Context(), "c1")
	require.NoError(t, err)
	defer canaries.Close()

	replaceIn(t, path, adminToken, "revoked")
	require.ErrorIs(t, shard.servers.get(t.Context(), query{path: "/version"}, nil), activities.ErrForbidden)
	waiting, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = canaries.AwaitCut(waiting)
	require.ErrorIs(t, err, context.DeadlineExceeded, "a watch that this end cut would prove nothing")
}

// otherAuthority is a certificate that no server of the tests has.
func otherAuthority(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
