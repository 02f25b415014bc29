package etcd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// What workers of another version left in etcd, with news in it. The other fields are as they are since the first version.
var recordedClaim = map[string]string{
	"token": "run-1/3",
	"info": `{"workflowID":"migrate-x","runID":"run-1","path":"root:x","originShard":"root","destinationShard":"shard-1",` +
		`"claimedAt":"2026-12-01T03:00:00Z","recovers":"run-0","newsOfTomorrow":{}}`,
	"committed": `{"token":"run-1/3","revision":7,"verifiedRevision":6,"entries":5,"bytes":4,"sha256":"3f","newsOfTomorrow":{}}`,
}

func TestReadClaim_OfAnotherVersionsWorker_ReadsWhatItKnows(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		store := server.open(t)
		for name, value := range recordedClaim {
			putRaw(t, store, store.claimPrefix(consumer)+name, value)
		}

		read, err := store.ReadClaim(t.Context(), consumer)

		require.NoError(t, err)
		require.Equal(t, activities.Claim{
			Token: "run-1/3", Committed: true,
			Landing: &activities.Landing{Token: "run-1/3", Revision: 7, VerifiedRevision: 6, Entries: 5, Bytes: 4, SHA256: "3f"},
			ClaimInfo: activities.ClaimInfo{
				WorkflowID: "migrate-x", RunID: "run-1", Path: "root:x", OriginShard: "root", DestinationShard: "shard-1",
				ClaimedAt: time.Date(2026, 12, 1, 3, 0, 0, 0, time.UTC), Recovers: "run-0",
			},
		}, read)
	})
}
