package activities_test

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/etcd"
)

// etcdVersions are the etcds that shards may have.
var etcdVersions = []struct {
	version string
	start   func(*testing.T) *clientv3.Client
}{
	{"3.4", func(t *testing.T) *clientv3.Client { return startProgram(t, "etcd", "apt-get install etcd-server") }},
	{"3.6", func(t *testing.T) *clientv3.Client {
		folder := cmp.Or(os.Getenv("KCP_MIGRATE_BIN_DIR"), filepath.Join("..", "bin"))
		return startProgram(t, filepath.Join(folder, "etcd36"), "make etcd36")
	}},
	{"3.7", func(t *testing.T) *clientv3.Client { return startEtcd(t) }},
}

// startProgram runs an etcd in a process of its own.
func startProgram(t *testing.T, name, remedy string) *clientv3.Client {
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%v, so that etcd is not tested (%s)", err, remedy)
	}
	return startProcess(t, path, "--unsafe-no-fsync", "--heartbeat-interval", "10", "--election-timeout", "100")
}

// startProcess adds where an etcd listens and writes to its command.
func startProcess(t *testing.T, program string, arguments ...string) *clientv3.Client {
	clients, peers := "http://"+freeAddress(t), "http://"+freeAddress(t)
	arguments = append(arguments, "--data-dir", t.TempDir(), "--log-level", "panic", "--initial-cluster", "default="+peers,
		"--listen-client-urls", clients, "--advertise-client-urls", clients, "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers)
	process := exec.Command(program, arguments...)
	process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, process.Start())
	t.Cleanup(func() {
		require.NoError(t, syscall.Kill(-process.Process.Pid, syscall.SIGKILL), "the program and what it started")
		_ = process.Wait()
	})
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{clients}, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := client.Get(ctx, "/registry/")
		return err == nil
	}, waitFor, tick)
	return client
}

func freeAddress(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	return listener.Addr().String()
}

func TestMove_BetweenEtcdsOfAnyTwoVersions_IsWhole(t *testing.T) {
	t.Parallel()
	for _, from := range etcdVersions {
		t.Run("from "+from.version, func(t *testing.T) {
			origin := from.start(t)
			for _, to := range etcdVersions {
				t.Run("to "+to.version, func(t *testing.T) {
					destination := to.start(t)
					t.Run("in the clear", func(t *testing.T) {
						moveWhole(t, emptied(t, origin, destination, etcd.Config{}, etcd.Config{}), from.version, to.version)
					})
					t.Run("encrypted", func(t *testing.T) {
						p := emptied(t, origin, destination, etcd.Config{Encryption: encrypting(t, "aesgcm", originKey)},
							etcd.Config{Encryption: encrypting(t, "secretbox", "the destination's, of 32 bytes too")})
						p.origin.put(t, secretKey, storedAtOrigin(t, secretKey, secretText))
						moveWhole(t, p, from.version, to.version)
					})
				})
			}
		})
	}
}

// emptied is a new pair on etcds that served others.
func emptied(t *testing.T, origin, destination *clientv3.Client, from, to etcd.Config) pair {
	for _, client := range []*clientv3.Client{origin, destination} {
		_, err := client.Delete(t.Context(), "\x00", clientv3.WithFromKey())
		require.NoError(t, err)
	}
	return newPairOf(t, newShardAt(t, "root", from, origin), newShardAt(t, "shard-1", to, destination))
}

// moveWhole moves a tenant with more entries than a Txn takes, values that fill one, and leases, and one that writes late.
func moveWhole(t *testing.T, p pair, from, to string) {
	const large, small, leased = 20, 300, 5
	p.fatten(t, large)
	for i := range small {
		p.origin.put(t, fmt.Sprintf("/registry/core/configmaps/%s/lean/%04d", tenant, i), fmt.Sprint(i))
	}
	p.lease(t, leased)
	origin, err := p.origin.inspect(t)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(origin.Health.Version, from+"."), origin.Health.Version)
	p.lift(t, to, origin.Health.Revision+1000)

	fence := p.fence(t)
	p.enclose(t)
	require.Equal(t, origin.Entries, p.copy(t, fence.Revision).Entries)
	late := "/registry/core/configmaps/" + tenant + "/lean/late"
	p.origin.put(t, late, "before the commit")
	require.Equal(t, 1, p.verify(t, first).RepairedPuts)
	held := first.Next()
	verified := p.verify(t, held)
	require.True(t, verified.Match)
	require.EqualValues(t, leased, verified.LeasedEntries)
	p.requireLeases(t, leased)
	_, err = perform[any](t, p.destination, p.destination.Commit, activities.CommitInput{
		Guard: activities.Guard{LogicalCluster: tenant, Token: held.Next()}, RaiseTo: held.Next().Next(), Origin: p.ref,
	})
	require.NoError(t, err)
	p.requireCleanedUp(t, verified)
	require.Len(t, p.destination.export(t, "/registry/core/configmaps/"+tenant+"/"), 2+large+small+1)
	require.False(t, p.destination.logicalCluster(t, tenant).Inactive())
}

// lease gives the tenant Events that end within the hour, as kcp's do.
func (p pair) lease(t *testing.T, count int) {
	lease, err := p.origin.client.Grant(t.Context(), 3600)
	require.NoError(t, err)
	for i := range count {
		_, err := p.origin.client.Put(t.Context(), fmt.Sprintf("/registry/acme.io/happenings/%s/default/%d", tenant, i), "{}", clientv3.WithLease(lease.ID))
		require.NoError(t, err)
	}
}

func (p pair) lift(t *testing.T, version string, revision int64) {
	health, err := p.destination.store.Health(t.Context())
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(health.Version, version+"."), health.Version)
	lifted, err := perform[activities.LiftResult](t, p.destination, p.destination.LiftRevision, activities.LiftInput{Guard: guard, To: revision})
	require.NoError(t, err)
	require.GreaterOrEqual(t, lifted.Revision, revision)
}

func (p pair) requireLeases(t *testing.T, count int) {
	response, err := p.destination.client.Get(t.Context(), "/registry/acme.io/happenings/"+tenant+"/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Len(t, response.Kvs, count)
	for _, kv := range response.Kvs {
		left, err := p.destination.client.TimeToLive(t.Context(), clientv3.LeaseID(kv.Lease))
		require.NoError(t, err)
		require.Greater(t, left.TTL, int64(3000))
		require.LessOrEqual(t, left.TTL, int64(3600))
	}
}

// requireCleanedUp drops the tenant at the origin, one late write excepted.
func (p pair) requireCleanedUp(t *testing.T, verified activities.VerifyResult) {
	late := "/registry/core/configmaps/" + tenant + "/lean/0000"
	p.origin.put(t, late, "after the commit")
	_, err := perform[any](t, p.origin, p.origin.DropOriginLogicalCluster, activities.GuardInput{Guard: fenced})
	require.NoError(t, err)
	deleted, err := perform[activities.DeleteResult](t, p.origin, p.origin.DeleteOriginEntries, activities.DeleteInput{Guard: fenced, Revision: verified.OriginRevision})
	require.NoError(t, err)
	require.Len(t, deleted.Stragglers, 1)
	require.Equal(t, verified.Entries-1, deleted.Deleted)
	for _, prefix := range []string{"core/configmaps", "core/secrets", "acme.io/happenings"} {
		for key := range p.origin.export(t, "/registry/"+prefix+"/"+tenant+"/") {
			require.Equal(t, late, key)
		}
	}
	require.NotEmpty(t, p.origin.export(t, layout.LogicalClusterKey(neighbour)))
}
