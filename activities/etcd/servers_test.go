package etcd

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// The servers of the conformance suite. Each starts when a test first asks for it and serves all tests after that.
// Where authentication is on, the store has the rights that docs/operations.md lists and no other.
var servers = []*server{
	{name: "etcd 3.7 with authentication", start: startEmbedded(1, embedOptions{}), authenticates: true},
	{name: "etcd 3.7 with three members", start: startEmbedded(3, embedOptions{})},
	{name: "etcd 3.6 with authentication", start: startProgram(built, "--bcrypt-cost", "4"), authenticates: true, lacksStreams: true},
	{name: "etcd of the system with authentication", start: startProgram(ofTheSystem, "--bcrypt-cost", "4"), authenticates: true, lacksStreams: true},
}

const startTimeout = time.Minute

func TestMain(m *testing.M) {
	code := m.Run()
	for _, server := range servers {
		if server.stop != nil {
			server.stop()
		}
	}
	os.Exit(code)
}

// startServer gives the endpoints of a new server and what stops it, or why it cannot run here.
type startServer func() (endpoints []string, stop func(), err error)

type server struct {
	name  string
	start startServer
	// authenticates turns authentication on.
	authenticates bool
	// lacksStreams is that it has no RangeStream.
	lacksStreams bool

	once      sync.Once
	endpoints []string
	stop      func()
	failure   error
}

// errNotHere says that a server is not installed.
var errNotHere = errors.New("an etcd without RangeStream is not tested")

// eachServer runs a test against every server, empty.
func eachServer(t *testing.T, test func(t *testing.T, server *server)) {
	t.Helper()
	for _, server := range servers {
		t.Run(server.name, func(t *testing.T) {
			server.require(t)
			server.wipe(t)
			test(t, server)
		})
	}
}

func (s *server) require(t testing.TB) {
	t.Helper()
	s.once.Do(func() {
		s.endpoints, s.stop, s.failure = s.start()
		if s.failure == nil && s.authenticates {
			s.failure = enableAuthentication(s.endpoints)
		}
	})
	if errors.Is(s.failure, errNotHere) {
		t.Skip(s.failure.Error())
	}
	require.NoError(t, s.failure)
}

func (s *server) wipe(t testing.TB) {
	t.Helper()
	_, err := admin(s.open(t)).Delete(t.Context(), "\x00", clientv3.WithFromKey())
	require.NoError(t, err)
}

func (s *server) open(t testing.TB) *Store { return s.openBelow(t, "") }

func (s *server) openBelow(t testing.TB, prefix string) *Store {
	t.Helper()
	config := s.config()
	config.Prefix = prefix
	return s.openWith(t, config)
}

func (s *server) openWith(t testing.TB, config Config) *Store {
	t.Helper()
	store, err := Open(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	s.admit(t, store)
	return store
}

// config is that of a worker's user.
func (s *server) config() Config {
	config := Config{Endpoints: s.endpoints}
	if s.authenticates {
		config.Username, config.Password = workerUser, given(password)
	}
	return config
}

// given is a password that stays.
func given(password string) func() (string, error) {
	return func() (string, error) { return password, nil }
}

// admit makes admin give a client that may do everything.
func (s *server) admit(t testing.TB, store *Store) {
	t.Helper()
	if !s.authenticates {
		return
	}
	config := s.config()
	config.Username = "root"
	root, err := config.client()
	require.NoError(t, err)
	client, err := clientv3.New(root)
	require.NoError(t, err)
	admins.Store(store, client)
	t.Cleanup(func() { admins.Delete(store); require.NoError(t, client.Close()) })
}

// admins are the clients that may do everything, by the store whose may not.
var admins sync.Map

// admin is how a test looks at, or changes, what the store under test may not touch.
func admin(store *Store) *clientv3.Client {
	if root, found := admins.Load(store); found {
		return root.(*clientv3.Client)
	}
	return store.client
}

// newServer starts one for a single test.
func newServer(t *testing.T, start startServer) *server {
	t.Helper()
	server := &server{start: start}
	server.require(t)
	t.Cleanup(server.stop)
	return server
}

type embedOptions struct {
	maxTxnOps       uint
	maxRequestBytes uint
	quotaBytes      int64
	// authToken is etcd's --auth-token; tokenSeconds its --auth-token-ttl.
	authToken    string
	tokenSeconds uint
}

func startEmbedded(members int, options embedOptions) startServer {
	return func() ([]string, func(), error) {
		folder, err := os.MkdirTemp("", "etcd-")
		if err != nil {
			return nil, nil, err
		}
		var started []*embed.Etcd
		stop := func() {
			for _, member := range started {
				member.Close()
			}
			os.RemoveAll(folder)
		}
		configs, err := embedConfigs(folder, members, options)
		if err != nil {
			return nil, stop, err
		}
		for _, config := range configs {
			member, err := embed.StartEtcd(config)
			if err != nil {
				return nil, stop, err
			}
			started = append(started, member)
		}
		var endpoints []string
		for _, member := range started {
			select {
			case <-member.Server.ReadyNotify():
			case <-time.After(startTimeout):
				return nil, stop, fmt.Errorf("etcd was not ready in %s", startTimeout)
			}
			endpoints = append(endpoints, member.Clients[0].Addr().String())
		}
		return endpoints, stop, nil
	}
}

func embedConfigs(folder string, members int, options embedOptions) ([]*embed.Config, error) {
	var configs []*embed.Config
	var initial []string
	for i := range members {
		peer, err := freeURL()
		if err != nil {
			return nil, err
		}
		config := embed.NewConfig()
		config.Name = "member-" + strconv.Itoa(i)
		config.Dir = filepath.Join(folder, config.Name)
		config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
		config.ListenClientUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
		config.AdvertiseClientUrls = config.ListenClientUrls
		config.UnsafeNoFsync = true
		config.BcryptCost = 4 // the least that bcrypt takes
		config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
		config.QuotaBackendBytes = options.quotaBytes
		if options.maxTxnOps > 0 {
			config.MaxTxnOps = options.maxTxnOps
		}
		if options.maxRequestBytes > 0 {
			config.MaxRequestBytes = options.maxRequestBytes
		}
		if options.authToken != "" {
			config.AuthToken = options.authToken
		}
		if options.tokenSeconds > 0 {
			config.AuthTokenTTL = options.tokenSeconds
		}
		initial = append(initial, config.Name+"="+peer.String())
		configs = append(configs, config)
	}
	for _, config := range configs {
		config.InitialCluster = strings.Join(initial, ",")
	}
	return configs, nil
}

// program finds an etcd that runs in a process of its own.
type program func() (path string, err error)

// ofTheSystem is the etcd on PATH: Debian's is 3.4.
func ofTheSystem() (string, error) {
	path, err := exec.LookPath("etcd")
	if err != nil {
		return "", fmt.Errorf("%w: %w (apt-get install etcd-server)", errNotHere, err)
	}
	return path, nil
}

// built is the etcd 3.6 that make builds.
func built() (string, error) {
	path := filepath.Join(cmp.Or(os.Getenv("KCP_MIGRATE_BIN_DIR"), filepath.Join("..", "..", "bin")), "etcd36")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w: %w (make etcd36)", errNotHere, err)
	}
	return path, nil
}

