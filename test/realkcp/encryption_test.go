package realkcp

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.temporal.io/api/enums/v1"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

const (
	exitRefused = 3
	// hidden is in a Secret and in an object of a bound resource, and must not be seen outside of the API.
	hidden = "hunter2-is-no-password"
)

// encrypted says how each shard of the encrypted stack stores a resource: what begins its values.
var encrypted = map[string]map[string]string{
	rootShard: {
		"core/secrets":                "k8s:enc:aesgcm:v1:gcm:",
		"wild.west/cowboys":           "k8s:enc:aescbc:v1:cbc:",
		"core/configmaps":             "k8s:enc:aescbc:v1:cbc:",
		"core.kcp.io/logicalclusters": "k8s:enc:aescbc:v1:cbc:",
	},
	otherShard: {
		"core/secrets":                "k8s:enc:secretbox:v1:box:",
		"wild.west/cowboys":           "k8s:enc:aesgcm:v1:gcm:",
		"core/configmaps":             "k8s\x00",
		"core.kcp.io/logicalclusters": `{"`,
	},
}

// startEncrypted starts a kcp of its own: the shards' encryption, and their prefixes, are given at the start.
func startEncrypted(t *testing.T) *stack {
	t.Helper()
	dir := t.TempDir()
	root, other := filepath.Join(dir, "root.yaml"), filepath.Join(dir, "shard-1.yaml")
	writeEncryption(t, root, `
- {resources: [secrets], providers: [{aesgcm: {keys: [{name: gcm, secret: %[1]s}]}}]}
- {resources: ['*.*'], providers: [{aescbc: {keys: [{name: cbc, secret: %[1]s}]}}]}`)
	writeEncryption(t, other, `
- {resources: [secrets], providers: [{secretbox: {keys: [{name: box, secret: %[1]s}]}}, {identity: {}}]}
- {resources: ['*.wild.west'], providers: [{aesgcm: {keys: [{name: gcm, secret: %[1]s}]}}]}`)
	stack, err := startStack(t.Context(), dir, "--etcd-prefix", otherShard+"=/elsewhere/kcp",
		"--encryption-provider-config", rootShard+"="+root+","+otherShard+"="+other)
	if stack != nil {
		t.Cleanup(func() { require.NoError(t, stack.Stop()) })
	}
	require.NoError(t, err)
	return stack
}

// writeEncryption gives each configuration a secret of its own.
func writeEncryption(t *testing.T, file, rules string) {
	t.Helper()
	secret := make([]byte, 32)
	_, err := rand.Read(secret)
	require.NoError(t, err)
	rules = fmt.Sprintf(rules, base64.StdEncoding.EncodeToString(secret))
	content := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:" + rules + "\n"
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
}

func TestTenant_BetweenShardsThatEncryptAndPrefixDifferently_IsReadableAtEachEndAndNowhereElse(t *testing.T) {
	requireBinaries(t)
	stack := startEncrypted(t)
	consumer := stack.workspace(t, "root:consumer")
	_, err := consumer.kubernetes.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "hidden"}, StringData: map[string]string{"password": hidden},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	consumer.create(t, cowboys, newCowboy("hidden", hidden))
	logicalCluster := consumer.logicalCluster(t)
	stack.requireEncrypted(t, logicalCluster, rootShard)
	require.Contains(t, stack.command(t, exitDone, "plan", consumer.path, otherShard), "shard shard-1 does not: ")

	for _, leg := range thereAndBack {
		before := consumer.inventory(t)
		stack.move(t, consumer.path, leg.destination)
		requireSameInventory(t, before, consumer.inventory(t))
		requireNothingLeft(t, logicalCluster, leg.origin, stack.exports(t))
		stack.requireEncrypted(t, logicalCluster, leg.destination)
		consumer.requireWritable(t, leg.destination)
	}
	stack.requireUntold(t, consumer.path)
	stack.requireScheduling(t, otherShard)

	stack.withoutWorker(t, otherShard, func() {
		bare, err := stack.StartWorker(t.Context(), otherShard, "--encryption-provider-config", "")
		require.NoError(t, err)
		defer func() { require.NoError(t, bare.Stop()) }()
		refusal := stack.refusal(t, "plan", consumer.path, otherShard)
		require.Contains(t, refusal, activities.EncryptedAtRest)
		require.Contains(t, refusal, "core/secrets")
		require.Contains(t, refusal, `key "box" of provider secretbox`)
	})
}

// requireEncrypted expects every value of the tenant to be stored as the shard's API servers store it.
func (s *stack) requireEncrypted(t *testing.T, logicalCluster, shardName string) {
	t.Helper()
	shard := s.shard(t, shardName)
	etcd := dialEtcd(t, shard)
	layout := keyspace.NewLayout(shard.EtcdPrefix)
	everything, err := etcd.Get(t.Context(), layout.Prefix(), clientv3.WithPrefix())
	require.NoError(t, err)
	seen := map[string]int{}
	for _, kv := range everything.Kvs {
		entry, err := layout.Parse(string(kv.Key))
		if err != nil || entry.LogicalCluster != logicalCluster {
			continue
		}
		require.NotContains(t, string(kv.Value), hidden, string(kv.Key))
		resource := entry.Family.Group + "/" + entry.Family.Resource
		seen[resource]++
		if mark, told := encrypted[shardName][resource]; told {
			require.True(t, bytes.HasPrefix(kv.Value, []byte(mark)), "%s begins with %.30q", kv.Key, kv.Value)
		}
	}
	for resource := range encrypted[shardName] {
		require.NotZero(t, seen[resource], resource)
	}
}

// requireWritable expects the destination's API servers to overwrite what was moved.
func (w *workspace) requireWritable(t *testing.T, shard string) {
	t.Helper()
	secrets := w.kubernetes.CoreV1().Secrets("default")
	found, err := secrets.Get(t.Context(), "hidden", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, hidden, string(found.Data["password"]))
	found.Labels = map[string]string{"seen-on": shard}
	_, err = secrets.Update(t.Context(), found, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// requireUntold looks for what is hidden in all that Temporal holds of the moves of a workspace.
func (s *stack) requireUntold(t *testing.T, path string) {
	t.Helper()
	temporal, err := s.Temporal(t.Context())
	require.NoError(t, err)
	defer temporal.Close()
	events := 0
	history := temporal.GetWorkflowHistory(t.Context(), workflows.WorkflowID(path), "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		event, err := history.Next()
		require.NoError(t, err)
		encoded, err := proto.Marshal(event)
		require.NoError(t, err)
		for _, told := range []string{hidden, base64.StdEncoding.EncodeToString([]byte(hidden))} {
			require.False(t, bytes.Contains(encoded, []byte(told)), "event %d", event.GetEventId())
		}
		events++
	}
	require.NotZero(t, events)
}

// refusal gives what the command line says when it refuses.
func (s *stack) refusal(t *testing.T, arguments ...string) string {
	t.Helper()
	var said bytes.Buffer
	outcome, err := s.Run(t.Context(), &said, arguments...)
	require.NoError(t, err)
	require.Equal(t, exitRefused, outcome.ExitCode, &said)
	return said.String()
}
