package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
	"github.com/kcp-migrate/kcp-migrate/activities/objects"
)

func TestShape_SpreadsItsEntriesOverItsFamilies(t *testing.T) {
	families := map[keyspace.Family]int{}
	for key, value := range (shape{Entries: 900, ValueBytes: 7, Families: 300}).content() {
		entry, err := layout.Parse(key)
		require.NoError(t, err)
		require.Equal(t, tenant, entry.LogicalCluster)
		require.Len(t, value, 7)
		families[entry.Family]++
	}
	require.Len(t, families, 300)
	for _, count := range families {
		require.Equal(t, 3, count)
	}
}

func TestFencedLogicalCluster_IsOneThatTheMoveHasFenced(t *testing.T) {
	encoded, err := fencedLogicalCluster()
	require.NoError(t, err)
	parsed, err := objects.ParseLogicalCluster([]byte(encoded))
	require.NoError(t, err)
	require.True(t, parsed.Inactive())
	require.Equal(t, objects.PhaseInactive, parsed.Phase())
	require.Equal(t, string(token), parsed.Stamp())
}

func TestNeighbours_AreNeverTheTenants_AndStandOnBothSidesOfIt(t *testing.T) {
	keys := map[string]bool{}
	before, behind := false, false
	for key := range neighbours(26 * neighbourKeys) {
		entry, err := layout.Parse(key)
		require.NoError(t, err)
		require.NotEqual(t, tenant, entry.LogicalCluster)
		before, behind = before || entry.LogicalCluster < tenant, behind || entry.LogicalCluster > tenant
		keys[key] = true
	}
	require.Len(t, keys, 26*neighbourKeys)
	require.True(t, before && behind)
}

func TestValues_AreOfOneSize_AndTheNextIsAnother(t *testing.T) {
	values := newValues(100)
	first := values.next()
	require.Len(t, first, 100)
	require.NotEqual(t, first, values.next())
}
