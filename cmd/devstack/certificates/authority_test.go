package certificates_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/certificates"
)

func TestIssue_GivesACertificateForItsHostsAndGroupsAlone(t *testing.T) {
	authority, err := certificates.NewAuthority("ours")
	require.NoError(t, err)
	pair, err := authority.Issue(certificates.Subject{
		Name: "worker", Groups: []string{"system:masters"}, Hosts: []string{"kcp-migrate-worker", "127.0.0.1"},
	})
	require.NoError(t, err)
	leaf := parse(t, pair)

	both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: authority.Pool(), DNSName: "kcp-migrate-worker", KeyUsages: both})
	require.NoError(t, err)
	require.NoError(t, leaf.VerifyHostname("127.0.0.1"))
	require.Error(t, leaf.VerifyHostname("another"))
	require.Equal(t, []string{"system:masters"}, leaf.Subject.Organization)

	another, err := certificates.NewAuthority("another")
	require.NoError(t, err)
	_, err = leaf.Verify(x509.VerifyOptions{Roots: another.Pool(), KeyUsages: both})
	require.Error(t, err)
}

func TestWrite_KeepsTheKeyForItsOwner(t *testing.T) {
	authority, err := certificates.NewAuthority("ours")
	require.NoError(t, err)
	files, err := authority.Write(t.TempDir(), "ca")
	require.NoError(t, err)

	info, err := os.Stat(files.Key)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	_, err = tls.LoadX509KeyPair(files.Certificate, files.Key)
	require.NoError(t, err)
}

func parse(t *testing.T, pair certificates.Pair) *x509.Certificate {
	t.Helper()
	certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	require.NoError(t, err)
	return certificate.Leaf
}
