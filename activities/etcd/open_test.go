package etcd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// openLimit is far above Open's own time limits: what outlasts it hangs.
const openLimit = time.Minute

func TestOpen_WhenNobodyListens_NamesTheEndpointsAtOnce(t *testing.T) {
	free, err := freeURL()
	require.NoError(t, err)
	began := time.Now()
	_, err = Open(t.Context(), Config{Endpoints: []string{free.Host}})
	require.ErrorContains(t, err, free.Host)
	require.ErrorContains(t, err, "connection refused")
	require.Less(t, time.Since(began), openLimit)
}

func TestOpen_WhenNobodyAnswers_GivesUp(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	began := time.Now()
	_, err = Open(t.Context(), Config{Endpoints: []string{silent.Addr().String()}})
	require.ErrorContains(t, err, silent.Addr().String())
	require.Less(t, time.Since(began), openLimit)
}

func TestOpen_WithoutEndpoints_IsAnError(t *testing.T) {
	_, err := Open(t.Context(), Config{})
	require.Error(t, err)
}

func TestOpen_WhenOneMemberIsDown_Succeeds(t *testing.T) {
	server := servers[0]
	server.require(t)
	free, err := freeURL()
	require.NoError(t, err)
	config := server.config()
	config.Endpoints = append([]string{free.Host}, server.endpoints...)
	store, err := Open(t.Context(), config)
	require.NoError(t, err)
	_, err = store.Health(t.Context())
	require.NoError(t, err)
	require.NoError(t, store.Close())
}

func TestOpen_WithTLS_SaysWhatIsWrongWithACertificate(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	endpoint := startWithTLS(t, ours)
	certFile, keyFile := ours.issue(t)
	strangerCert, strangerKey := theirs.issue(t)
	for name, test := range map[string]struct {
		config Config
		want   string
	}{
		"right":             {Config{CAFile: ours.file, CertFile: certFile, KeyFile: keyFile}, ""},
		"unknown authority": {Config{CAFile: theirs.file, CertFile: certFile, KeyFile: keyFile}, "certificate signed by unknown authority"},
		"stranger":          {Config{CAFile: ours.file, CertFile: strangerCert, KeyFile: strangerKey}, "tls: "},
		"no certificate":    {Config{CAFile: ours.file}, "certificate required"},
		"no file":           {Config{CAFile: "/nowhere.pem"}, "load certificates"},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			test.config.Endpoints = []string{endpoint}
			store, err := Open(t.Context(), test.config)
			require.Less(t, time.Since(began), openLimit)
			if test.want != "" {
				require.ErrorContains(t, err, test.want)
				require.ErrorContains(t, err, "open etcd")
				return
			}
			require.NoError(t, err)
			require.NoError(t, store.Close())
		})
	}
}

func TestStore_WhenCertificatesAndTheirAuthorityRotate_ReconnectsWithTheNewOnes(t *testing.T) {
	before, after := newAuthority(t), newAuthority(t)
	endpoint, stop := startWithTLSAt(t, before, "127.0.0.1:0")
	certFile, keyFile := before.issue(t)
	config := Config{Endpoints: []string{endpoint}, CAFile: before.file, CertFile: certFile, KeyFile: keyFile}
	store, err := Open(t.Context(), config)
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()

	stop()
	startWithTLSAt(t, after, strings.TrimPrefix(endpoint, "https://"))
	ask := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := store.Revision(ctx)
		return err
	}
	require.Error(t, ask(), "etcd is another authority's now")
	newCert, newKey := after.issue(t)
	for from, to := range map[string]string{newCert: certFile, newKey: keyFile, after.file: config.CAFile} {
		require.NoError(t, os.Rename(from, to))
	}
	require.Eventually(t, func() bool { return ask() == nil }, waitFor, tick)
}

