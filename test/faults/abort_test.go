package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/test/faults/point"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// The worker that commits dies without an answer once the abort has been accepted: the seal alone can tell what became of it.
func TestMove_AbortedWhileTheCommitsAnswerIsLost_EndsAsTheCommitDid(t *testing.T) {
	skipUnlessAtLength(t)
	bench := startTestBench(t)
	for name, test := range map[string]struct {
		moment  point.Moment
		phase   workflows.Phase
		failure string
	}{
		"before it landed": {point.Before, workflows.Failed, activities.Aborted},
		"after it landed":  {point.After, workflows.Completed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var conductor *conductor
			abort := func(ctx context.Context) error {
				conductor.abort(ctx)
				heal, err := bench.strike(Kill, DestinationWorker, conductor.leg)
				if err != nil {
					return err
				}
				return heal()
			}
			cluster := tenants[Neighbour]
			conductor = bench.conduct(schedule{tenant: Neighbour, blows: []blow{meddling("Commit", Destination, test.moment, abort)}}, bench.legOf(t, cluster))

			outcome := bench.follow(t, conductor)

			require.Equal(t, test.phase, outcome.result.Phase)
			require.Equal(t, test.failure, outcome.failure)
			bench.requireNoClaims(t)
			bench.requireServed(t, cluster)
		})
	}
}
