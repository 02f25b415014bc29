package etcd

import (
	"context"
	"crypto/aes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/value"
	aestransformer "k8s.io/apiserver/pkg/storage/value/encrypt/aes"
	"k8s.io/apiserver/pkg/storage/value/encrypt/secretbox"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

const otherPrefix = "/elsewhere/kcp"

var gizmos = keyspace.Family{Group: "acme.io", Resource: "gizmos", Segment: keyspace.CustomResources}

// configuration is an EncryptionConfiguration of some rules.
func configuration(rules ...string) string {
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n" + strings.Join(rules, "")
}

// rule is for some resources; a provider is its name and those of its keys ("aescbc key2 key1"). "key1=other" is a key
// that is called key1 and has the secret of another.
func rule(resources string, providers ...string) string {
	text := "- resources: ['" + strings.Join(strings.Fields(resources), "', '") + "']\n  providers:\n"
	for _, provider := range providers {
		name, keys, _ := strings.Cut(provider, " ")
		if name == "identity" {
			text += "  - identity: {}\n"
			continue
		}
		text += "  - " + name + ":\n      keys:\n"
		for _, key := range strings.Fields(keys) {
			text += fmt.Sprintf("      - {name: %s, secret: %s}\n", keyName(key), base64.StdEncoding.EncodeToString(secretOf(key)))
		}
	}
	return text
}

func keyName(key string) string {
	name, _, _ := strings.Cut(key, "=")
	return name
}

func secretOf(key string) []byte {
	_, seed, renamed := strings.Cut(key, "=")
	if !renamed {
		seed = key
	}
	secret := sha256.Sum256([]byte(seed))
	return secret[:]
}

func parsed(t testing.TB, configuration string) *Encryption {
	t.Helper()
	if configuration == "" {
		return nil
	}
	encryption, err := parseEncryption([]byte(configuration))
	require.NoError(t, err)
	return encryption
}

// stored is what an API server would have written with one key of a provider.
func stored(t testing.TB, provider, key, etcdKey, plaintext string) string {
	t.Helper()
	var transformer value.Transformer
	block, err := aes.NewCipher(secretOf(key))
	require.NoError(t, err)
	switch provider {
	case "identity":
		return plaintext
	case "aescbc":
		transformer = aestransformer.NewCBCTransformer(block)
	case "aesgcm":
		transformer, err = aestransformer.NewGCMTransformer(block)
		require.NoError(t, err)
	case "secretbox":
		transformer = secretbox.NewSecretboxTransformer([32]byte(secretOf(key)))
	}
	encrypted, err := transformer.TransformToStorage(context.Background(), []byte(plaintext), value.DefaultContext(etcdKey))
	require.NoError(t, err)
	return "k8s:enc:" + provider + ":v1:" + keyName(key) + ":" + string(encrypted)
}

// openEncrypted opens a store as a worker with this configuration would.
func (s *server) openEncrypted(t testing.TB, prefix, configuration string) *Store {
	t.Helper()
	config := s.config()
	config.Prefix, config.Encryption = prefix, parsed(t, configuration)
	return s.openWith(t, config)
}

func secretValue(name string) string {
	return "k8s\x00\n\x0c\n\x02v1\x12\x06Secret" + strings.Repeat("hunter2 of "+name, 20)
}

// situation is how a shard stores Secrets: by its configuration, and by those that it had before.
type situation struct {
	name          string
	configuration string
	// found are the providers and keys that present Secrets were encrypted with.
	found []string
	// mark is what begins the Secrets that are written.
	mark string
}

var situations = []situation{
	{"nothing configured", "", []string{"identity"}, "k8s\x00"},
	{"aescbc", configuration(rule("secrets", "aescbc key1")), []string{"aescbc key1"}, "k8s:enc:aescbc:v1:key1:"},
	{"aesgcm", configuration(rule("secrets", "aesgcm key1")), []string{"aesgcm key1"}, "k8s:enc:aesgcm:v1:key1:"},
	{"secretbox", configuration(rule("secrets", "secretbox key1")), []string{"secretbox key1"}, "k8s:enc:secretbox:v1:key1:"},
	{
		"identity second", configuration(rule("secrets configmaps", "aesgcm key1", "identity")),
		[]string{"aesgcm key1", "identity"}, "k8s:enc:aesgcm:v1:key1:",
	},
	{"identity first", configuration(rule("secrets", "identity", "aescbc key1")), []string{"aescbc key1", "identity"}, "k8s\x00"},
	{
		"key rotation half done", configuration(rule("secrets", "aescbc key2 key1", "identity")),
		[]string{"aescbc key1", "aescbc key2", "identity"}, "k8s:enc:aescbc:v1:key2:",
	},
	{
		"rotation between providers", configuration(rule("secrets", "secretbox key2", "aesgcm key1")),
		[]string{"aesgcm key1", "secretbox key2"}, "k8s:enc:secretbox:v1:key2:",
	},
	{
		"rotation between keys of one name", configuration(rule("secrets", "aescbc key=new", "aescbc key=old")),
		[]string{"aescbc key=old", "aescbc key=new"}, "k8s:enc:aescbc:v1:key:",
	},
	{
		"a resource in two rules", configuration(rule("secrets", "aescbc key2"), rule("secrets", "aescbc key1")),
		[]string{"aescbc key1", "aescbc key2"}, "k8s:enc:aescbc:v1:key2:",
	},
	{"everything", configuration(rule("*.*", "aesgcm key3")), []string{"aesgcm key3"}, "k8s:enc:aesgcm:v1:key3:"},
	{
		"all of the core group but ConfigMaps", configuration(rule("configmaps", "identity"), rule("*.", "secretbox key3")),
		[]string{"secretbox key3"}, "k8s:enc:secretbox:v1:key3:",
	},
}

func TestEncryption_BetweenAnyTwoShards_MovesPlaintext(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		for i, origin := range situations {
			// Each to two others, so that each is both origin and destination, of itself too.
			for _, destination := range []situation{origin, situations[(i+1)%len(situations)], situations[(i+5)%len(situations)]} {
				t.Run(origin.name+" to "+destination.name, func(t *testing.T) {
					server.wipe(t)
					requireMoved(t, server, origin, destination)
				})
			}
		}
	})
}

