package activities_test

import (
	"crypto/aes"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"k8s.io/apiserver/pkg/storage/value"
	aestransformer "k8s.io/apiserver/pkg/storage/value/encrypt/aes"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/etcd"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

const (
	originKey   = "a key of 32 bytes, the origin's.."
	secretKey   = "/registry/core/secrets/" + tenant + "/default/s"
	secretText  = `{"kind":"Secret","data":"hunter2"}`
	otherPrefix = "/elsewhere"
)

var secrets = keyspace.Family{Group: "core", Resource: "secrets"}

// encrypting is for a shard whose API servers encrypt all but LogicalClusters, which the stand-in for their controller
// reads straight from etcd.
func encrypting(t *testing.T, provider, key string) *etcd.Encryption {
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	content := `{apiVersion: apiserver.config.k8s.io/v1, kind: EncryptionConfiguration, resources: [
		{resources: ['*.', '*.acme.io'], providers: [{` + provider + `: {keys: [{name: one, secret: ` +
		base64.StdEncoding.EncodeToString([]byte(key[:32])) + `}]}}, {identity: {}}]}]}`
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(content, "\t", "")), 0o600))
	encryption, err := etcd.LoadEncryption(file)
	require.NoError(t, err)
	return encryption
}

// storedAtOrigin is what the origin's API server would have written.
func storedAtOrigin(t *testing.T, key, plaintext string) string {
	block, err := aes.NewCipher([]byte(originKey[:32]))
	require.NoError(t, err)
	transformer, err := aestransformer.NewGCMTransformer(block)
	require.NoError(t, err)
	encrypted, err := transformer.TransformToStorage(t.Context(), []byte(plaintext), value.DefaultContext(key))
	require.NoError(t, err)
	return "k8s:enc:aesgcm:v1:one:" + string(encrypted)
}

func newEncryptedPair(t *testing.T) pair {
	p := newPairWith(t,
		etcd.Config{Encryption: encrypting(t, "aesgcm", originKey)},
		etcd.Config{Encryption: encrypting(t, "secretbox", "the destination's, of 32 bytes too"), Prefix: otherPrefix})
	p.origin.put(t, secretKey, storedAtOrigin(t, secretKey, secretText))
	return p
}

func TestMove_BetweenShardsThatEncryptAndPrefixDifferently_IsWhole(t *testing.T) {
	p := newEncryptedPair(t)
	fence := p.fence(t)
	p.enclose(t)
	require.EqualValues(t, 4, p.copy(t, fence.Revision).Entries)
	verified := p.verify(t, first)
	require.True(t, verified.Match)
	require.EqualValues(t, len("1")+len("2")+len(`{"spec":{}}`)+len(secretText), verified.Bytes)
	p.commit(t)
	_, err := perform[any](t, p.origin, p.origin.DropOriginLogicalCluster, activities.GuardInput{Guard: fenced})
	require.NoError(t, err)
	deleted, err := perform[activities.DeleteResult](t, p.origin, p.origin.DeleteOriginEntries, activities.DeleteInput{Guard: fenced, Revision: verified.OriginRevision})
	require.NoError(t, err)
	require.EqualValues(t, 4, deleted.Deleted)

	raw := p.destination.export(t, otherPrefix+"/")
	require.Len(t, raw, 4+len([]string{tenant, keyspace.SystemShard}))
	for key, value := range raw {
		require.Equal(t, !strings.Contains(key, "/logicalclusters/"), strings.HasPrefix(value, "k8s:enc:secretbox:v1:one:"), key)
	}
	entries, err := p.destination.store.Get(t.Context(), tenant, []activities.Ref{{Family: secrets, Suffix: "default/s"}})
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.JSONEq(t, secretText, string(entries[0].Value))
	require.Empty(t, p.destination.export(t, "/registry/"))
}

func TestVerifyEntries_BetweenShardsThatEncryptDifferently_RepairsPlaintext(t *testing.T) {
	p := newEncryptedPair(t)
	p.fill(t)
	p.origin.put(t, secretKey, storedAtOrigin(t, secretKey, `{"kind":"Secret","data":"late"}`))
	round := p.verify(t, first)
	require.False(t, round.Match)
	require.Equal(t, []activities.Ref{{Family: secrets, Suffix: "default/s"}}, round.Differing)
	require.True(t, p.verify(t, first.Next()).Match)
}

func TestInspect_UnderEncryption_TellsWhatIsEncryptedOnEitherSide(t *testing.T) {
	p := newEncryptedPair(t)
	report, err := p.origin.inspect(t)
	require.NoError(t, err)
	require.Contains(t, report.Encrypted, secrets)
	asked := activities.InspectInput{LogicalCluster: tenant, RunID: run, Families: report.Digest.Names()}
	there, err := perform[activities.DestinationReport](t, p.destination, p.destination.InspectDestination, asked)
	require.NoError(t, err)
	require.Subset(t, there.Encrypted, report.Encrypted)
}

func TestInspectDestination_WhoseValuesTheWorkerCannotDecrypt_IsRefused(t *testing.T) {
	for name, configured := range map[string]*etcd.Encryption{
		"missing key": nil,
		"wrong key":   encrypting(t, "aesgcm", strings.Repeat("wrong", 10)),
	} {
		t.Run(name, func(t *testing.T) {
			shard := newShardWith(t, "shard-1", etcd.Config{Encryption: configured})
			key := "/registry/core/secrets/" + neighbour + "/default/s"
			shard.put(t, key, storedAtOrigin(t, key, secretText))
			input := activities.InspectInput{LogicalCluster: tenant, RunID: run, Families: []keyspace.Family{secrets}}
			_, err := perform[any](t, shard, shard.InspectDestination, input)
			requireRefused(t, activities.EncryptedAtRest, err)
			require.ErrorContains(t, err, "core/secrets")
			require.ErrorContains(t, err, "provider aesgcm")
			require.ErrorContains(t, err, "--encryption-provider-config")
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
}

func TestCopyEntries_WhenAValueTurnsUndecryptable_EndsTheMove(t *testing.T) {
	p := newPair(t)
	fence := p.fence(t)
	p.enclose(t)
	p.origin.put(t, secretKey, storedAtOrigin(t, secretKey, secretText))
	_, err := perform[any](t, p.destination, p.destination.CopyEntries, activities.CopyInput{Guard: guard, Origin: p.ref, Revision: fence.Revision + 1})
	requireRefused(t, activities.EncryptedAtRest, err)
}

// A worker that was restarted without its configuration must not let the undo be skipped.
func TestLiftFence_WhenTheObjectCannotBeDecrypted_IsTriedAgain(t *testing.T) {
	p := newPair(t)
	key := layout.LogicalClusterKey(tenant)
	p.origin.put(t, key, storedAtOrigin(t, key, logicalCluster("root")))
	_, err := perform[any](t, p.origin, p.origin.LiftFence, activities.GuardInput{Guard: guard})
	var failure *temporal.ApplicationError
	require.ErrorAs(t, err, &failure)
	require.False(t, failure.NonRetryable())
	require.ErrorContains(t, err, "provider aesgcm")
}
