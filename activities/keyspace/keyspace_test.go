package keyspace

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// consumer is root:consumer of the fixtures; neighbour has a namespace of that name.
const (
	consumer  = "256hdo017n2m0br9"
	neighbour = "2ei2q8rs6um1o3uc"
	identity  = "561c6d72eea95fb9015865076eb4230d164e409e3f1679cc117c393404a81469"
)

func TestParse_TellsTheThreeShapesApart(t *testing.T) {
	layout := NewLayout("")
	for _, test := range []struct {
		key  string
		want Entry
	}{
		{"/registry/core/configmaps/" + consumer + "/default/settings",
			Entry{Family{"core", "configmaps", ""}, consumer, "default/settings"}},
		{"/registry/rbac.authorization.k8s.io/clusterroles/" + consumer + "/system:admin",
			Entry{Family{"rbac.authorization.k8s.io", "clusterroles", ""}, consumer, "system:admin"}},
		{"/registry/acme.io/gizmos/customresources/" + consumer + "/default/one",
			Entry{Family{"acme.io", "gizmos", CustomResources}, consumer, "default/one"}},
		{"/registry/wild.west/cowboys/" + identity + "/" + consumer + "/default/billy",
			Entry{Family{"wild.west", "cowboys", identity}, consumer, "default/billy"}},
		{"/registry/core.kcp.io/logicalclusters/customresources/system:shard/cluster",
			Entry{LogicalClusters, SystemShard, LogicalClusterName}},
	} {
		got, err := layout.Parse(test.key)
		require.NoError(t, err, test.key)
		require.Equal(t, test.want, got)
		require.Equal(t, test.key, layout.Key(got))
	}
}

func TestParse_NamespaceNamedLikeAnotherCluster_StaysWithItsTenant(t *testing.T) {
	entry, err := NewLayout("").Parse("/registry/core/configmaps/" + neighbour + "/" + consumer + "/trap")
	require.NoError(t, err)
	require.Equal(t, neighbour, entry.LogicalCluster)
	require.Equal(t, consumer+"/trap", entry.Suffix)
}

func TestParse_RefusesWhatIsNoEntry(t *testing.T) {
	for _, key := range []string{
		"", "/", "/registry", "/registry/", "/registry/core", "/registry/core/configmaps", "/registry/core/configmaps/" + consumer,
		"/registry/core/configmaps/" + consumer + "/", "/registry//configmaps/" + consumer + "/x", "/registry/core//" + consumer + "/x",
		"/other/core/configmaps/" + consumer + "/x", "/registryx/core/configmaps/" + consumer + "/x",
		"/registry/wild.west/cowboys/" + identity + "/" + consumer, "/registry/acme.io/gizmos/customresources/" + consumer,
		"/registry/core/configmaps/UPPER/x", "/kcp-migrate/migrations/" + consumer + "/token",
	} {
		_, err := NewLayout("").Parse(key)
		require.ErrorIs(t, err, ErrNotAnEntry, key)
	}
}

func TestLayout_OtherStoragePrefixes(t *testing.T) {
	for _, prefix := range []string{"kcp", "/kcp", "/kcp/", "/deep/er"} {
		layout := NewLayout(prefix)
		key := layout.LogicalClusterKey(consumer)
		require.Equal(t, "/"+strings.Trim(prefix, "/")+"/core.kcp.io/logicalclusters/customresources/"+consumer+"/cluster", key)
		entry, err := layout.Parse(key)
		require.NoError(t, err)
		require.Equal(t, consumer, entry.LogicalCluster)
		_, err = NewLayout("").Parse(key)
		require.ErrorIs(t, err, ErrNotAnEntry)
	}
}

func TestIsSystem_ProtectsWhatBelongsToKcp(t *testing.T) {
	for _, name := range []string{"root", "system:admin", "system:shard", "system:bound-crds", "system:system-crds"} {
		require.True(t, IsSystem(name), name)
		require.True(t, IsLogicalClusterName(name), name)
	}
	for _, name := range []string{consumer, "rooty", "systemd"} {
		require.False(t, IsSystem(name), name)
	}
}