// requireMoved reads Secrets as the origin has them, and writes them below the destination's prefix.
func requireMoved(t *testing.T, server *server, origin, destination situation) {
	t.Helper()
	source := server.openEncrypted(t, "", origin.configuration)
	target := server.openEncrypted(t, otherPrefix, destination.configuration)
	want := map[string]string{}
	for i, found := range append(origin.found, origin.found...) {
		provider, key, _ := strings.Cut(found, " ")
		ref := activities.Ref{Family: secrets, Suffix: fmt.Sprintf("default/s-%d", i)}
		want[ref.Suffix] = secretValue(ref.Suffix)
		putRaw(t, source, keyOf(ref), stored(t, provider, key, keyOf(ref), want[ref.Suffix]))
	}
	claimed(t, target)
	pinned := revision(t, source)
	entries := source.Read(t.Context(), activities.ReadRequest{LogicalCluster: consumer, Revision: pinned})

	require.NoError(t, target.Write(t.Context(), guard, entries, ignore))

	originDigest, err := source.Digest(t.Context(), consumer, pinned)
	require.NoError(t, err)
	digest, err := target.Digest(t.Context(), consumer, revision(t, target))
	require.NoError(t, err)
	require.Equal(t, originDigest.Families, digest.Families)
	moved := map[string]string{}
	for _, entry := range collect(t, target.Read(t.Context(), activities.ReadRequest{LogicalCluster: consumer, Revision: digest.Revision})) {
		moved[entry.Suffix] = string(entry.Value)
	}
	require.Equal(t, want, moved)
	raw := export(t, target, below(otherPrefix))
	require.Len(t, raw, len(want))
	for key, exported := range raw {
		require.True(t, strings.HasPrefix(exported.Value, destination.mark), "%s begins with %.30q", key, exported.Value)
		require.Equal(t, strings.HasPrefix(destination.mark, encryptedPrefix), !strings.Contains(exported.Value, "hunter2"), key)
	}
}

