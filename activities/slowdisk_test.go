package activities_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/etcd"
)

// slowSyncs has strace hold back every fsync of an etcd by 100 ms, ten times what etcd asks of a disk.
const slowSyncs = "inject=fdatasync,fsync:delay_enter=100000"

// startOnSlowDisk runs the etcd on PATH, in a process of its own, as if on a slow disk.
func startOnSlowDisk(t *testing.T) *clientv3.Client {
	for _, program := range []string{"strace", "etcd"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%v, so no etcd on a slow disk is tested (apt-get install etcd-server strace)", err)
		}
	}
	if err := exec.Command("strace", "-o", os.DevNull, "true").Run(); err != nil {
		t.Skipf("strace may trace nothing here, so no etcd on a slow disk is tested: %v", err)
	}
	return startProcess(t, "strace", "-f", "-qq", "-o", os.DevNull, "-e", "trace=fdatasync,fsync", "-e", slowSyncs, "etcd")
}

func TestMove_BetweenEtcdsOnSlowDisks_IsWhole(t *testing.T) {
	t.Parallel()
	p := newPairOf(t, newShardAt(t, "root", etcd.Config{}, startOnSlowDisk(t)), newShardAt(t, "shard-1", etcd.Config{}, startOnSlowDisk(t)))
	p.fatten(t, 20)
	p.fill(t)
	verified := p.verify(t, first)
	require.True(t, verified.Match)
	p.commit(t)
	require.NoError(t, attempt(t, p.origin, p.origin.DropOriginLogicalCluster, activities.GuardInput{Guard: fenced}))
	require.NoError(t, attempt(t, p.origin, p.origin.DeleteOriginEntries, activities.DeleteInput{Guard: fenced, Revision: verified.OriginRevision}))
	require.Empty(t, p.origin.export(t, "/registry/core/configmaps/"+tenant+"/"))
	require.Len(t, p.destination.export(t, "/registry/core/configmaps/"+tenant+"/"), 22)
	require.False(t, p.destination.logicalCluster(t, tenant).Inactive())
}
