package transfer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
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
		"good client and server":          {good, rotatingCredentials{config: files(ours, goodPeer)}, true},
		"client without a certificate":    {good, withConfig(&tls.Config{RootCAs: authorities}), false},
		"client of another authority":     {good, rotatingCredentials{config: files(theirs, goodPeer)}, false},
		"client with another name":        {good, rotatingCredentials{config: files(ours, otherName)}, false},
		"client with expired certificate": {good, rotatingCredentials{config: files(ours, expired)}, false},
		"client speaking TLS 1.2":         {good, withConfig(old), false},
		"client in plaintext":             {good, insecure.NewCredentials(), false},
		"server of another authority":     {theirs.issue(t, t.TempDir(), goodPeer, ours), rotatingCredentials{config: good}, false},
		"server with another name":        {files(ours, otherName), rotatingCredentials{config: good}, false},
		"server with expired certificate": {files(ours, expired), rotatingCredentials{config: good}, false},
		"server in plaintext":             {Config{}, rotatingCredentials{config: good}, false},
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
			_, serverErr := NewServer(c.config, newFakeSource(nil, 1), &fakeClaims{}, http.NotFoundHandler())
			require.ErrorContains(t, serverErr, c.message)
			_, dialerErr := NewDialer(c.config)
			require.ErrorContains(t, dialerErr, c.message)
		})
	}
}

