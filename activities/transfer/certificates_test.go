package transfer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// authority signs the certificates of a test.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "test authority"},
		NotBefore:             time.Now().Add(-24 * time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	certificate, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return authority{certificate: certificate, key: key}
}

// peer is what a test's certificate says of its holder.
type peer struct {
	name          string
	organisations []string
	notAfter      time.Time
}

var goodPeer = peer{name: PeerName, notAfter: time.Now().Add(time.Hour)}

// issue writes a certificate that a signs, its key, and trusted as the authority to believe, into folder.
func (a authority) issue(t testing.TB, folder string, holder peer, trusted authority) Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{Organization: holder.organisations},
		DNSNames:     []string{holder.name},
		NotBefore:    time.Now().Add(-2 * time.Hour),
		NotAfter:     holder.notAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	config := Config{
		CertificateFile: filepath.Join(folder, "tls.crt"),
		KeyFile:         filepath.Join(folder, "tls.key"),
		CAFile:          filepath.Join(folder, "ca.crt"),
	}
	writePEM(t, config.CertificateFile, "CERTIFICATE", der)
	writePEM(t, config.KeyFile, "PRIVATE KEY", keyDER)
	writePEM(t, config.CAFile, "CERTIFICATE", trusted.certificate.Raw)
	return config
}

// trustedConfig is what a well-configured worker has.
func (a authority) trustedConfig(t testing.TB) Config {
	t.Helper()
	return a.issue(t, t.TempDir(), goodPeer, a)
}

func writePEM(t testing.TB, file, kind string, der []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}
