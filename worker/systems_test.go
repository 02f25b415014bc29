package worker

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/kcp"
)

// patience is far above the worker's own time limits, which come to ten seconds: what outlasts it hangs.
const patience = time.Minute

func requireType(t *testing.T, errorType string, err error) {
	t.Helper()
	var application *temporal.ApplicationError
	require.ErrorAs(t, err, &application)
	require.Equal(t, errorType, application.Type(), err.Error())
}

// closedAddress is one that nobody listens at.
func closedAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	return listener.Addr().String()
}

// silentAddress takes connections and never says anything.
func silentAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	return listener.Addr().String()
}

// foreignAddress speaks TLS with a certificate that no configured authority has signed.
func foreignAddress(t *testing.T) string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.EnableHTTP2 = true
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// otherAuthority is a CA that has signed nothing.
func otherAuthority(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}), 0o600))
	return path
}

func kubeconfigFor(t *testing.T, address string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, []byte(fmt.Sprintf(`
apiVersion: v1
kind: Config
current-context: admin
contexts: [{name: admin, context: {cluster: kcp, user: admin}}]
clusters: [{name: kcp, cluster: {server: "https://%s"}}]
users: [{name: admin, user: {token: admin}}]
`, address)), 0o600))
	return path
}

func TestSystems_ThatCannotBeReached_AreNamedAndNotWaitedFor(t *testing.T) {
	t.Setenv("TEMPORAL_CONFIG_FILE", writeConfig(t, "[profile.default.tls]\n"))
	addresses := map[string]func(*testing.T) string{
		"nobody listens": closedAddress, "nobody answers": silentAddress, "wrong certificate": foreignAddress,
	}
	systems := map[string]func(t *testing.T, address string) error{
		"etcd": func(t *testing.T, address string) error {
			_, _, err := OpenStore(t.Context(), &Config{Shard: "root", EtcdEndpoints: []string{"https://" + address}, EtcdCAFile: otherAuthority(t)})
			return err
		},
		"kcp's shard": func(t *testing.T, address string) error {
			api, err := kcp.NewShard(kcp.ShardConfig{Name: "root", Kubeconfig: kubeconfigFor(t, address)})
			require.NoError(t, err)
			return checkShard(t.Context(), &Config{Shard: "root"}, api)
		},
		"kcp's front-proxy": func(t *testing.T, address string) error {
			config := &Config{Shard: "root", FrontProxyKubeconfig: kubeconfigFor(t, address)}
			directory, err := OpenDirectory(config)
			require.NoError(t, err)
			return checkDirectory(t.Context(), config, directory)
		},
		"kcp's cache server": func(t *testing.T, address string) error {
			_, err := openCache(t.Context(), &Config{CacheKubeconfig: kubeconfigFor(t, address)})
			return err
		},
		"Temporal": func(t *testing.T, address string) error {
			_, err := (&TemporalConfig{Address: address}).Dial(t.Context(), slog.New(slog.DiscardHandler), client.MetricsNopHandler)
			return err
		},
	}
	for systemName, reach := range systems {
		for addressName, address := range addresses {
			t.Run(systemName+", "+addressName, func(t *testing.T) {
				t.Parallel()
				address := address(t)
				started := time.Now()
				err := reach(t, address)
				require.Less(t, time.Since(started), patience)
				requireType(t, activities.Unreachable, err)
				require.ErrorContains(t, err, address)
				require.ErrorContains(t, err, systemName)
				if addressName == "wrong certificate" {
					require.ErrorContains(t, err, "certificate")
				}
			})
		}
	}
}

func TestDial_WhenAKubeconfigIsMissing_IsInvalidInput(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	for flag, config := range map[string]*Config{
		"--kubeconfig":             {Shard: "root", Kubeconfig: nowhere},
		"--front-proxy-kubeconfig": {Shard: "root", Kubeconfig: kubeconfigFor(t, "127.0.0.1:1"), FrontProxyKubeconfig: nowhere},
	} {
		_, err := dial(t.Context(), config, slog.New(slog.DiscardHandler), client.MetricsNopHandler)
		requireType(t, activities.InvalidInput, err)
		require.ErrorContains(t, err, flag)
		require.ErrorContains(t, err, nowhere)
	}
}

// shardList is a Directory that knows the names of shards.
type shardList struct {
	activities.Directory
	names []string
	err   error
}

func (s shardList) Shards(context.Context) ([]activities.ShardInfo, error) {
	var shards []activities.ShardInfo
	for _, name := range s.names {
		shards = append(shards, activities.ShardInfo{Name: name})
	}
	return shards, s.err
}

func TestCheckDirectory_WhenTheShardIsMisspelt_NamesTheOthers(t *testing.T) {
	err := checkDirectory(t.Context(), &Config{Shard: "shard1"}, shardList{names: []string{"root", "shard-1"}})

	requireType(t, activities.ShardNotFound, err)
	require.ErrorContains(t, err, strings.Join([]string{"root", "shard-1"}, ", "))
}

func TestCheckDirectory_WithoutTheRights_IsForbidden(t *testing.T) {
	err := checkDirectory(t.Context(), &Config{Shard: "root"}, shardList{err: fmt.Errorf("list shards: %w", activities.ErrForbidden)})

	requireType(t, activities.Forbidden, err)
}

func TestOpenCache_WithoutAKubeconfig_IsNone(t *testing.T) {
	cache, err := openCache(t.Context(), &Config{})

	require.NoError(t, err)
	require.Nil(t, cache, "a worker tells by it that copies are not to be renewed")
}

func TestOpenCache_WhenTheKubeconfigIsMissing_IsInvalidInput(t *testing.T) {
	_, err := openCache(t.Context(), &Config{CacheKubeconfig: filepath.Join(t.TempDir(), "nowhere")})

	requireType(t, activities.InvalidInput, err)
	require.ErrorContains(t, err, "--cache-kubeconfig")
}
