package transfer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/transfer/transferpb"
)

func TestMutualTLS_RefusesAllButWorkersOfTheCommonAuthority(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	good := ours.trustedConfig(t)
	files := func(signer authority, holder peer) Config { return signer.issue(t, t.TempDir(), holder, ours) }
	otherName := peer{name: "kcp-front-proxy", notAfter: goodPeer.notAfter}
	expired := peer{name: PeerName, notAfter: time.Now().Add(-time.Minute)}
	authorities := x509.NewCertPool()
	authorities.AddCert(ours.certificate)
	loaded, err := good.load()
	require.NoError(t, err)
	old := loaded.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12

	cases := map[string]struct {
		server Config
		client credentials.TransportCredentials
		served bool
	}{
		"good client and server":          {good, rotatingCredentials{files(ours, goodPeer)}, true},
		"client without a certificate":    {good, withConfig(&tls.Config{RootCAs: authorities}), false},
		"client of another authority":     {good, rotatingCredentials{files(theirs, goodPeer)}, false},
		"client with another name":        {good, rotatingCredentials{files(ours, otherName)}, false},
		"client with expired certificate": {good, rotatingCredentials{files(ours, expired)}, false},
		"client speaking TLS 1.2":         {good, withConfig(old), false},
		"client in plaintext":             {good, insecure.NewCredentials(), false},
		"server of another authority":     {theirs.issue(t, t.TempDir(), goodPeer, ours), rotatingCredentials{good}, false},
		"server with another name":        {files(ours, otherName), rotatingCredentials{good}, false},
		"server with expired certificate": {files(ours, expired), rotatingCredentials{good}, false},
		"server in plaintext":             {Config{}, rotatingCredentials{good}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			source := newFakeSource(nil, 1)
			address, _ := serve(t, newServer(t, c.server, source))
			_, err := dial(t, &Dialer{config: good, credentials: c.client}, address).Revision(t.Context(), guard)
			if c.served {
				require.NoError(t, err)
				return
			}
			require.Error(t, err)
			require.Zero(t, source.calls.Load())
		})
	}
}

// withConfig gives credentials that ask for a worker as ours do, with another configuration.
func withConfig(config *tls.Config) credentials.TransportCredentials {
	return workerSeeker{credentials.NewTLS(config)}
}

type workerSeeker struct {
	credentials.TransportCredentials
}

func (w workerSeeker) ClientHandshake(ctx context.Context, _ string, connection net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return w.TransportCredentials.ClientHandshake(ctx, PeerName, connection)
}

func (w workerSeeker) Clone() credentials.TransportCredentials { return w }

func TestMutualTLS_WhenFilesAreRenewed_UsesThemForTheNextConnection(t *testing.T) {
	before, after := newAuthority(t), newAuthority(t)
	serverFolder, clientFolder := t.TempDir(), t.TempDir()
	server := newServer(t, before.issue(t, serverFolder, goodPeer, before), newFakeSource(nil, 1))
	address, _ := serve(t, server)
	dialer, err := NewDialer(before.issue(t, clientFolder, goodPeer, before))
	require.NoError(t, err)
	ask := func() error {
		_, err := dial(t, dialer, address).Revision(t.Context(), guard)
		return err
	}
	require.NoError(t, ask())

	after.issue(t, serverFolder, goodPeer, after)
	require.Error(t, ask(), "the authority that the server trusted before")
	after.issue(t, clientFolder, goodPeer, after)
	require.NoError(t, ask())
}

func TestConfig_WithUnusableFiles_IsRefusedAtTheStart(t *testing.T) {
	good := newAuthority(t).trustedConfig(t)
	noAuthority := good
	noAuthority.CAFile = good.KeyFile
	otherKey := good
	otherKey.KeyFile = newAuthority(t).trustedConfig(t).KeyFile
	absent := good
	absent.CAFile += ".absent"
	cases := map[string]struct {
		config  Config
		message string
	}{
		"certificate alone":          {Config{CertificateFile: good.CertificateFile}, "load certificate"},
		"authority alone":            {Config{CAFile: good.CAFile}, "load certificate"},
		"key of another":             {otherKey, "load certificate"},
		"no authority in the file":   {noAuthority, "no certificate in it"},
		"authority's file is absent": {absent, "no such file"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, serverErr := NewServer(c.config, newFakeSource(nil, 1), &fakeClaims{})
			require.ErrorContains(t, serverErr, c.message)
			_, dialerErr := NewDialer(c.config)
			require.ErrorContains(t, dialerErr, c.message)
		})
	}
}

