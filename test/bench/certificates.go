package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/kcp-migrate/kcp-migrate/activities/transfer"
)

// validity is longer than any run.
const validity = 24 * time.Hour

// makeCertificate writes one certificate that is its own authority, for every worker: it proves nothing, but what it costs to
// encrypt is real.
func makeCertificate(folder string) (transfer.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return transfer.Config{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: transfer.PeerName},
		DNSNames:     []string{transfer.PeerName}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(validity),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IsCA:        true, BasicConstraintsValid: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return transfer.Config{}, err
	}
	encodedKey, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return transfer.Config{}, err
	}
	files := transfer.Config{CertificateFile: filepath.Join(folder, "worker.crt"), KeyFile: filepath.Join(folder, "worker.key")}
	files.CAFile = files.CertificateFile
	if err := writePEM(files.CertificateFile, "CERTIFICATE", certificate); err != nil {
		return transfer.Config{}, err
	}
	return files, writePEM(files.KeyFile, "EC PRIVATE KEY", encodedKey)
}

func writePEM(path, kind string, content []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600)
}
