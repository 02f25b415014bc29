package objects

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func FuzzLogicalCluster(f *testing.F) {
	f.Add([]byte(ready))
	f.Add([]byte(`{"kind":"LogicalCluster"}`))
	f.Add([]byte(`{"kind":"LogicalCluster","metadata":{"annotations":null,"labels":[]},"status":"x"}`))
	f.Add([]byte(`{"kind":"LogicalCluster","metadata":{"annotations":{"core.kcp.io/inactive":true,"kcp-migrate.io/move":1}}}`))
	f.Add([]byte(`{"kind":"LogicalCluster","kind":"LogicalCluster","spec":{"n":1e400,"big":123456789012345678901234567890}}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		logicalCluster, err := ParseLogicalCluster(value)
		if err != nil {
			return
		}
		before := encodedAgain(t, logicalCluster)
		for _, edit := range []func(*LogicalCluster){
			func(l *LogicalCluster) { l.Fence("run/1") },
			func(l *LogicalCluster) { l.Enclose("run/1", "shard-1") },
			func(l *LogicalCluster) { l.Fence("run/1"); l.Open() },
			func(l *LogicalCluster) { l.Touch(time.Unix(0, 0)) },
		} {
			edited, err := ParseLogicalCluster(value)
			require.NoError(t, err)
			edit(edited)
			requireUntouched(t, before, encodedAgain(t, edited))
		}
		logicalCluster.Fence("run/1")
		require.True(t, logicalCluster.Inactive())
		require.Equal(t, "run/1", logicalCluster.Stamp())
		logicalCluster.Lift()
		require.Empty(t, logicalCluster.Stamp())
	})
}

// encodedAgain also checks that what is written reads as it was meant.
func encodedAgain(t *testing.T, logicalCluster *LogicalCluster) object {
	t.Helper()
	value, err := logicalCluster.Encode()
	require.NoError(t, err)
	again, err := ParseLogicalCluster(value)
	require.NoError(t, err)
	twice, err := again.Encode()
	require.NoError(t, err)
	require.True(t, bytes.Equal(value, twice))
	return again.content
}

// requireUntouched compares all that no edit is about.
func requireUntouched(t *testing.T, before, after object) {
	t.Helper()
	for _, fields := range []object{before, after} {
		delete(fields.at("metadata", "labels"), phaseLabel)
		for _, annotation := range []string{InactiveAnnotation, MoveAnnotation, shardAnnotation, MovedAtAnnotation} {
			delete(fields.at("metadata", "annotations"), annotation)
		}
		delete(fields.at("status"), "phase")
	}
	require.Equal(t, before, after)
}

func FuzzBoundCRD(f *testing.F) {
	f.Add([]byte(`{"kind":"CustomResourceDefinition","metadata":{"name":"x"},"status":{"conditions":[{"type":"Established","status":"True"}]}}`))
	f.Add([]byte(`{"kind":"CustomResourceDefinition","metadata":[],"status":{"conditions":{}}}`))
	f.Add([]byte(`{"kind":"APIBinding","status":{"boundResources":[{"schema":{"UID":"u"}},null,"x"]}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, value []byte) {
		_, established := IsEstablished(value)
		_, bound := BoundSchemas(value)
		require.Equal(t, established == nil, bound == nil)
		renewed, err := RenewBoundCRD(value, time.Unix(0, 0))
		if err != nil {
			return
		}
		require.True(t, json.Valid(renewed))
		again, err := RenewBoundCRD(renewed, time.Unix(0, 0))
		require.NoError(t, err)
		require.Equal(t, string(renewed), string(again))
	})
}
