package workflows_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

func FuzzInput(f *testing.F) {
	f.Add([]byte(`{"logicalCluster":"root:org:ws","destinationShard":"shard-1"}`))
	f.Add([]byte(`{"logicalCluster":"root:org:ws","destinationShard":"shard-1","maxTimeAway":"90s","maxRevisionLift":7}`))
	f.Add([]byte(`{"logicalCluster":1,"destinationShard":null,"maxTimeAway":-1}`))
	f.Add([]byte(`{"unknown":{}}`))
	f.Add([]byte(`[]`))
	f.Add([]byte(`"x"`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var input workflows.Input
		if err := json.Unmarshal(data, &input); err != nil {
			require.False(t, json.Valid(data), "what does not decode fails the workflow task over and over: %v", err)
			return
		}
		if err := input.Validate(); err != nil {
			var refusal *temporal.ApplicationError
			require.ErrorAs(t, err, &refusal)
			require.Equal(t, activities.InvalidInput, refusal.Type())
			return
		}
		require.NotEmpty(t, input.LogicalCluster)
		require.NotEmpty(t, input.DestinationShard)
		encoded, err := json.Marshal(input)
		require.NoError(t, err)
		var again workflows.Input
		require.NoError(t, json.Unmarshal(encoded, &again))
		require.NoError(t, again.Validate())
		require.Equal(t, input, again)
	})
}
