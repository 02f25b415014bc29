package transfer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// ErrPlaintext refuses to serve or dial an address off loopback without TLS.
var ErrPlaintext = errors.New("without TLS files only loopback addresses are allowed")

// Config names the PEM files of mutual TLS: all of them, or none for plaintext on loopback.
type Config struct {
	CertificateFile string
	KeyFile         string
	// CAFile holds the authorities that may have signed a peer's certificate.
	CAFile string
}

func (c Config) plaintext() bool { return c == Config{} }

// credentials proves that the files can be used before the first peer asks for them. A server's have a door for those who
// are no workers.
func (c Config) credentials(door *door) (credentials.TransportCredentials, error) {
	if c.plaintext() {
		return insecure.NewCredentials(), nil
	}
	if _, err := c.load(); err != nil {
		return nil, err
	}
	return rotatingCredentials{config: c, door: door}, nil
}

func (c Config) load() (*tls.Config, error) {
	certificate, err := tls.LoadX509KeyPair(c.CertificateFile, c.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("load certificate %q with key %q: %w", c.CertificateFile, c.KeyFile, err)
	}
	pem, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read certificate authorities: %w", err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read certificate authorities %q: no certificate in it", c.CAFile)
	}
	return &tls.Config{
		MinVersion:       tls.VersionTLS13,
		Certificates:     []tls.Certificate{certificate},
		RootCAs:          authorities,
		ClientCAs:        authorities,
		ClientAuth:       tls.RequireAndVerifyClientCert,
		VerifyConnection: verifyPeerName,
	}, nil
}

// verifyPeerName completes what crypto/tls checks: of a client it verifies the chain, not the name. Who asks for dumps is
// no worker, and must be of a group instead, which is checked for every request.
func verifyPeerName(state tls.ConnectionState) error {
	if state.NegotiatedProtocol == http1 {
		return nil
	}
	if len(state.PeerCertificates) == 0 {
		return errors.New("peer has no certificate")
	}
	return state.PeerCertificates[0].VerifyHostname(PeerName)
}

// rotatingCredentials reads the files anew for every connection, so that renewed certificates
// and authorities count without a restart. Connections are few: one a move.
type rotatingCredentials struct {
	config Config
	// door is a server's alone.
	door *door
}

func (r rotatingCredentials) ClientHandshake(ctx context.Context, _ string, connection net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := r.config.load()
	if err != nil {
		return nil, nil, errors.Join(err, connection.Close())
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, PeerName, connection)
}

func (r rotatingCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (r rotatingCredentials) Clone() credentials.TransportCredentials { return r }

// OverrideServerName is deprecated in gRPC, and the name is not the caller's to choose.
func (r rotatingCredentials) OverrideServerName(string) error {
	return errors.New("the peer's name is fixed")
}

// isLoopback takes "localhost" at its word: RFC 6761 reserves it.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
