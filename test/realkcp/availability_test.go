package realkcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/test/installation"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// watchersOfEach is how many clients watch, each with an informer and a bare watch: the front-proxy leads to the first API
// server alone, so that the others are watched straight.
const watchersOfEach = 2

// With -api-servers=2 every shard has as many processes over its etcd.
func TestMove_BetweenShardsOfSeveralAPIServers_CutsTheWatchesThroughEachAndReleasesTheContextOfEach(t *testing.T) {
	stack := theStack(t)
	tenant := stack.createTenant(t, "everywhere")
	logicalCluster := tenant.logicalCluster(t)
	for round, leg := range []leg{{rootShard, otherShard}, {otherShard, rootShard}, {rootShard, otherShard}, {otherShard, rootShard}} {
		origin, destination := stack.shard(t, leg.origin), stack.shard(t, leg.destination)
		straight := watchStraight(t, origin, logicalCluster)
		var watchers []*installation.Watcher
		for range watchersOfEach {
			watcher, err := stack.StartWatcher(t.Context(), tenant.path)
			require.NoError(t, err)
			watchers = append(watchers, watcher)
		}

		stack.move(t, tenant.path, leg.destination)

		requireCut(t, straight)
		require.NoError(t, destination.Expect(t.Context(), http.StatusOK, logicalCluster, "*"))
		require.NoError(t, origin.Expect(t.Context(), http.StatusOK, "*"))
		require.NoError(t, origin.ExpectReleased(t.Context(), logicalCluster))
		for i, watcher := range watchers {
			_, err := watcher.Probe(t.Context(), fmt.Sprintf("seen-by-%d-in-round-%d", i, round))
			require.NoError(t, err)
			watcher.Stop()
			require.Empty(t, watcher.FalseDeletes(nil))
		}
		byName := stack.workspace(t, logicalCluster)
		require.Equal(t, tenant.inventory(t), byName.inventory(t))
	}
	stack.delete(t, "everywhere")
}

// Only the process whose controllers run cuts watches, so a shard that elects a leader can be moved to, and not away from.
func TestMove_FromAShardThatElectsALeader_IsRefusedAndNoWatchSeesADeletion(t *testing.T) {
	requireBinaries(t)
	stack, err := startStack(t.Context(), t.TempDir(), "--leader-election", "--api-servers=2")
	if stack != nil {
		t.Cleanup(func() { require.NoError(t, stack.Stop()) })
	}
	require.NoError(t, err)
	tenant := stack.createTenant(t, "led")
	before := tenant.inventory(t)
	shard, logicalCluster := stack.shard(t, rootShard), tenant.logicalCluster(t)
	straight := watchStraight(t, shard, logicalCluster)

	var said bytes.Buffer
	outcome, err := stack.Run(t.Context(), &said, "start", tenant.path, otherShard, "--wait")
	require.NoError(t, err)
	require.Equal(t, exitAborted, outcome.ExitCode, &said)
	require.Contains(t, said.String(), activities.WatchesNotCut)
	standing := 0
	for _, watching := range straight {
		require.Empty(t, watching.Deleted())
		if !watching.Ended() {
			standing++
		}
	}
	require.Equal(t, 1, standing, "the leader cuts, the other one does not")
	require.NoError(t, shard.Expect(t.Context(), http.StatusOK, logicalCluster, "*"))
	requireSameInventory(t, before, tenant.inventory(t))
	requireNothingLeft(t, logicalCluster, otherShard, stack.exports(t))
	tenant.create(t, configMaps, newConfigMap("written-after-the-undo", nil))
}

// The tenant is served at the destination, and the move ends by itself once the API server goes on.
func TestMove_WhileOneOfTwoAPIServersOfTheOriginIsFrozen_EndsOnceItGoesOn(t *testing.T) {
	stack := theStack(t)
	if *apiServers < 2 {
		t.Skip("needs -api-servers=2")
	}
	tenant := stack.createTenant(t, "patient")
	before := tenant.inventory(t)
	id := stack.startGated(t, tenant.path)
	second := stack.processAt(t, stack.shard(t, rootShard).APIServers[1])
	stack.withoutWorker(t, otherShard, func() {
		stack.command(t, exitDone, "approve", id)
		stack.awaitStatus(t, id, func(status workflows.Status) bool { return status.Fenced && status.Step == "fence destination" })
		require.NoError(t, second.Signal(syscall.SIGSTOP))
	})
	defer func() { require.NoError(t, second.Signal(syscall.SIGCONT)) }()
	stack.awaitStatus(t, id, func(status workflows.Status) bool { return status.Committed && !status.Fenced })
	requireSameInventory(t, before, tenant.inventory(t))
	stack.awaitStatus(t, id, func(status workflows.Status) bool { return status.Phase == workflows.OriginCleanup })

	require.NoError(t, second.Signal(syscall.SIGCONT))

	stack.command(t, exitDone, "watch", id)
	requireSameInventory(t, before, tenant.inventory(t))
	require.NoError(t, stack.shard(t, rootShard).Expect(t.Context(), http.StatusOK, "*"))
	stack.delete(t, "patient")
}

// processAt is the one of devstack's processes that serves an address.
func (s *stack) processAt(t *testing.T, address string) *os.Process {
	t.Helper()
	served, err := url.Parse(address)
	require.NoError(t, err)
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, command := range commands {
		text, err := os.ReadFile(command)
		if err != nil || !slices.Contains(strings.Split(string(text), "\x00"), "--secure-port="+served.Port()) {
			continue // it may have ended since
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(command)))
		require.NoError(t, err)
		process, err := os.FindProcess(pid)
		require.NoError(t, err)
		return process
	}
	require.Fail(t, "no process serves "+address)
	return nil
}

func watchStraight(t *testing.T, shard installation.Shard, logicalCluster string) installation.StraightWatches {
	t.Helper()
	watches, err := shard.WatchStraightThrough(t.Context(), logicalCluster, shard.APIServers...)
	t.Cleanup(watches.Stop)
	require.NoError(t, err)
	return watches
}

// requireCut expects every watch to have ended before it was told of a deletion.
func requireCut(t *testing.T, watches installation.StraightWatches) {
	t.Helper()
	for _, watching := range watches {
		await(t, "cut of a watch at the origin", func(context.Context) error {
			if !watching.Ended() {
				return errors.New("it stands")
			}
			return nil
		})
		require.Empty(t, watching.Deleted())
	}
}
