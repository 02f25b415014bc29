package workflows_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

var update = flag.Bool("update", false, "rewrite the golden files of the payloads")

func someResult() workflows.Result {
	return workflows.Result{
		LogicalCluster: tenant, Path: tenantPath, OriginShard: origin, DestinationShard: destination, Phase: workflows.Completed,
		Plan: &workflows.Plan{
			LogicalCluster: tenant, Path: tenantPath, OriginShard: origin, DestinationShard: destination,
			Entries: 12, Bytes: 3_400, LeasedEntries: 2,
			Families:  []workflows.PlannedFamily{{Family: "core/configmaps", Entries: 10, Bytes: 3_000}},
			BoundCRDs: []string{"schema-1"}, RevisionLift: 6_000, MinimumFence: workflows.Duration(2 * time.Second),
			Leftovers: []string{"/registry/core/configmaps/x"}, NotMoved: []string{"child"}, RenewsCachedCopies: true,
			ExpectedTimeAway: workflows.Duration(301 * time.Millisecond), Warnings: []string{"look out"},
		},
		DryRun: true, Entries: 12, Bytes: 3_400, SHA256: "digest", TimeAway: workflows.Duration(450 * time.Millisecond),
		Steps:           []workflows.Step{{Name: "preflight", Took: workflows.Duration(time.Second)}},
		Stragglers:      []activities.Straggler{{Ref: activities.Ref{Family: keyspace.Family{Group: "core", Resource: "secrets"}, Suffix: "default/late"}, Carried: true}},
		StragglerCounts: workflows.StragglerCounts{Carried: 1, NotCarried: 2, Discarded: 3},
		Warnings:        []string{"look out"}, Undone: []string{"lifted the fence on shard root"},
	}
}

func someStatus() workflows.Status {
	fencedAt := time.Date(2026, 11, 30, 12, 0, 5, 0, time.UTC)
	return workflows.Status{
		Result: someResult(), Step: "copy", StartedAt: fencedAt.Add(-5 * time.Second), FencedAt: &fencedAt,
		Fenced: true, Paused: true, WaitsForApproval: true, Committed: true, Aborting: true, Advice: "wait",
	}
}

// What clients of other versions and histories hold must stay readable: a change of a golden file is a change of the wire.
func TestPayloads_StayAsTheyAreOnTheWire(t *testing.T) {
	for name, value := range map[string]any{
		"input": workflows.Input{
			LogicalCluster: tenantPath, DestinationShard: destination, DryRun: true, RequireApproval: true,
			MaxTimeAway: workflows.Duration(90 * time.Second), DiscardLeftovers: true, AcceptTokenLoss: true, ForceDestination: true, MaxRevisionLift: 5,
		},
		"input-least": usualInput,
		"recover-input": workflows.RecoverInput{
			LogicalCluster: tenantPath, Action: workflows.Resume, OriginShard: origin, DestinationShard: destination,
			WorkflowIsLost: true, DestinationIsLost: true, Move: workflows.Input{RequireApproval: true},
		},
		"recover-input-least": undoing,
		"result":              someResult(),
		"status":              someStatus(),
		"abort":               workflows.AbortRequest{Reason: "wrong shard"},
	} {
		t.Run(name, func(t *testing.T) {
			golden := filepath.Join("testdata", "payloads", name+".json")
			encoded, err := json.MarshalIndent(value, "", "  ")
			require.NoError(t, err)
			if *update {
				require.NoError(t, os.WriteFile(golden, append(encoded, '\n'), 0o600))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.JSONEq(t, string(want), string(encoded))
		})
	}
}

func TestPayloads_ReadBack_AreEqual(t *testing.T) {
	encoded, err := json.Marshal(someStatus())
	require.NoError(t, err)
	var status workflows.Status
	require.NoError(t, json.Unmarshal(encoded, &status))
	require.Equal(t, someStatus(), status)
}

func TestInput_AsTypedByHand_IsRead(t *testing.T) {
	var input workflows.Input
	require.NoError(t, json.Unmarshal([]byte(`{"logicalCluster":"root:consumer","destinationShard":"shard-1","maxTimeAway":"1m30s"}`), &input))
	require.Equal(t, workflows.Input{LogicalCluster: tenantPath, DestinationShard: destination, MaxTimeAway: workflows.Duration(90 * time.Second)}, input)
	require.NoError(t, input.Validate())
}

func TestInput_Invalid_DecodesAndIsRefusedWithEveryProblem(t *testing.T) {
	for name, test := range map[string]struct {
		json string
		says []string
	}{
		"empty":                 {`{}`, []string{"logicalCluster is missing", "destinationShard is missing"}},
		"null":                  {`null`, []string{"logicalCluster is missing"}},
		"unknown field":         {`{"logicalCluster":"a","destinationShard":"b","shard":"c"}`, []string{`unknown field "shard"; the fields are logicalCluster, destinationShard, dryRun`}},
		"ill-typed flag":        {`{"logicalCluster":"a","destinationShard":"b","dryRun":"yes"}`, []string{"field dryRun is a JSON string; give true or false"}},
		"ill-typed number":      {`{"logicalCluster":"a","destinationShard":"b","maxRevisionLift":"many"}`, []string{"field maxRevisionLift is a JSON string; give a whole number"}},
		"number for a duration": {`{"logicalCluster":"a","destinationShard":"b","maxTimeAway":60}`, []string{`field maxTimeAway is a JSON number; give a duration like "60s"`}},
		"no duration":           {`{"logicalCluster":"a","destinationShard":"b","maxTimeAway":"soon"}`, []string{`parse duration "soon"`, "like 60s"}},
		"negative duration":     {`{"logicalCluster":"a","destinationShard":"b","maxTimeAway":"-1s"}`, []string{"maxTimeAway is negative"}},
		"more than an hour":     {`{"logicalCluster":"a","destinationShard":"b","maxTimeAway":"61m"}`, []string{"maxTimeAway is more than 1h"}},
		"negative lift":         {`{"logicalCluster":"a","destinationShard":"b","maxRevisionLift":-1}`, []string{"maxRevisionLift is negative"}},
		"ill-typed name":        {`{"logicalCluster":["a"],"destinationShard":"b"}`, []string{"field logicalCluster is a JSON array; give a string"}},
		"a string":              {`"root:consumer"`, []string{"it is a JSON string; give an object"}},
		"a list":                {`["root:consumer","shard-1"]`, []string{"it is a JSON array; give an object"}},
	} {
		t.Run(name, func(t *testing.T) {
			var input workflows.Input
			require.NoError(t, json.Unmarshal([]byte(test.json), &input))
			err := input.Validate()
			for _, says := range test.says {
				require.ErrorContains(t, err, says)
			}
		})
	}
}

func TestDuration_IsSpelledAsGoDoes(t *testing.T) {
	encoded, err := json.Marshal(workflows.Duration(90 * time.Second))
	require.NoError(t, err)
	require.JSONEq(t, `"1m30s"`, string(encoded))
	require.Equal(t, "1m30s", workflows.Duration(90*time.Second).String())
}
