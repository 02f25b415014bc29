package objects

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	ready = `{"apiVersion":"core.kcp.io/v1alpha1","kind":"LogicalCluster","metadata":{"annotations":{"core.kcp.io/shard":"root","kcp.io/path":"root:consumer"},` +
		`"generation":9007199254740993,"labels":{"tenancy.kcp.io/phase":"Ready"},"name":"cluster"},"spec":{"future":{"field":"<kept>"}},"status":{"phase":"Ready"}}` + "\n"
	token = "run/1"
)

func parsed(t *testing.T, value string) *LogicalCluster {
	logicalCluster, err := ParseLogicalCluster([]byte(value))
	require.NoError(t, err)
	return logicalCluster
}

func encoded(t *testing.T, logicalCluster *LogicalCluster) string {
	value, err := logicalCluster.Encode()
	require.NoError(t, err)
	return string(value)
}

func TestLogicalCluster_Untouched_EncodesAsKcpDoes(t *testing.T) {
	want, err := json.Marshal(json.RawMessage(ready))
	require.NoError(t, err)
	require.Equal(t, string(want)+"\n", encoded(t, parsed(t, ready)))
}

func TestLogicalCluster_FenceThenLift_IsAsBefore(t *testing.T) {
	logicalCluster := parsed(t, ready)
	before := encoded(t, logicalCluster)
	require.False(t, logicalCluster.Inactive())
	logicalCluster.Fence(token)
	require.True(t, logicalCluster.Inactive())
	require.Equal(t, token, logicalCluster.Stamp())
	logicalCluster.Lift()
	require.Equal(t, before, encoded(t, logicalCluster))
}

func TestLogicalCluster_LegacyAnnotation_IsInactiveToo(t *testing.T) {
	logicalCluster := parsed(t, `{"kind":"LogicalCluster","metadata":{"annotations":{"internal.kcp.io/inactive":"true"}}}`)
	require.True(t, logicalCluster.Inactive())
	require.Empty(t, logicalCluster.Stamp())
}

func TestLogicalCluster_Enclose_IsInactiveAndNamesTheDestination(t *testing.T) {
	logicalCluster := parsed(t, ready)
	logicalCluster.Enclose(token, "shard-1")
	require.True(t, logicalCluster.Inactive())
	require.Equal(t, PhaseInactive, logicalCluster.Phase())
	require.Equal(t, PhaseInactive, logicalCluster.content.look("metadata", "labels").text(phaseLabel))
	require.Equal(t, "shard-1", logicalCluster.Shard())
}

func TestLogicalCluster_Open_KeepsTheOldShardAndWaitsInactive(t *testing.T) {
	logicalCluster := parsed(t, ready)
	logicalCluster.Fence(token)
	logicalCluster.Open()
	require.False(t, logicalCluster.Inactive())
	require.Empty(t, logicalCluster.Stamp())
	require.Equal(t, PhaseInactive, logicalCluster.Phase())
	require.Equal(t, "root", logicalCluster.Shard())
	require.Equal(t, "root:consumer", logicalCluster.Path())
}

func TestLogicalCluster_EmptyObject_CanBeEdited(t *testing.T) {
	logicalCluster := parsed(t, `{"kind":"LogicalCluster"}`)
	logicalCluster.Lift()
	require.Empty(t, logicalCluster.Phase())
	require.False(t, logicalCluster.BeingDeleted())
	at := time.Date(2026, 11, 30, 1, 2, 3, 4, time.UTC)
	logicalCluster.Touch(at)
	require.Equal(t, "2026-11-30T01:02:03.000000004Z", logicalCluster.MovedAt())
}

func TestParseLogicalCluster_RefusesWhatIsNone(t *testing.T) {
	for _, value := range []string{"", "null", "[]", "{", `{"kind":"Workspace"}`, "k8s\x00binary"} {
		_, err := ParseLogicalCluster([]byte(value))
		require.Error(t, err, value)
	}
}

func TestRenewBoundCRD_ChangesTheCreationTimestampAlone(t *testing.T) {
	value := `{"kind":"CustomResourceDefinition","metadata":{"creationTimestamp":"2020-01-01T00:00:00Z","name":"uid"},"status":{"conditions":[{"type":"Established","status":"True"}]}}`
	renewed, err := RenewBoundCRD([]byte(value), time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC))
	require.NoError(t, err)
	require.JSONEq(t, `{"kind":"CustomResourceDefinition","metadata":{"creationTimestamp":"2026-11-30T00:00:00Z","name":"uid"},"status":{"conditions":[{"type":"Established","status":"True"}]}}`, string(renewed))
	_, err = RenewBoundCRD([]byte(ready), time.Now())
	require.Error(t, err)
}

func TestIsEstablished_ReadsTheCondition(t *testing.T) {
	for value, want := range map[string]bool{
		`{"status":{"conditions":[{"type":"NamesAccepted","status":"True"},{"type":"Established","status":"True"}]}}`: true,
		`{"status":{"conditions":[{"type":"Established","status":"False"}]}}`:                                         false,
		`{"status":{}}`: false,
	} {
		got, err := IsEstablished([]byte(value))
		require.NoError(t, err)
		require.Equal(t, want, got, value)
	}
	_, err := IsEstablished([]byte("{"))
	require.Error(t, err)
}

func TestBoundSchemas_NamesWhatABindingHasBound(t *testing.T) {
	uids, err := BoundSchemas([]byte(`{"status":{"boundResources":[{"schema":{"UID":"a"}},{"schema":{}},{"schema":{"UID":"b"}}]}}`))
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, uids)
	uids, err = BoundSchemas([]byte(`{"kind":"APIBinding"}`))
	require.NoError(t, err)
	require.Empty(t, uids)
	_, err = BoundSchemas([]byte("["))
	require.Error(t, err)
}
