package etcd

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

func FuzzClaim(f *testing.F) {
	f.Add([]byte("run-1/2"), []byte(`{"workflowID":"migrate-x","runID":"run-1","originShard":"root"}`), []byte(`{"token":"run-1/1","revision":7}`))
	f.Add([]byte("run-1/2"), []byte(`{"runID":"run-1"}`), []byte(`{}`))
	f.Add([]byte(nil), []byte(`{"runID":"run-1"}`), []byte(`{"token":"run-1/1"}`))
	f.Add([]byte("/"), []byte(`null`), []byte(`{"token":"/"}`))
	f.Add([]byte("run-2/1"), []byte(`{"claimedAt":"yesterday"}`), []byte("run-1/1"))
	f.Fuzz(func(t *testing.T, token, info, committed []byte) {
		store := &Store{layout: keyspace.NewLayout("")}
		read, err := store.claimOf(consumer, []*mvccpb.KeyValue{
			{Key: []byte(store.tokenKey(consumer)), Value: token},
			{Key: []byte(store.infoKey(consumer)), Value: info, ModRevision: 7},
			{Key: []byte(store.committedKey(consumer)), Value: committed, ModRevision: 9},
		})
		if err != nil {
			require.ErrorContains(t, err, consumer)
			return
		}
		require.Equal(t, activities.Token(token), read.Token)
		if read.Committed {
			require.True(t, isOf(read.Claim, read.Landing.Token), "another run's commit is not this one's")
			require.NotEmpty(t, read.Landing.Token.Run())
			require.NotZero(t, read.Landing.Revision)
		}
	})
}
