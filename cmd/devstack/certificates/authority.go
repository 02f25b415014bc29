// Package certificates makes the certificates of an installation: an authority of its
// own, and what it signs. Nothing of it outlives the installation's folder.
package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	// validity is longer than any installation runs.
	validity = 365 * 24 * time.Hour
	// clockSkew lets clients in whose clock is a little behind.
	clockSkew = time.Hour

	serialBits = 127 // a positive number of at most 20 octets, RFC 5280 section 4.1.2.2
)

// Pair is a certificate and its private key, PEM-encoded.
type Pair struct {
	Certificate []byte
	Key         []byte
}

// Authority signs certificates.
type Authority struct {
	Pair
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// Subject says whom a certificate is for.
type Subject struct {
	// Name is the user, the first of the names in the certificate.
	Name string
	// Groups are the user's, as Kubernetes reads them from the certificate.
	Groups []string
	// Hosts are DNS names and IP addresses at which the bearer may serve.
	Hosts []string
}

// NewAuthority makes an authority with a key of its own.
func NewAuthority(name string) (*Authority, error) {
	template, err := newTemplate(Subject{Name: name})
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.KeyUsage |= x509.KeyUsageCertSign
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key of authority %s: %w", name, err)
	}
	pair, err := sign(template, key, template, key)
	if err != nil {
		return nil, fmt.Errorf("sign authority %s: %w", name, err)
	}
	certificate, err := parse(pair.Certificate)
	if err != nil {
		return nil, err
	}
	return &Authority{Pair: pair, certificate: certificate, key: key}, nil
}

// Issue makes a certificate that is good for serving at the subject's hosts and for
// being a client under its name.
func (a *Authority) Issue(subject Subject) (Pair, error) {
	template, err := newTemplate(subject)
	if err != nil {
		return Pair{}, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make key of %s: %w", subject.Name, err)
	}
	pair, err := sign(template, key, a.certificate, a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("sign certificate of %s: %w", subject.Name, err)
	}
	return pair, nil
}

// Pool trusts this authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// ServerTLS is the configuration of a server that presents the pair.
func (p Pair) ServerTLS() (*tls.Config, error) {
	certificate, err := tls.X509KeyPair(p.Certificate, p.Key)
	if err != nil {
		return nil, fmt.Errorf("load server certificate: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}, nil
}

// Files are where a pair lies.
type Files struct {
	Certificate string
	Key         string
}

// Write puts the pair into folder as <name>.crt and <name>.key, the key for the owner only.
func (p Pair) Write(folder, name string) (Files, error) {
	files := Files{Certificate: filepath.Join(folder, name+".crt"), Key: filepath.Join(folder, name+".key")}
	if err := os.WriteFile(files.Certificate, p.Certificate, 0o644); err != nil {
		return Files{}, err
	}
	if err := os.WriteFile(files.Key, p.Key, 0o600); err != nil {
		return Files{}, err
	}
	return files, nil
}

func newTemplate(subject Subject) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits))
	if err != nil {
		return nil, fmt.Errorf("draw serial number of %s: %w", subject.Name, err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: subject.Name, Organization: subject.Groups},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(validity),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
	}
	for _, host := range subject.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return template, nil
}

func sign(template *x509.Certificate, key *ecdsa.PrivateKey, issuer *x509.Certificate, issuerKey *ecdsa.PrivateKey) (Pair, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), issuerKey)
	if err != nil {
		return Pair{}, err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
	}, nil
}

func parse(certificate []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(certificate)
	return x509.ParseCertificate(block.Bytes)
}
