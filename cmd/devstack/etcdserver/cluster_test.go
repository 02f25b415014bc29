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
	case <-time.After(10 * time.Second):
		require.Fail(t, "nothing was reported")
	}
}

func TestFailed_WhenAllIsStopped_StaysSilent(t *testing.T) {
	folder := t.TempDir()
	etcd, err := Start(t.Context(), Config{Name: "test", Folder: folder, LogFile: filepath.Join(folder, "log"), Members: 1})
	require.NoError(t, err)
	etcd.Stop()
	require.Empty(t, etcd.Failed())
}

func TestStop_WithAWatchOpen_DoesNotWaitForIt(t *testing.T) {
	folder := t.TempDir()
	etcd, err := Start(t.Context(), Config{Name: "test", Folder: folder, LogFile: filepath.Join(folder, "log"), Members: 3})
	require.NoError(t, err)
	etcdClient, err := etcd.NewClient(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, etcdClient.Close()) })
	watch := etcdClient.Watch(t.Context(), "key")
	_, err = etcdClient.Put(t.Context(), "key", "value")
	require.NoError(t, err)
	<-watch

	begin := time.Now()
	etcd.Stop()
	require.Less(t, time.Since(begin), 5*time.Second)
}

func start(t *testing.T, members int) *Cluster {
	t.Helper()
	folder := t.TempDir()
	etcd, err := Start(t.Context(), Config{Name: "test", Folder: folder, LogFile: filepath.Join(folder, "log"), Members: members})
	require.NoError(t, err)
	t.Cleanup(etcd.Stop)
	return etcd
}
