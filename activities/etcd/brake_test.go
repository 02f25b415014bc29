package etcd

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/test/etcdproxy"
)

// writeProbe is the request by which the brake learns what a write waits.
const writeProbe = "/etcdserverpb.KV/DeleteRange"

func TestBrake_WhileOthersWait_SaysSoAndLetsGoAfterwards(t *testing.T) {
	server := newServer(t, startEmbedded(1, embedOptions{}))
	proxy := etcdproxy.Start(t, server.endpoints[0])
	store := server.openWith(t, Config{Endpoints: []string{proxy.Endpoint}})
	claimed(t, store)
	entries := someEntries(1000, 1000)
	defer store.pace.begin()() // all of it is one move, longer than its burst
	moving := func() string {
		require.NoError(t, store.Write(t.Context(), guard, oneBatch(entries), ignore))
		return store.Slowed()
	}
	proxy.Set(etcdproxy.Hooks{Answer: func(method string) error {
		if strings.HasSuffix(method, writeProbe) {
			time.Sleep(time.Second) // what a disk does that others wait for
		}
		return nil
	}})
	require.Eventually(t, func() bool { return strings.Contains(moving(), "for a write") }, waitFor, tick)
	proxy.Set(etcdproxy.Hooks{})
	store.pace.brake.mutex.Lock()
	for kind := range kinds { // however slow this machine is, others wait as long without a move
		store.pace.brake.governor.idle[kind] = waits{latest: []time.Duration{time.Minute}}
	}
	store.pace.brake.mutex.Unlock()
	require.Eventually(t, func() bool { return moving() == "" }, waitFor, tick)
}

func TestBrake_LeavesNothingInEtcd(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		store := server.open(t)
		before := revision(t, store)
		store.pace.brake.mutex.Lock()
		store.pace.brake.governor.idle[writing] = waits{}
		store.pace.brake.mutex.Unlock()
		require.Eventually(t, func() bool {
			store.pace.brake.mutex.Lock()
			defer store.pace.brake.mutex.Unlock()
			return len(store.pace.brake.governor.idle[writing].latest) >= 2
		}, waitFor, tick, "with no more rights than a worker has")
		require.Equal(t, before, revision(t, store))
	})
}

func TestLimits_EveryKindOfWorkTakesAsLongAsTheySay(t *testing.T) {
	server := newServer(t, startEmbedded(1, embedOptions{}))
	for name, config := range map[string]Config{
		"entries": {MaxEntriesPerSecond: 1000},
		"bytes":   {MaxBytesPerSecond: 100_000},
	} {
		t.Run(name, func(t *testing.T) {
			server.wipe(t)
			config.Endpoints, config.Unbraked = server.endpoints, true
			store := server.openWith(t, config)
			claimed(t, store)
			entries := someEntries(500, 100)
			takesLong := func(what string, work func() error) {
				started := time.Now()
				require.NoError(t, work(), what)
				require.GreaterOrEqual(t, time.Since(started), 350*time.Millisecond, what) // 500 of 1,000, less what may be caught up with
			}
			takesLong("write", func() error { return store.Write(t.Context(), guard, oneBatch(entries), ignore) })
			verified := revision(t, store)
			takesLong("digest", func() error { _, err := store.Digest(t.Context(), consumer, verified); return err })
			takesLong("read", func() error {
				for _, err := range store.Read(t.Context(), activities.ReadRequest{LogicalCluster: consumer, Revision: verified}) {
					if err != nil {
						return err
					}
				}
				return nil
			})
			if config.MaxEntriesPerSecond > 0 { // deletions count no bytes
				takesLong("delete", func() error {
					_, _, err := store.DeleteVerified(t.Context(), guard, verified, activities.WhicheverCut)
					return err
				})
			}
		})
	}
}
