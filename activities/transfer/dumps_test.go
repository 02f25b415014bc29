package transfer

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	migrationv1alpha1 "github.com/kcp-dev/sdk/apis/migration/v1alpha1"
	kcpclientset "github.com/kcp-dev/sdk/client/clientset/versioned"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/dump"
)

// kcpShard is who asks for dumps in kcp: no worker, but of the group.
var kcpShard = peer{name: "shard-1.kcp.example", organisations: []string{dump.Group}, notAfter: goodPeer.notAfter}

// serveDumps serves workers and kcp's shards at one address.
func serveDumps(t *testing.T, ours authority, source activities.Source) (address string) {
	t.Helper()
	claims := &fakeClaims{token: guard.Token}
	server, err := NewServer(ours.trustedConfig(t), source, claims, dump.NewHandler(shard, source, claims))
	require.NoError(t, err)
	address, _ = serve(t, server)
	return address
}

// sdk is kcp's own client with a certificate.
func sdk(t *testing.T, address string, files Config) *kcpclientset.Clientset {
	t.Helper()
	config := &rest.Config{Host: "https://" + address + "/clusters/" + cluster, QPS: -1, TLSClientConfig: rest.TLSClientConfig{
		ServerName: PeerName, CertFile: files.CertificateFile, KeyFile: files.KeyFile, CAFile: files.CAFile,
	}}
	transport, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	t.Cleanup(transport.CloseIdleConnections)
	client, err := kcpclientset.NewForConfigAndClient(config, transport)
	require.NoError(t, err)
	return client
}

func create(t *testing.T, client *kcpclientset.Clientset) (*migrationv1alpha1.LogicalClusterDump, error) {
	t.Helper()
	return client.MigrationV1alpha1().LogicalClusterDumps().Create(t.Context(), &migrationv1alpha1.LogicalClusterDump{}, metav1.CreateOptions{})
}

func TestDump_ByKcpsOwnClient_ComesFromThePortThatServesWorkers(t *testing.T) {
	ours := newAuthority(t)
	source := newFakeSource(tenant(500), 64)
	address := serveDumps(t, ours, source)
	answer, err := create(t, sdk(t, address, ours.issue(t, t.TempDir(), kcpShard, ours)))
	require.NoError(t, err)
	require.Len(t, answer.Status.Entries, 501)

	dialer, err := NewDialer(ours.trustedConfig(t))
	require.NoError(t, err)
	entries, err := readAll(t.Context(), dial(t, dialer, address), readRequest())
	require.NoError(t, err)
	require.Len(t, entries, 500)
}

func TestDump_ByStrangersAndWorkers_IsRefused(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	source := newFakeSource(tenant(1), 1)
	address := serveDumps(t, ours, source)
	_, err := create(t, sdk(t, address, ours.trustedConfig(t)))
	require.True(t, apierrors.IsForbidden(err), "a worker is not of the group: %v", err)
	_, err = create(t, sdk(t, address, theirs.issue(t, t.TempDir(), kcpShard, ours)))
	require.Error(t, err, "of another authority")
	expired := kcpShard
	expired.notAfter = time.Now().Add(-time.Minute)
	_, err = create(t, sdk(t, address, ours.issue(t, t.TempDir(), expired, ours)))
	require.Error(t, err, "expired")

	dialer, err := NewDialer(ours.issue(t, t.TempDir(), kcpShard, ours))
	require.NoError(t, err)
	_, err = dial(t, dialer, address).Revision(t.Context(), guard)
	require.Error(t, err, "who may ask for dumps is no worker")
	require.Zero(t, source.calls.Load())
}

func TestDump_WithoutTLS_IsNotServed(t *testing.T) {
	source := newFakeSource(tenant(1), 1)
	claims := &fakeClaims{token: guard.Token}
	server, err := NewServer(Config{}, source, claims, dump.NewHandler(shard, source, claims))
	require.NoError(t, err)
	address, _ := serve(t, server)
	asked, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address, nil)
	require.NoError(t, err)
	_, err = http.DefaultClient.Do(asked) //nolint:bodyclose // there is no answer
	require.Error(t, err)
	require.Zero(t, source.calls.Load())
}

// A stop waits for what has been asked for, and for nobody who asks for nothing.
func TestServe_WhenItStops_LetsClientsOfDumpsGo(t *testing.T) {
	ours := newAuthority(t)
	held := make(chan struct{})
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(held)
		<-r.Context().Done()
	})
	server, err := NewServer(ours.trustedConfig(t), newFakeSource(nil, 1), &fakeClaims{}, handler)
	require.NoError(t, err)
	server.drainLimit = 100 * time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	listener := listen(t, "127.0.0.1:0")
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listener) }()

	silent := handshake(t, listener.Addr().String(), ours)
	busy := handshake(t, listener.Addr().String(), ours)
	_, err = io.WriteString(busy, "POST / HTTP/1.1\r\nHost: worker\r\nContent-Length: 0\r\n\r\n")
	require.NoError(t, err)
	<-held
	stop()
	require.NoError(t, <-served)
	for _, connection := range []net.Conn{silent, busy} {
		_, err := bufio.NewReader(connection).ReadByte()
		require.Error(t, err)
	}
}

func TestServe_OfDumps_EndsSilentClientsAndNoAnswer(t *testing.T) {
	ours := newAuthority(t)
	const limit = 100 * time.Millisecond
	ended := make(chan error, 1)
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(3 * limit):
		}
		ended <- r.Context().Err()
	})
	server, err := NewServer(ours.trustedConfig(t), newFakeSource(nil, 1), &fakeClaims{}, handler)
	require.NoError(t, err)
	server.door.server.ReadHeaderTimeout = limit
	address, _ := serve(t, server)

	busy := handshake(t, address, ours)
	_, err = io.WriteString(busy, "POST / HTTP/1.1\r\nHost: worker\r\nContent-Length: 0\r\n\r\n")
	require.NoError(t, err)
	require.NoError(t, <-ended)
	silent := handshake(t, address, ours)
	_, err = silent.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}

// handshake opens a connection as a client of dumps does.
func handshake(t *testing.T, address string, ours authority) net.Conn {
	t.Helper()
	config, err := ours.issue(t, t.TempDir(), kcpShard, ours).load()
	require.NoError(t, err)
	config.ServerName, config.NextProtos = PeerName, []string{http2, http1}
	connection, err := tls.Dial("tcp", address, config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = connection.Close() })
	require.Equal(t, http1, connection.ConnectionState().NegotiatedProtocol)
	return connection
}