func TestDial_WithoutTLS_ReachesLoopbackAlone(t *testing.T) {
	dialer, err := NewDialer(Config{})
	require.NoError(t, err)
	for _, address := range []string{"127.0.0.1:1", "127.8.8.8:1", "[::1]:1", "localhost:1"} {
		_, closeSource, err := dialer.Dial(address)
		require.NoError(t, err, address)
		closeSource()
	}
	for _, address := range []string{"10.0.0.1:1", "[::]:1", "0.0.0.0:1", ":1", "worker.example:1", "localhost.example:1", "127.0.0.1.example:1"} {
		_, _, err := dialer.Dial(address)
		require.ErrorIs(t, err, ErrPlaintext, address)
	}
	for _, address := range []string{"", "127.0.0.1", "unix:///run/worker"} {
		_, _, err := dialer.Dial(address)
		require.Error(t, err, address)
	}
}

func TestServe_WithoutTLSOffLoopback_IsRefused(t *testing.T) {
	listener := &everywhere{Listener: listen(t, "127.0.0.1:0")}
	err := newServer(t, Config{}, newFakeSource(nil, 1)).Serve(t.Context(), listener)
	require.ErrorIs(t, err, ErrPlaintext)
	require.ErrorIs(t, listener.Close(), net.ErrClosed, "the listener was closed")
}

// everywhere says that it listens on all addresses.
type everywhere struct{ net.Listener }

func (everywhere) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4zero, Port: 1} }

func TestServe_WhenContextIsOver_Returns(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, newServer(t, Config{}, newFakeSource(nil, 1)).Serve(ctx, listen(t, "127.0.0.1:0")))
}

func TestServer_ServesOnlyTheRunThatClaimsTheLogicalCluster(t *testing.T) {
	cases := map[string]struct {
		claims *fakeClaims
		lost   bool
	}{
		"claimed by the run":                  {&fakeClaims{token: guard.Token}, false},
		"claimed by the run, token raised":    {&fakeClaims{token: guard.Token.Next()}, false},
		"claimed by another run":              {&fakeClaims{token: activities.NewToken("run-b")}, true},
		"claimed by a run with a longer name": {&fakeClaims{token: activities.NewToken("run-a2")}, true},
		"not claimed":                         {&fakeClaims{err: activities.ErrNotFound}, true},
		"claim without a token":               {&fakeClaims{}, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			source := newFakeSource(tenant(1), 1)
			remote := claimedBy(t, source, c.claims)
			if !c.lost {
				_, err := readAll(t.Context(), remote, readRequest())
				require.NoError(t, err)
				return
			}
			requireEveryMethodFails(t, remote, func(err error) {
				require.ErrorIs(t, err, activities.ErrTokenLost)
				require.NotErrorIs(t, err, activities.ErrNotFound)
			})
			require.Zero(t, source.calls.Load())
		})
	}
}

func TestServer_WhenClaimCannotBeRead_RefusesForNow(t *testing.T) {
	source := newFakeSource(tenant(1), 1)
	remote := claimedBy(t, source, &fakeClaims{err: errors.New("etcd has no leader")})
	requireEveryMethodFails(t, remote, func(err error) {
		require.ErrorContains(t, err, "etcd has no leader")
		require.NotErrorIs(t, err, activities.ErrTokenLost)
	})
	require.Zero(t, source.calls.Load())
}

func claimedBy(t *testing.T, source activities.Source, claims Claims) activities.Source {
	t.Helper()
	server, err := NewServer(Config{}, source, claims)
	require.NoError(t, err)
	address, _ := serve(t, server)
	dialer, err := NewDialer(Config{})
	require.NoError(t, err)
	return dial(t, dialer, address)
}

func TestServer_RefusesRequestsWithoutAGuard(t *testing.T) {
	source := newFakeSource(tenant(1), 1)
	address, _ := serve(t, newServer(t, Config{}, source))
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { require.NoError(t, connection.Close()) }()
	raw := transferpb.NewTransferClient(connection)

	_, err = raw.Revision(t.Context(), &transferpb.RevisionRequest{})
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	stream, err := raw.Read(t.Context(), &transferpb.ReadRequest{})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	require.Zero(t, source.calls.Load())
}
