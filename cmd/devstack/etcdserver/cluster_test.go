package etcdserver

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStart_WithThreeMembers_EachServesWhatAnotherTook(t *testing.T) {
	etcd := start(t, 3)
	require.Len(t, etcd.Endpoints(), 3)
	etcdClient, err := etcd.NewClient(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, etcdClient.Close()) })

	for _, endpoint := range etcd.Endpoints() {
		etcdClient.SetEndpoints(endpoint)
		_, err := etcdClient.Put(t.Context(), endpoint, "written")
		require.NoError(t, err)
	}
	for _, endpoint := range etcd.Endpoints() {
		etcdClient.SetEndpoints(etcd.Endpoints()[0])
		found, err := etcdClient.Get(t.Context(), endpoint)
		require.NoError(t, err)
		require.Len(t, found.Kvs, 1)
	}
}

func TestFailed_WhenAMemberStops_SaysSo(t *testing.T) {
	etcd := start(t, 1)
	etcd.members[0].Server.Stop()
	select {
	case err := <-etcd.Failed():
		require.ErrorContains(t, err, "etcd test")
	case <-time.After(time.Minute):
		require.Fail(t, "nothing was reported")
	}
}

func TestFailed_WhenAllIsStopped_StaysSilent(t *testing.T) {
	etcd := startOnly(t, 1)
	etcd.Stop()
	require.Empty(t, etcd.Failed())
}

// A member that waited for a watch, or for another that stops too to take the lead, would take seven seconds.
func BenchmarkStop_WithAWatchOpen(b *testing.B) {
	var stopping time.Duration
	for b.Loop() {
		etcd := startOnly(b, 3)
		etcdClient, err := etcd.NewClient(b.Context())
		require.NoError(b, err)
		watch := etcdClient.Watch(b.Context(), "key")
		_, err = etcdClient.Put(b.Context(), "key", "value")
		require.NoError(b, err)
		<-watch
		began := time.Now()
		etcd.Stop()
		stopping += time.Since(began)
		require.NoError(b, etcdClient.Close())
	}
	b.ReportMetric(float64(stopping.Milliseconds())/float64(b.N), "ms/stop")
}

func start(t *testing.T, members int) *Cluster {
	t.Helper()
	etcd := startOnly(t, members)
	t.Cleanup(etcd.Stop)
	return etcd
}

// startOnly leaves it to the caller to stop the etcd.
func startOnly(t testing.TB, members int) *Cluster {
	t.Helper()
	folder := t.TempDir()
	etcd, err := Start(t.Context(), Config{Name: "test", Folder: folder, LogFile: filepath.Join(folder, "log"), Members: members})
	require.NoError(t, err)
	return etcd
}