func startProgram(find program, arguments ...string) startServer {
	return func() ([]string, func(), error) {
		binary, err := find()
		if err != nil {
			return nil, nil, err
		}
		folder, err := os.MkdirTemp("", "etcd-")
		if err != nil {
			return nil, nil, err
		}
		client, err := freeURL()
		if err != nil {
			return nil, nil, err
		}
		peer, err := freeURL()
		if err != nil {
			return nil, nil, err
		}
		arguments := append([]string{
			"--data-dir", folder, "--unsafe-no-fsync", "--log-level", "panic",
			"--listen-client-urls", client.String(), "--advertise-client-urls", client.String(),
			"--listen-peer-urls", peer.String(), "--initial-advertise-peer-urls", peer.String(),
			"--initial-cluster", "default=" + peer.String(),
		}, arguments...)
		process := exec.Command(binary, arguments...)
		if err := process.Start(); err != nil {
			return nil, nil, err
		}
		stop := func() {
			_ = process.Process.Kill()
			_ = process.Wait()
			os.RemoveAll(folder)
		}
		return []string{client.Host}, stop, awaitEtcd(client.Host)
	}
}

func awaitEtcd(endpoint string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		store, err := Open(ctx, Config{Endpoints: []string{endpoint}})
		if err == nil {
			return store.Close()
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// freeURL is one that nobody listens on at the moment.
func freeURL() (url.URL, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return url.URL{}, err
	}
	defer listener.Close()
	return url.URL{Scheme: "http", Host: listener.Addr().String()}, nil
}

// fixtureLine is one key of a shard of a real kcp.
type fixtureLine struct {
	Key        string `json:"key"`
	Value      []byte `json:"value"`
	TTLSeconds int64  `json:"ttlSeconds"`
}

func fixture(t testing.TB, shard string) []fixtureLine {
	t.Helper()
	file, err := os.Open(filepath.Join("..", "..", "cmd", "devstack", "fixtures", shard+".jsonl.gz"))
	require.NoError(t, err)
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	require.NoError(t, err)
	var lines []fixtureLine
	scanner := bufio.NewScanner(unzipped)
	scanner.Buffer(nil, 16<<20)
	for scanner.Scan() {
		var line fixtureLine
		require.NoError(t, json.Unmarshal(scanner.Bytes(), &line))
		lines = append(lines, line)
	}
	require.NoError(t, scanner.Err())
	return lines
}

// load puts a fixture's keys, one lease for all that have the same time to live.
func load(t testing.TB, store *Store, lines []fixtureLine) {
	t.Helper()
	leases := map[int64]clientv3.LeaseID{0: clientv3.NoLease}
	for _, line := range lines {
		if _, granted := leases[line.TTLSeconds]; !granted {
			lease, err := admin(store).Grant(t.Context(), line.TTLSeconds)
			require.NoError(t, err)
			leases[line.TTLSeconds] = lease.ID
		}
		_, err := admin(store).Put(t.Context(), line.Key, string(line.Value), clientv3.WithLease(leases[line.TTLSeconds]))
		require.NoError(t, err)
	}
}

// exported is a key as a whole-store export shows it.
type exported struct {
	Value       string
	ModRevision int64
	Lease       int64
}

// export gives every key of the store for which keep is true.
func export(t testing.TB, store *Store, keep func(key string) bool) map[string]exported {
	t.Helper()
	response, err := admin(store).Get(t.Context(), "\x00", clientv3.WithFromKey())
	require.NoError(t, err)
	keys := map[string]exported{}
	for _, kv := range response.Kvs {
		if keep(string(kv.Key)) {
			keys[string(kv.Key)] = exported{Value: string(kv.Value), ModRevision: kv.ModRevision, Lease: kv.Lease}
		}
	}
	return keys
}

func revision(t testing.TB, store *Store) int64 {
	t.Helper()
	revision, err := store.Revision(t.Context())
	require.NoError(t, err)
	return revision
}

func collect(t testing.TB, batches activities.Batches) []activities.Entry {
	t.Helper()
	var all []activities.Entry
	for entries, err := range batches {
		require.NoError(t, err)
		all = append(all, entries...)
	}
	return all
}
