package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPairwise_LeavesOutNoPairAndNoSite(t *testing.T) {
	chosen := pairwise(7)
	require.GreaterOrEqual(t, len(chosen), 60)

	met := map[string]bool{}
	for _, schedule := range chosen {
		for _, pair := range schedule.pairs() {
			met[pair] = true
		}
	}
	for _, schedule := range slices.Concat(candidates()...) {
		for _, pair := range schedule.pairs() {
			require.True(t, met[pair], pair)
		}
	}
}

func TestSchedules_OfTheSameSeed_AreTheSame(t *testing.T) {
	for name, draw := range map[string]func(seed int64) []schedule{
		"pairwise": pairwise,
		"random":   func(seed int64) []schedule { return randomSchedules(seed, 10) },
	} {
		t.Run(name, func(t *testing.T) {
			first, again, other := draw(7), draw(7), draw(8)
			require.Equal(t, first, again)
			require.NotEqual(t, first, other)
		})
	}
}

func TestWholeMatrix_HasEveryFaultOfEveryPartAtEverySite(t *testing.T) {
	type key struct {
		site  string
		part  Part
		fault Fault
	}
	found := map[key]bool{}
	for _, schedule := range wholeMatrix() {
		blow := schedule.blows[0]
		found[key{blow.String(), blow.part, blow.fault}] = true
	}
	require.Len(t, wholeMatrix(), len(candidates()))
	require.Greater(t, len(found), 2000)
}

func TestTerminations_ComeOnceToEveryPlace(t *testing.T) {
	places := 0
	for _, step := range steps {
		places += len(step.places)
	}
	met := map[string]bool{}
	for _, schedule := range terminations(100) {
		blow := schedule.blows[0]
		require.Equal(t, Terminate, blow.fault)
		require.Greater(t, schedule.number, 100)
		met[blow.step+"|"+string(blow.place.role)+"|"+blow.place.activity] = true
	}
	require.Len(t, met, places)
}