func TestDial_WithoutTLS_ReachesLoopbackAlone(t *testing.T) {
	dialer, err := NewDialer(Config{})
	require.NoError(t, err)
	for _, address := range []string{"127.0.0.1:1", "127.8.8.8:1", "[::1]:1", "localhost:1", "127.0.0.1:1,[::1]:1"} {
		_, closeSource, err := dialer.Dial(address)
		require.NoError(t, err, address)
		closeSource()
	}
	for _, address := range []string{"10.0.0.1:1", "[::]:1", "0.0.0.0:1", ":1", "worker.example:1", "localhost.example:1", "127.0.0.1.example:1", "127.0.0.1:1,10.0.0.1:1"} {
		_, _, err := dialer.Dial(address)
		require.ErrorIs(t, err, ErrPlaintext, address)
	}
	for _, address := range []string{"", "127.0.0.1", "unix:///run/worker", "127.0.0.1:1,"} {
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
	server, err := NewServer(Config{}, source, claims, http.NotFoundHandler())
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

func TestServer_WhenAMoveIsOver_ServesItNoMore(t *testing.T) {
	claims := &endingClaims{fakeClaims: fakeClaims{token: guard.Token}}
	remote := claimedBy(t, newFakeSource(tenant(1), 1), claims)
	_, err := readAll(t.Context(), remote, readRequest())
	require.NoError(t, err)
	claims.released.Store(true)
	requireEveryMethodFails(t, remote, func(err error) { require.ErrorIs(t, err, activities.ErrTokenLost) })
}

// endingClaims is a claim that is released.
type endingClaims struct {
	fakeClaims
	released atomic.Bool
}

func (e *endingClaims) ReadClaim(ctx context.Context, logicalCluster string) (activities.Claim, error) {
	if e.released.Load() {
		return activities.Claim{}, activities.ErrNotFound
	}
	return e.fakeClaims.ReadClaim(ctx, logicalCluster)
}

// rawFrame goes over the wire as it is.
type rawFrame []byte

type rawCodec struct{}

func (rawCodec) Marshal(frame any) ([]byte, error) { return frame.(rawFrame), nil }
func (rawCodec) Unmarshal(_ []byte, _ any) error   { return nil }
func (rawCodec) Name() string                      { return "proto" }

func TestServer_GivenFramesThatAreNone_RefusesThemAndServesOn(t *testing.T) {
	source := newFakeSource(tenant(1), 1)
	address, _ := serve(t, newServer(t, Config{}, source))
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { require.NoError(t, connection.Close()) }()
	for name, frame := range map[string]rawFrame{
		"malformed": []byte("\xff\xff\xff\xff not protobuf"),
		"cut short": {0x0a, 0x7f, 'x'},
		"oversized": make(rawFrame, maxRequestBytes+1),
		"empty":     {},
	} {
		var answer rawFrame
		err := connection.Invoke(t.Context(), transferpb.Transfer_Revision_FullMethodName, frame, &answer, grpc.ForceCodec(rawCodec{}))
		require.Error(t, err, name)
	}
	require.Zero(t, source.calls.Load())

	for _, garbage := range []string{"GET / HTTP/1.1\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\x00\x00\x00\x00\x00\x00", "\x00"} {
		stranger, err := net.Dial("tcp", address)
		require.NoError(t, err)
		_, err = stranger.Write([]byte(garbage))
		require.NoError(t, err)
		require.NoError(t, stranger.Close())
	}
	_, err = dialPlain(t, address).Revision(t.Context(), guard)
	require.NoError(t, err)
}

func dialPlain(t *testing.T, address string) activities.Source {
	t.Helper()
	dialer, err := NewDialer(Config{})
	require.NoError(t, err)
	return dial(t, dialer, address)
}

func TestServer_GivenNamesThatAreNone_RefusesThem(t *testing.T) {
	source := newFakeSource(tenant(1), 1)
	address, _ := serve(t, newServer(t, Config{}, source))
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { require.NoError(t, connection.Close()) }()
	raw := transferpb.NewTransferClient(connection)
	for _, family := range []string{"", "core", "core/secrets/another-cluster", "core/secrets/customresources/x"} {
		listing, err := raw.List(t.Context(), &transferpb.ListRequest{Guard: encodeGuard(guard), Families: []string{family}})
		require.NoError(t, err)
		_, err = listing.Recv()
		require.Error(t, err, family)
		getting, err := raw.Get(t.Context(), &transferpb.GetRequest{Guard: encodeGuard(guard), Refs: []*transferpb.Ref{{Family: family}}})
		require.NoError(t, err)
		_, err = getting.Recv()
		require.Error(t, err, family)
		require.NotErrorIs(t, err, io.EOF, family)
	}
	require.Zero(t, source.calls.Load())
}

func TestServer_GivenAThousandSilentConnections_StillServesWorkers(t *testing.T) {
	config := newAuthority(t).trustedConfig(t)
	address, _ := serve(t, newServer(t, config, newFakeSource(tenant(1), 1)))
	for range 1000 {
		silent, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer func() { require.NoError(t, silent.Close()) }()
	}
	dialer, err := NewDialer(config)
	require.NoError(t, err)
	// Were there places for a few, the last in the line would wait for minutes.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err = dial(t, dialer, address).Revision(ctx, guard)
	require.NoError(t, err)
}

func TestServer_AskedAThousandTimesAtOnce_AnswersSomeAtATime(t *testing.T) {
	source := &countingSource{Source: newFakeSource(nil, 1), held: make(chan struct{})}
	address, _ := serve(t, newServer(t, Config{}, source))
	const connections, requests = 64, 16
	var asking sync.WaitGroup
	failures := make(chan error, connections*requests)
	for range connections {
		remote := dialPlain(t, address)
		for range requests {
			asking.Go(func() {
				_, err := remote.Revision(t.Context(), guard)
				failures <- err
			})
		}
	}
	require.Eventually(t, func() bool { return source.atOnce.Load() == maxRequests }, patience, time.Millisecond)
	require.Never(t, func() bool { return source.atOnce.Load() > maxRequests }, 200*time.Millisecond, 10*time.Millisecond)
	close(source.held)
	asking.Wait()
	for range connections * requests {
		require.NoError(t, <-failures)
	}
}

// countingSource holds its answers back and counts them.
type countingSource struct {
	activities.Source
	atOnce atomic.Int64
	held   chan struct{}
}

func (c *countingSource) Revision(ctx context.Context, asked activities.Guard) (int64, error) {
	c.atOnce.Add(1)
	defer c.atOnce.Add(-1)
	<-c.held
	return c.Source.Revision(ctx, asked)
}
