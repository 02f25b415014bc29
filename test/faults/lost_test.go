package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/test/faults/point"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// The destination's etcd and worker go, and the workflow that would wait for them is terminated. Only a person can say that they
// never come back; when they do all the same, what they hold tells whether the commit had landed.
func TestRecover_DestinationLostAroundTheCommit_OpensTheOriginOnAPersonsWord(t *testing.T) {
	skipUnlessAtLength(t)
	for name, test := range map[string]struct {
		moment point.Moment
		// afterwards is what a recovery finds once the destination is back.
		afterwards string
	}{
		"just before": {point.Before, ""},
		"just after":  {point.After, activities.TwoCopies},
	} {
		t.Run(name, func(t *testing.T) {
			bench := startTestBench(t)
			cluster := tenants[Neighbour]
			leg := bench.legOf(t, cluster)
			bench.loseDestination(t, leg, test.moment)

			require.Equal(t, activities.Unreachable, bench.recoverNeighbour(t, workflows.RecoverInput{Action: workflows.TakeBack}))
			require.Empty(t, bench.recoverNeighbour(t, workflows.RecoverInput{Action: workflows.TakeBack, DestinationIsLost: true}))
			require.NotContains(t, bench.values(t, leg.origin)[logicalClusterKey(cluster)], inactive)

			for _, lost := range bench.destination(leg) {
				lost.release()
			}
			require.NoError(t, bench.awaitReady(t.Context()))
			require.Equal(t, test.afterwards, bench.recoverNeighbour(t, workflows.RecoverInput{
				Action: workflows.TakeBack, OriginShard: leg.origin, DestinationShard: leg.destination,
			}))
			if test.afterwards == "" {
				bench.requireNothingOf(t, cluster, leg.destination)
				bench.requireNoClaims(t)
				bench.requireServed(t, cluster)
			}
		})
	}
}

func (b *bench) destination(leg leg) []*program {
	return append(b.programs(DestinationWorker, leg), b.etcds[leg.destination]...)
}

// loseDestination has a move get as far as the commit, where its destination and its workflow go.
func (b *bench) loseDestination(t *testing.T, leg leg, moment point.Moment) {
	t.Helper()
	gone := make(chan struct{})
	b.control.listen(func(at point.Point) {
		if at.Activity != "Commit" || at.Moment != moment {
			return
		}
		for _, part := range b.destination(leg) {
			if err := part.kill(); err != nil {
				t.Error(err)
			}
		}
		close(gone)
	})
	defer b.control.listen(nil)
	run, err := b.temporal.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: t.Name(), TaskQueue: workflows.TaskQueue},
		workflows.MigrateLogicalClusterName, workflows.Input{LogicalCluster: string(Neighbour), DestinationShard: leg.destination})
	require.NoError(t, err)
	select {
	case <-gone:
	case <-t.Context().Done():
	}
	require.NoError(t, b.temporal.TerminateWorkflow(t.Context(), run.GetID(), run.GetRunID(), "the destination is lost"))
}

// recoverNeighbour gives the type of the recovery's failure, empty where it has done what it was asked for.
func (b *bench) recoverNeighbour(t *testing.T, input workflows.RecoverInput) (failure string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), endDeadline)
	defer cancel()
	input.LogicalCluster = tenants[Neighbour]
	_, failure, err := b.recoverAs(ctx, "recover-"+t.Name(), input)
	require.NoError(t, err)
	return failure
}