func TestEncryption_MatchesResourcesAsTheAPIServerDoes(t *testing.T) {
	encryption := parsed(t, configuration(
		rule("events configmaps", "identity"),
		rule("secrets *.apps gizmos.acme.io", "aescbc key1"),
		rule("*.acme.io", "aesgcm key1"),
		rule("*.", "secretbox key1"),
	))
	for _, test := range []struct {
		family keyspace.Family
		want   string
	}{
		{events, "identity"},
		{configMaps, "identity"},
		{secrets, aesCBC},
		{keyspace.Family{Group: "apps", Resource: "deployments"}, aesCBC},
		{gizmos, aesCBC},
		{keyspace.Family{Group: "acme.io", Resource: "gizmos", Segment: strings.Repeat("a", 64)}, aesCBC},
		{keyspace.Family{Group: "acme.io", Resource: "secrets", Segment: keyspace.CustomResources}, aesGCM},
		{keyspace.Family{Group: "core", Resource: "namespaces"}, secretBox},
		{keyspace.LogicalClusters, "identity"},
		{keyspace.Family{Group: "sub.acme.io", Resource: "gizmos", Segment: keyspace.CustomResources}, "identity"},
	} {
		require.Equal(t, test.want, encryption.providers(test.family)[0].name, test.family)
	}
	everything := parsed(t, configuration(rule("secrets", "aescbc key1"), rule("*.*", "aesgcm key1")))
	require.Equal(t, aesCBC, everything.providers(secrets)[0].name)
	require.Equal(t, aesGCM, everything.providers(keyspace.LogicalClusters)[0].name)
}

func TestEncryption_ThatDoesNotFit_IsNamedWithoutTheValue(t *testing.T) {
	ref := activities.Ref{Family: secrets, Suffix: "default/s"}
	at := keyOf(ref)
	for name, test := range map[string]struct {
		configuration string
		stored        string
		want          string
	}{
		"nothing configured":    {"", stored(t, "aescbc", "key1", at, secretValue("s")), `key "key1" of provider aescbc, which its resource does not have`},
		"nothing for Secrets":   {configuration(rule("configmaps", "aescbc key1")), stored(t, "aescbc", "key1", at, secretValue("s")), `key "key1" of provider aescbc, which`},
		"another provider":      {configuration(rule("secrets", "aesgcm key1")), stored(t, "secretbox", "key1", at, secretValue("s")), `key "key1" of provider secretbox, which`},
		"missing key":           {configuration(rule("secrets", "aescbc key1")), stored(t, "aescbc", "key2", at, secretValue("s")), `key "key2" of provider aescbc, which`},
		"wrong aescbc key":      {configuration(rule("secrets", "aescbc key1")), stored(t, "aescbc", "key1=other", at, secretValue("s")), `key "key1" of provider aescbc is another one`},
		"wrong aesgcm key":      {configuration(rule("secrets", "aesgcm key1")), stored(t, "aesgcm", "key1=other", at, secretValue("s")), `key "key1" of provider aesgcm is another one`},
		"wrong secretbox key":   {configuration(rule("secrets", "secretbox key1")), stored(t, "secretbox", "key1=other", at, secretValue("s")), `key "key1" of provider secretbox is another one`},
		"copied as it was":      {configuration(rule("secrets", "aesgcm key1")), stored(t, "aesgcm", "key1", "/elsewhere", secretValue("s")), `key "key1" of provider aesgcm is another one`},
		"in the clear":          {configuration(rule("secrets", "aescbc key1")), secretValue("s"), "in the clear, and identity is not among the providers"},
		"by a KMS":              {configuration(rule("secrets", "aescbc key1")), "k8s:enc:kms:v2:vault:hunter2", `key "vault" of provider kms, which`},
		"by something else":     {"", "k8s:enc:rot13:v1:key1:hunter2", "an unknown provider"},
		"of nothing":            {"", "k8s:enc:hunter2", "an unknown provider"},
		"cut short":             {configuration(rule("secrets", "aescbc key1")), "k8s:enc:aescbc:v1:key1:sixteenbyteslong", `key "key1" of provider aescbc is another one`},
		"cut shorter":           {configuration(rule("secrets", "aesgcm key1")), "k8s:enc:aesgcm:v1:key1:", `key "key1" of provider aesgcm is another one`},
		"identity alone is set": {configuration(rule("secrets", "identity")), stored(t, "aesgcm", "key1", at, secretValue("s")), `key "key1" of provider aesgcm, which`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parsed(t, test.configuration).decrypt(t.Context(), secrets, at, []byte(test.stored))
			require.ErrorIs(t, err, activities.ErrEncrypted)
			require.ErrorContains(t, err, "core/secrets")
			require.ErrorContains(t, err, test.want)
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
}

func TestEncryption_WithAWrongAESCBCKey_NeverTakesGarbageForAnObject(t *testing.T) {
	encryption := parsed(t, configuration(rule("secrets", "aescbc key1")))
	for range 5_000 { // the padding alone lets about 20 of these pass
		_, err := encryption.decrypt(t.Context(), secrets, "/k", []byte(stored(t, "aescbc", "key1=other", "/k", secretValue("s"))))
		require.ErrorIs(t, err, activities.ErrEncrypted)
	}
}

func TestRead_WhenOneValueCannotBeDecrypted_GivesNothingBehindIt(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		store := server.openEncrypted(t, "", configuration(rule("secrets", "aesgcm key1")))
		for i, key := range []string{"key1", "key1=other"} {
			at := keyOf(activities.Ref{Family: secrets, Suffix: fmt.Sprintf("default/s-%d", i)})
			putRaw(t, store, at, stored(t, "aesgcm", key, at, secretValue("s")))
		}
		pinned := revision(t, store)
		_, err := store.Digest(t.Context(), consumer, pinned)
		require.ErrorIs(t, err, activities.ErrEncrypted)
		_, err = store.List(t.Context(), consumer, []keyspace.Family{secrets}, pinned)
		require.ErrorIs(t, err, activities.ErrEncrypted)
		_, err = store.Get(t.Context(), consumer, []activities.Ref{{Family: secrets, Suffix: "default/s-1"}})
		require.ErrorIs(t, err, activities.ErrEncrypted)
	})
}