func TestParse_EveryFixtureKey_RoundTripsAndIsClaimedOnce(t *testing.T) {
	layout := NewLayout("")
	for _, file := range []string{"root", "shard-1"} {
		for _, key := range fixtureKeys(t, file) {
			entry, err := layout.Parse(key)
			require.NoError(t, err, key)
			require.Equal(t, key, layout.Key(entry))
			require.True(t, strings.HasPrefix(key, layout.FamilyPrefix(entry.Family, entry.LogicalCluster)))
		}
	}
}

func fixtureKeys(t *testing.T, shard string) []string {
	file, err := os.Open("../../cmd/devstack/fixtures/" + shard + ".jsonl.gz")
	require.NoError(t, err)
	defer file.Close()
	reader, err := gzip.NewReader(file)
	require.NoError(t, err)
	lines := bufio.NewScanner(reader)
	lines.Buffer(nil, 4<<20)
	var keys []string
	for lines.Scan() {
		var line struct{ Key string }
		require.NoError(t, json.Unmarshal(lines.Bytes(), &line))
		keys = append(keys, line.Key)
	}
	require.NoError(t, lines.Err())
	require.NotEmpty(t, keys)
	return keys
}

func drawName(t *rapid.T, label string) string {
	return rapid.OneOf(
		rapid.StringMatching(`[a-z0-9]([a-z0-9-]{0,14}[a-z0-9])?`),
		rapid.StringMatching(`[0-9a-f]{62}[0-9a-f]`),
		rapid.SampledFrom([]string{consumer, neighbour, SystemShard, Root}),
	).Filter(func(name string) bool { return name != CustomResources }).Draw(t, label)
}

func drawEntry(t *rapid.T) Entry {
	return Entry{
		Family: Family{
			Group:    rapid.StringMatching(`[a-z]{1,8}(\.[a-z]{1,4})?`).Draw(t, "group"),
			Resource: rapid.StringMatching(`[a-z]{1,10}`).Draw(t, "resource"),
			Segment:  rapid.SampledFrom([]string{"", CustomResources, identity}).Draw(t, "segment"),
		},
		LogicalCluster: drawName(t, "logical cluster"),
		Suffix:         rapid.StringMatching(`([a-z0-9:.-]{1,63}/)?[a-z0-9:.-]{1,63}`).Draw(t, "suffix"),
	}
}

func TestKey_OfAnyEntry_ParsesBackToIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		layout := NewLayout(rapid.SampledFrom([]string{"", "kcp", "a/b"}).Draw(t, "prefix"))
		entry := drawEntry(t)
		got, err := layout.Parse(layout.Key(entry))
		require.NoError(t, err)
		require.Equal(t, entry, got)
	})
}

func TestFamilyPrefix_NeverCoversAKeyOfAnotherCluster(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		layout := NewLayout("")
		entry, other := drawEntry(t), drawName(t, "other cluster")
		covered := strings.HasPrefix(layout.Key(entry), layout.FamilyPrefix(entry.Family, other))
		require.Equal(t, entry.LogicalCluster == other, covered)
	})
}

func TestFamily_TextRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		family := drawEntry(t).Family
		text, err := family.MarshalText()
		require.NoError(t, err)
		var got Family
		require.NoError(t, got.UnmarshalText(text))
		require.Equal(t, family, got)
	})
	for _, bad := range []string{"", "core", "core/", "/configmaps", "a/b/c", "a/b/" + CustomResources + "/d"} {
		_, err := ParseFamily(bad)
		require.Error(t, err, bad)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("/registry/core/configmaps/" + consumer + "/default/settings")
	f.Add("/registry/acme.io/gizmos/customresources/" + consumer + "/default/one")
	f.Add("/registry/wild.west/cowboys/" + identity + "/" + consumer + "/default/billy")
	f.Add("/registry/core/configmaps/" + neighbour + "/" + consumer + "/trap")
	layout := NewLayout("")
	f.Fuzz(func(t *testing.T, key string) {
		entry, err := layout.Parse(key)
		if err != nil {
			require.ErrorIs(t, err, ErrNotAnEntry)
			return
		}
		require.Equal(t, key, layout.Key(entry))
		require.True(t, IsLogicalClusterName(entry.LogicalCluster))
		require.NotContains(t, entry.LogicalCluster, "/")
	})
}
