package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPlan_WhenQuickOrShrunk_LeavesTheShapesThemselvesAsTheyAre(t *testing.T) {
	parts := []string{copiesPart, memoryPart, neighbourPart, journeysPart}
	shrunk, err := newPlan(options{quick: true, shrink: 100, parts: parts})
	require.NoError(t, err)
	require.Equal(t, 500, shrunk.alone[1].Entries)
	require.Equal(t, quickRepetitions, shrunk.repetitions)
	require.Len(t, shrunk.amongst, 1)
	require.Equal(t, 1, shrunk.amongst[0].BaselineRepetitions)
	whole, err := newPlan(options{shrink: 1, parts: parts})
	require.NoError(t, err)
	require.Equal(t, 50_000, whole.alone[1].Entries)
	require.Zero(t, whole.amongst[1].BaselineRepetitions)
	_, err = newPlan(options{parts: []string{"rest"}})
	require.ErrorContains(t, err, "rest")
}
