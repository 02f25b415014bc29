package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDistribution_OfSamplesInAnyOrder_GivesMedianLeastAndMost(t *testing.T) {
	require.Equal(t, distribution{Median: 2, Least: 1, Most: 9, Count: 3}, distributionOf([]float64{9, 1, 2}))
	require.Equal(t, distribution{Median: 2.5, Least: 1, Most: 9, Count: 4}, distributionOf([]float64{3, 9, 1, 2}))
	require.Zero(t, distributionOf(nil))
}

func TestPercentile_IsASampleThatSoManyDoNotExceed(t *testing.T) {
	var samples []time.Duration
	for i := range 200 {
		samples = append(samples, time.Duration(200-i))
	}
	require.Equal(t, time.Duration(198), percentile(samples, 99))
	require.Equal(t, time.Duration(100), percentile(samples, 50))
	require.Equal(t, time.Duration(200), percentile(samples, 100))
	require.Zero(t, percentile(nil, 99))
}

func TestSummarize_KeepsContendersShapesAndNeighboursApart(t *testing.T) {
	one := func(contender string, neighbours int, seconds float64) measurement {
		return measurement{
			Contender: contender, Shape: shape{Name: "s", Entries: 10, ValueBytes: 100_000}, Neighbours: neighbours,
			Phases: map[task]phase{copying: {Seconds: seconds, OriginRequests: 2}, cleanup: {Seconds: 1, OriginRequests: 3}},
			Usage:  map[string]usage{"origin etcd": {PeakBytes: 7}},
		}
	}
	summaries := summarize([]measurement{one(streamed, 0, 2), one(baseline, 0, 5), one(streamed, 0, 4), one(streamed, 9, 8)})
	require.Len(t, summaries, 3)
	ours, have := find(summaries, streamed, "s", nobody)
	require.True(t, have)
	require.Equal(t, distribution{Median: 3, Least: 2, Most: 4, Count: 2}, ours.Copy)
	require.Equal(t, distribution{Median: 5, Least: 5, Most: 5, Count: 2}, ours.OriginRequests)
	require.InDelta(t, (10.0/2+10.0/4)/2, ours.EntriesPerSecond.Median, 1e-9)
	require.InDelta(t, 7, ours.PeakBytes["origin etcd"].Median, 0)
	inCrowd, have := find(summaries, streamed, "s", crowded)
	require.True(t, have)
	require.Equal(t, 9, inCrowd.Neighbours)
	_, have = find(summaries, ceiling, "s", nobody)
	require.False(t, have)
}

func TestAway_CountsTheCleanup_OnlyForTheBaseline(t *testing.T) {
	phases := map[task]phase{copying: {Seconds: 1}, verify: {Seconds: 10}, cleanup: {Seconds: 100}}
	require.InDelta(t, 11, measurement{Contender: streamed, Phases: phases}.away(), 0)
	require.InDelta(t, 111, measurement{Contender: baseline, Phases: phases}.away(), 0)
}
