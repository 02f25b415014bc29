package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/test/faults/point"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// A handful of what `make faults` plays.
func TestMove_StruckWhereItHurts_EndsWholeByItself(t *testing.T) {
	struck := trialOf
	aborted := struck("Seal", point.Before, TemporalServer, Kill, holds[Kill])
	cases := map[string]struct {
		schedule schedule
		phase    workflows.Phase
	}{
		"the commit's answer is lost with its worker":  {struck("Commit", point.After, DestinationWorker, Kill, holds[Kill]), workflows.Completed},
		"the origin's etcd dies between the deletions": {struck("DeleteOriginEntries", point.During, OriginEtcd, Kill, holds[Kill]), workflows.Completed},
		"a copy wakes after its move":                  {struck("CopyEntries", point.Before, DestinationWorker, Linger, 0), workflows.Completed},
		"its workflow is terminated in mid-copy":       {struck("CopyEntries", point.During, Workflow, Terminate, 0), workflows.Undone},
		"Temporal dies as the way back begins":         {aborted, workflows.Failed},
	}
	bench := startTestBench(t)
	number := 0
	for name, test := range cases {
		number++
		test.schedule.number = number
		t.Run(name, func(t *testing.T) {
			outcome, err := bench.play(t.Context(), test.schedule)
			require.NoError(t, err)
			require.Empty(t, outcome.violations)
			require.Len(t, outcome.hits, 1)
			require.Equal(t, test.phase, outcome.result.Phase)
		})
	}
}

func startTestBench(t *testing.T) *bench { return startTestBenchWith(t, point.NoBug) }

func startTestBenchWith(t *testing.T, bug point.Bug) *bench {
	t.Helper()
	folder, err := makeFolder()
	require.NoError(t, err)
	bench, err := startBench(t.Context(), benchOptions{binDir: os.Getenv("KCP_MIGRATE_BIN_DIR"), folder: folder, bug: string(bug)})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, bench.Stop())
		if t.Failed() {
			t.Logf("logs are kept in %s", folder)
			return
		}
		require.NoError(t, os.RemoveAll(folder))
	})
	return bench
}