const encryptedObject = `{"apiVersion":"core.kcp.io/v1alpha1","kind":"LogicalCluster"}`

func TestObjects_UnderEncryption_AreEncryptedInEtcdAndNowhereElse(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		store := server.openEncrypted(t, "", configuration(rule("*.*", "aesgcm key1")))
		claimed(t, store)
		key := store.layout.LogicalClusterKey(consumer)

		written, err := store.EditLogicalCluster(t.Context(), guard, consumer, 0, []byte(encryptedObject))
		require.NoError(t, err)
		present, err := store.LogicalCluster(t.Context(), consumer)
		require.NoError(t, err)
		require.JSONEq(t, encryptedObject, string(present.Value))
		require.Equal(t, written, present.ModRevision)

		created, err := store.CreateBoundCRD(t.Context(), guard, "uid", []byte(encryptedObject))
		require.NoError(t, err)
		require.True(t, created)
		crds, err := store.BoundCRDs(t.Context(), []string{"uid"})
		require.NoError(t, err)
		require.JSONEq(t, encryptedObject, string(crds["uid"]))

		opened := strings.Replace(encryptedObject, "}", `,"status":{}}`, 1)
		_, err = store.Commit(t.Context(), guard, written, []byte(opened), guard.Token.Next(), activities.Landing{})
		require.NoError(t, err)
		for key, exported := range export(t, store, below("/registry/")) {
			require.Contains(t, exported.Value[:len("k8s:enc:aesgcm:v1:key1:")], "k8s:enc:aesgcm:v1:key1:", key)
			require.NotContains(t, exported.Value, "LogicalCluster", key)
		}
		require.Equal(t, opened, awaitedWhile(t, store, func() {
			putRaw(t, store, key, stored(t, "aesgcm", "key1", key, opened+"\n"))
		}))
	})
}

// awaitedWhile gives the state that AwaitLogicalCluster told before the one that something made of it.
func awaitedWhile(t *testing.T, store *Store, change func()) string {
	t.Helper()
	var told []string
	require.NoError(t, store.AwaitLogicalCluster(t.Context(), consumer, func(present *activities.Object) (bool, error) {
		if told = append(told, string(present.Value)); len(told) == 1 {
			change()
		}
		return len(told) == 2, nil
	}))
	require.Equal(t, told[0]+"\n", told[1])
	return told[0]
}

