package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBar_SaysWhetherItHolds_FromBelowAndFromAbove(t *testing.T) {
	require.Equal(t, "bench: bar=a value=0.6 limit=>=0.6 ok=yes", bar{Name: "a", Value: 0.6, Limit: 0.6}.String())
	require.Equal(t, "bench: bar=a value=0.59 limit=>=0.6 ok=no", bar{Name: "a", Value: 0.59, Limit: 0.6}.String())
	require.Equal(t, "bench: bar=a value=3 limit=<=3 ok=yes", bar{Name: "a", Value: 3, Limit: 3, AtMost: true}.String())
	require.Equal(t, "bench: bar=a value=3.1 limit=<=3 ok=no", bar{Name: "a", Value: 3.1, Limit: 3, AtMost: true}.String())
}

func TestJudge_OfAWholeRun_HasEveryBarAndTheNeighbours(t *testing.T) {
	var found []string
	bars := judge(wholeRun())
	for _, bar := range bars {
		require.True(t, bar.ok(), bar)
		found = append(found, bar.Name)
	}
	require.Subset(t, found, allBars)
	require.Contains(t, found, "neighbour-p99-write-ms-at-origin")
	var out strings.Builder
	require.True(t, writeBars(&out, bars))
	require.Equal(t, len(bars), strings.Count(out.String(), "bench: bar="))
	require.NotContains(t, out.String(), "not measured")
}

func TestWriteBars_WhenOneIsMissed_IsNotOK_AndWhenSomeAreNotMeasured_NamesThem(t *testing.T) {
	var out strings.Builder
	require.False(t, writeBars(&out, []bar{{Name: copyOfCeiling, Value: 0.1, Limit: 0.6}}))
	require.Contains(t, out.String(), "ok=no")
	require.Contains(t, out.String(), "not measured in this run: "+ceilingPerSecond)
}

// wholeRun is results in which every bar holds.
func wholeRun() results {
	contested := func(contender, shape string, neighbours int, seconds, perSecond float64) summary {
		s := summary{Contender: contender, Neighbours: neighbours, Copy: once(seconds), Away: once(seconds), EntriesPerSecond: once(perSecond)}
		s.Shape.Name = shape
		return s
	}
	weighed := func(shape string, bytes float64) summary {
		s := summary{Contender: streamed, PeakBytes: map[string]distribution{"origin worker": once(bytes), "destination worker": once(bytes)}}
		s.Shape.Name = shape
		return s
	}
	moved := func(entries, neighbours int, seconds float64) journey {
		return journey{Entries: entries, AtOnce: 1, Neighbours: neighbours, ClientSeconds: seconds, Away: map[string]float64{"CopyEntries": seconds}}
	}
	return results{
		Summaries: []summary{
			contested(ceiling, medium, nobody, 1, 50_000), contested(streamed, medium, nobody, 1.1, 45_000),
			contested(baseline, medium, nobody, 20, 2500), contested(baseline, medium, crowded, 40, 1250),
			contested(streamed, medium, crowded, 1.2, 40_000), contested(baseline, small, nobody, 4, 1250),
			weighed(light, 100<<20), weighed(heavy, 120<<20),
		},
		Neighbour: []latencies{{Etcd: "origin", Request: writes, Idle: percentiles{P99: 2}, Moving: percentiles{P99: 12}}},
		Journeys:  []journey{moved(1000, nobody, 0.2), moved(5000, nobody, 0.5), moved(50_000, nobody, 2), moved(50_000, crowded, 2)},
	}
}

func once(value float64) distribution {
	return distribution{Median: value, Least: value, Most: value, Count: 1}
}