func TestOpen_WithAWrongPasswordOrTooFewRights_IsForbidden(t *testing.T) {
	server := newServer(t, startEmbedded(1, embedOptions{}))
	admin, err := clientv3.New(clientv3.Config{Endpoints: server.endpoints})
	require.NoError(t, err)
	defer admin.Close()
	for _, user := range []string{"root", "nobody"} {
		_, err = admin.UserAdd(t.Context(), user, "right")
		require.NoError(t, err)
	}
	_, err = admin.UserGrantRole(t.Context(), "root", "root")
	require.NoError(t, err)
	_, err = admin.AuthEnable(t.Context())
	require.NoError(t, err)

	open := func(username, password string) error {
		store, err := Open(t.Context(), Config{Endpoints: server.endpoints, Username: username, Password: given(password)})
		if err != nil {
			return err
		}
		return store.Close()
	}
	require.NoError(t, open("root", "right"))
	require.ErrorIs(t, open("root", "wrong"), activities.ErrForbidden)
	require.ErrorIs(t, open("nobody", "right"), activities.ErrForbidden)
	require.ErrorIs(t, open("", ""), activities.ErrForbidden)
}

func TestStore_WhenItsPasswordRotates_LogsInWithTheNewOne(t *testing.T) {
	server := &server{start: startEmbedded(1, embedOptions{tokenSeconds: 1}), authenticates: true}
	server.require(t)
	t.Cleanup(server.stop)
	config, now := server.config(), password
	config.Password = func() (string, error) { return now, nil }
	store := server.openWith(t, config)
	claimed(t, store)

	now = "another"
	_, err := admin(store).UserChangePassword(t.Context(), workerUser, now)
	require.NoError(t, err)

	require.NoError(t, store.Write(t.Context(), guard, oneBatch(someEntries(300, 64)), ignore))
	require.NoError(t, store.AwaitLogicalCluster(t.Context(), consumer, func(*activities.Object) (bool, error) { return true, nil }))
}

func TestWrite_WhenEtcdIsFull_GivesErrNoSpaceAndTheAlarm(t *testing.T) {
	server := newServer(t, startEmbedded(1, embedOptions{quotaBytes: 4 << 20}))
	store := server.open(t)
	claimed(t, store)
	fillUp(t, store)
	health, err := store.Health(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"NOSPACE"}, health.Alarms)
	require.Equal(t, int64(4<<20), health.QuotaBytes)
}

// authority issues certificates.
type authority struct {
	file        string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := template("authority")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage |= x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	certificate, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "ca.pem")
	writePEM(t, file, "CERTIFICATE", der)
	return authority{file: file, certificate: certificate, key: key}
}

// issue gives the files of a certificate that serves as a client's and as a server's on loopback.
func (a authority) issue(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, template("leaf"), a.certificate, &key.PublicKey, a.key)
	require.NoError(t, err)
	encoded, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	folder := t.TempDir()
	certFile, keyFile = filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem")
	writePEM(t, certFile, "CERTIFICATE", der)
	writePEM(t, keyFile, "EC PRIVATE KEY", encoded)
	return certFile, keyFile
}

func template(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
}

func writePEM(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

// startWithTLS runs an etcd that asks its clients for certificates of an authority.
func startWithTLS(t *testing.T, authority authority) string {
	t.Helper()
	endpoint, _ := startWithTLSAt(t, authority, "127.0.0.1:0")
	return endpoint
}

func startWithTLSAt(t *testing.T, authority authority, address string) (endpoint string, stop func()) {
	t.Helper()
	certFile, keyFile := authority.issue(t)
	configs, err := embedConfigs(t.TempDir(), 1, embedOptions{})
	require.NoError(t, err)
	config := configs[0]
	config.ListenClientUrls = []url.URL{{Scheme: "https", Host: address}}
	config.AdvertiseClientUrls = config.ListenClientUrls
	config.ClientTLSInfo = transport.TLSInfo{
		CertFile: certFile, KeyFile: keyFile, TrustedCAFile: authority.file, ClientCertAuth: true,
	}
	server, err := embed.StartEtcd(config)
	require.NoError(t, err)
	stop = sync.OnceFunc(server.Close)
	t.Cleanup(stop)
	select {
	case <-server.Server.ReadyNotify():
	case <-time.After(startTimeout):
		require.Fail(t, "etcd was not ready")
	}
	return "https://" + server.Clients[0].Addr().String(), stop
}