func TestAwaitLogicalCluster_ThatTurnsUndecryptable_SaysSo(t *testing.T) {
	server := servers[0]
	server.require(t)
	server.wipe(t)
	store := server.openEncrypted(t, "", configuration(rule("*.*", "aesgcm key1", "identity")))
	key := store.layout.LogicalClusterKey(consumer)
	putRaw(t, store, key, encryptedObject)
	err := store.AwaitLogicalCluster(t.Context(), consumer, func(*activities.Object) (bool, error) {
		putRaw(t, store, key, stored(t, "aesgcm", "key2", key, encryptedObject))
		return false, nil
	})
	require.ErrorIs(t, err, activities.ErrEncrypted)
	require.ErrorContains(t, err, "core.kcp.io/logicalclusters")
}

func TestPutIfUnchanged_RepeatedUnderEncryption_FindsItsOwnValue(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		store := server.openEncrypted(t, "", configuration(rule("*.*", "aescbc key1")))
		claimed(t, store)
		entry := activities.Entry{Ref: activities.Ref{Family: secrets, Suffix: "default/s"}, Value: []byte(secretValue("s"))}
		written, err := store.PutIfUnchanged(t.Context(), guard, entry, 0)
		require.NoError(t, err)
		require.Positive(t, written)
		again, err := store.PutIfUnchanged(t.Context(), guard, entry, 0)
		require.NoError(t, err)
		require.Equal(t, written, again)
		entry.Value = []byte(secretValue("another"))
		other, err := store.PutIfUnchanged(t.Context(), guard, entry, 0)
		require.NoError(t, err)
		require.Zero(t, other)
	})
}

func TestCheckEncryption_WhenTheNewestOfSomeCannotBeRead_SaysSo(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		key := "/registry/core/secrets/" + neighbour + "/default/s-"
		families := []keyspace.Family{configMaps, secrets, keyspace.LogicalClusters}
		store := server.openEncrypted(t, "", configuration(rule("secrets *.core.kcp.io", "aescbc key2")))
		require.NoError(t, store.CheckEncryption(t.Context(), families))
		require.Equal(t, []keyspace.Family{secrets, keyspace.LogicalClusters}, store.Encrypted(families))

		putRaw(t, store, key+"1", stored(t, "aescbc", "key1", key+"1", secretValue("s")))
		err := store.CheckEncryption(t.Context(), families)
		require.ErrorIs(t, err, activities.ErrEncrypted)
		require.ErrorContains(t, err, `key "key1" of provider aescbc`)

		// A newer one proves the key; what is older may be left over.
		putRaw(t, store, key+"2", stored(t, "aescbc", "key2", key+"2", secretValue("s")))
		require.NoError(t, store.CheckEncryption(t.Context(), families))

		bare := server.open(t)
		require.ErrorIs(t, bare.CheckEncryption(t.Context(), families), activities.ErrEncrypted)
		require.NoError(t, bare.CheckEncryption(t.Context(), []keyspace.Family{configMaps}))
		require.Empty(t, bare.Encrypted(families))
	})
}

func TestLoadEncryption_OfWhatNoAPIServerTakes_SaysWhatIsWrongAndNoSecret(t *testing.T) {
	const secret = "aHVudGVyMmh1bnRlcjI=" // 14 bytes, which no provider takes
	keyed := func(provider, key string) string {
		return configuration("- resources: [secrets]\n  providers:\n  - " + provider + ": {keys: [" + key + "]}\n")
	}
	for name, test := range map[string]struct{ content, want string }{
		"nothing":                   {"", "apiVersion"},
		"no YAML":                   {"secret: [" + secret, "yaml"},
		"text":                      {secret, "unmarshal"},
		"another kind":              {"apiVersion: v1\nkind: Secret\n", `"Secret"`},
		"no kind":                   {"resources:\n" + rule("secrets", "aescbc key1"), `apiVersion ""`},
		"unknown field":             {keyed("aescbc", "{name: key1, secrte: "+secret+"}"), "secrte"},
		"no resources":              {"apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n", "resources are missing"},
		"no providers":              {configuration("- resources: [secrets]\n"), "providers are missing"},
		"nothing to apply it to":    {configuration("- providers: [{identity: {}}]\n"), "resources or providers"},
		"no keys":                   {keyed("aescbc", ""), "keys are missing"},
		"a key without a secret":    {keyed("secretbox", "{name: key1}"), "name or secret"},
		"no base64":                 {keyed("aescbc", "{name: key1, secret: 'hunter2 hunter2'}"), "base64"},
		"an aescbc key too short":   {keyed("aescbc", "{name: key1, secret: "+secret+"}"), `aescbc: key "key1": crypto/aes: invalid key size 14`},
		"an aesgcm key too short":   {keyed("aesgcm", "{name: key1, secret: "+secret+"}"), `aesgcm: key "key1"`},
		"a secretbox key too short": {keyed("secretbox", "{name: key1, secret: "+secret+"}"), "invalid key size 14"},
		"two providers in one":      {configuration("- resources: [secrets]\n  providers: [{identity: {}, aescbc: {keys: [{name: key1, secret: " + secret + "}]}}]\n"), "2 providers"},
		"KMS":                       {configuration("- resources: [secrets]\n  providers: [{kms: {apiVersion: v2, name: vault, endpoint: 'unix:///kms.sock'}}]\n"), `kms ("vault")`},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "encryption.yaml")
			require.NoError(t, os.WriteFile(file, []byte(test.content), 0o600))
			_, err := LoadEncryption(file)
			require.ErrorContains(t, err, test.want)
			require.ErrorContains(t, err, file)
			require.NotContains(t, err.Error(), "hunter2")
			require.NotContains(t, err.Error(), secret)
		})
	}
}

func TestWrite_UnderEncryption_KeepsLeasesAndCountsPlaintext(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		store := server.openEncrypted(t, "", configuration(rule("*.*", "secretbox key1")))
		claimed(t, store)
		entries := make([]activities.Entry, 300)
		size := int64(0)
		for i := range entries {
			text := `{"` + strings.Repeat("x", rand.IntN(20_000)) + `":1}`
			entries[i] = activities.Entry{Ref: activities.Ref{Family: events, Suffix: fmt.Sprintf("default/e-%d", i)}, Value: []byte(text), TTL: time.Hour}
			size += int64(len(text))
		}
		var last activities.Written
		require.NoError(t, store.Write(t.Context(), guard, oneBatch(entries), func(written activities.Written) { last = written }))
		require.Equal(t, size, last.Bytes)
		response, err := admin(store).Get(t.Context(), "/registry/", clientv3.WithPrefix())
		require.NoError(t, err)
		require.Len(t, response.Kvs, len(entries))
		for _, kv := range response.Kvs {
			require.NotZero(t, kv.Lease)
			require.True(t, strings.HasPrefix(string(kv.Value), "k8s:enc:secretbox:v1:key1:"))
		}
	})
}

// FuzzEncryption: no configuration and no value brings a worker down, and what it writes it can read.
func FuzzEncryption(f *testing.F) {
	for _, situation := range situations {
		for _, provider := range []string{"aescbc", "aesgcm", "secretbox", "identity"} {
			f.Add([]byte(situation.configuration), []byte(stored(f, provider, "key1", "/k", secretValue("s"))))
		}
	}
	f.Add([]byte(configuration(rule("secrets", "aescbc key1"))), []byte("k8s:enc:aescbc:v1:key1:sixteenbyteslong"))
	f.Fuzz(func(t *testing.T, configuration, value []byte) {
		encryption, err := parseEncryption(configuration)
		if err != nil {
			return
		}
		for _, family := range []keyspace.Family{secrets, gizmos, keyspace.LogicalClusters} {
			if _, err := encryption.decrypt(t.Context(), family, "/k", value); err != nil {
				require.ErrorIs(t, err, activities.ErrEncrypted)
			}
			plaintext := append([]byte("k8s\x00"), value...)
			encrypted, err := encryption.encrypt(t.Context(), family, "/k", plaintext)
			require.NoError(t, err)
			decrypted, err := encryption.decrypt(t.Context(), family, "/k", encrypted)
			require.NoError(t, err)
			require.Equal(t, plaintext, decrypted)
		}
	})
}
