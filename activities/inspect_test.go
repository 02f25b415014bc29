package activities_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

const schemaUID = "0bf4bf34-ede7-42be-bd0c-bace09604337"

const establishedCRD = `{"kind":"CustomResourceDefinition","metadata":{"creationTimestamp":"2020-01-01T00:00:00Z"},"status":{"conditions":[{"type":"Established","status":"True"}]}}`

func (s *shard) inspect(t *testing.T) (activities.OriginReport, error) {
	return perform[activities.OriginReport](t, s, s.InspectOrigin, activities.InspectInput{LogicalCluster: tenant, RunID: run})
}

func TestInspectOrigin_CountsWhatIsThere(t *testing.T) {
	p := newPair(t)
	p.origin.api.keys = "fingerprint"
	p.origin.api.contents = activities.Contents{ServiceAccounts: 2, ChildWorkspaces: []string{"child"}}
	report, err := p.origin.inspect(t)
	require.NoError(t, err)
	require.EqualValues(t, 3, report.Entries)
	require.EqualValues(t, len("1")+len("2")+len(`{"spec":{}}`), report.Bytes)
	require.Equal(t, "root", report.TransferAddress)
	require.Equal(t, "fingerprint", report.SigningKeys)
	require.Equal(t, []string{"child"}, report.Contents.ChildWorkspaces)
}

func TestInspectOrigin_RefusesWhatCannotLeave(t *testing.T) {
	annotated := func(annotation string) string {
		return strings.Replace(logicalCluster("root"), `"annotations":{`, `"annotations":{`+annotation+`,`, 1)
	}
	for name, test := range map[string]struct {
		object string
		want   string
	}{
		"being deleted":          {strings.Replace(logicalCluster("root"), `"metadata":{`, `"metadata":{"deletionTimestamp":"2026-11-30T00:00:00Z",`, 1), activities.BeingDeleted},
		"held by kcp's own move": {annotated(`"internal.kcp.io/migrating":"root/move"`), activities.AlreadyMigrating},
		"inactive already":       {annotated(`"core.kcp.io/inactive":"true"`), activities.NotReady},
		"still initializing":     {strings.Replace(logicalCluster("root"), `"phase":"Ready"`, `"phase":"Initializing"`, 1), activities.NotReady},
	} {
		t.Run(name, func(t *testing.T) {
			origin := newShard(t, "root")
			origin.api.idle.Store(true)
			origin.put(t, layout.LogicalClusterKey(tenant), test.object)
			_, err := origin.inspect(t)
			requireRefused(t, test.want, err)
		})
	}
}

func TestInspectOrigin_WithoutTheObject_NamesTheShardToCheck(t *testing.T) {
	_, err := newShard(t, "root").inspect(t)
	requireRefused(t, activities.LogicalClusterNotFound, err)
	require.ErrorContains(t, err, "storage prefix")
}

func TestInspect_BesideAnotherShardsEtcd_IsRefused(t *testing.T) {
	systemShard := layout.LogicalClusterKey(keyspace.SystemShard)
	for name, test := range map[string]struct {
		mistake func(*shard)
		advice  string
	}{
		"the etcd of another shard": {func(s *shard) { s.put(t, systemShard, logicalCluster("shard-2")) }, "is shard shard-2's; check --shard"},
		"the API of another shard":  {func(s *shard) { s.api.uid = "uid-of-shard-2" }, "is uid-of-shard-2 there and uid-of-shard-1 here; check --kubeconfig"},
		"an old copy of the etcd":   {func(s *shard) { s.api.ahead = 1 }, "one of them a copy"},
		"an API with such a copy":   {func(s *shard) { s.api.ahead = -1 }, "one of them a copy"},
		"another prefix, or another etcd": {func(s *shard) {
			_, err := s.client.Delete(t.Context(), systemShard)
			require.NoError(t, err)
		}, "check --etcd-endpoints and --etcd-prefix"},
	} {
		t.Run(name, func(t *testing.T) {
			beside := newShard(t, "shard-1")
			beside.api.idle.Store(true)
			test.mistake(beside)
			for _, inspect := range []any{beside.InspectOrigin, beside.InspectDestination} {
				_, err := perform[any](t, beside, inspect, activities.InspectInput{LogicalCluster: tenant, RunID: run})
				requireRefused(t, activities.WrongEtcd, err)
				require.ErrorContains(t, err, test.advice)
			}
		})
	}
}

func TestInspect_OnEitherShardClaimedByAnotherMove_NamesIt(t *testing.T) {
	p := newPair(t)
	other := activities.InspectInput{LogicalCluster: tenant, RunID: "another"}
	for _, side := range []struct {
		shard   *shard
		inspect any
	}{{p.origin, p.origin.InspectOrigin}, {p.destination, p.destination.InspectDestination}} {
		_, err := perform[any](t, side.shard, side.inspect, other)
		requireRefused(t, activities.AlreadyMigrating, err)
		require.ErrorContains(t, err, "migrate-consumer")
	}
}

func TestClaim_OfAnotherMove_IsRefused(t *testing.T) {
	p := newPair(t)
	input := activities.ClaimInput{Guard: activities.Guard{LogicalCluster: tenant, Token: activities.NewToken("another")}}
	_, err := perform[any](t, p.origin, p.origin.Claim, input)
	requireRefused(t, activities.AlreadyMigrating, err)
}

func TestInspectOrigin_BoundResourceWithoutItsCRD_IsRefused(t *testing.T) {
	p := newPair(t)
	p.origin.api.contents.Bindings = []activities.BoundResource{{Binding: "wild", Group: "wild.west", Resource: "cowboys", SchemaUID: schemaUID}}
	_, err := p.origin.inspect(t)
	requireRefused(t, activities.BoundResourceMissing, err)
	require.ErrorContains(t, err, "cowboys.wild.west")
}

func TestInspectOrigin_EncryptedValue_IsRefusedWithoutTellingIt(t *testing.T) {
	p := newPair(t)
	p.origin.put(t, "/registry/core/secrets/"+tenant+"/default/s", "k8s:enc:aescbc:v1:key1:secret-bytes")
	_, err := p.origin.inspect(t)
	requireRefused(t, activities.EncryptedAtRest, err)
	require.ErrorContains(t, err, "core/secrets")
	require.ErrorContains(t, err, `key "key1" of provider aescbc`)
	require.NotContains(t, err.Error(), "secret-bytes")
}

func TestInspectDestination_ListsLeftoversAndMissingCRDs(t *testing.T) {
	destination := newShard(t, "shard-1")
	destination.put(t, "/registry/core/configmaps/"+tenant+"/default/old", "x")
	destination.put(t, "/registry/core/configmaps/"+neighbour+"/"+tenant+"/x", "a neighbour's namespace of that name")
	report, err := perform[activities.DestinationReport](t, destination, destination.InspectDestination,
		activities.InspectInput{LogicalCluster: tenant, RunID: run, SchemaUIDs: []string{schemaUID}})
	require.NoError(t, err)
	require.Equal(t, []string{"/registry/core/configmaps/" + tenant + "/default/old"}, report.Leftovers)
	require.Equal(t, []string{schemaUID}, report.MissingCRDs)
	require.False(t, report.HasLogicalCluster)
}

func (p pair) install(t *testing.T) (activities.InstallResult, error) {
	return perform[activities.InstallResult](t, p.destination, p.destination.InstallBoundCRDs,
		activities.InstallInput{Guard: guard, Origin: p.ref, SchemaUIDs: []string{schemaUID}})
}

func TestInstallBoundCRDs_MakesThemYoungAgain_OnceOnly(t *testing.T) {
	p := newPair(t)
	p.origin.put(t, layout.BoundCRDKey(schemaUID), establishedCRD)
	result, err := p.install(t)
	require.NoError(t, err)
	require.Equal(t, []string{schemaUID}, result.Created)
	created := p.destination.export(t, layout.BoundCRDKey(schemaUID))[layout.BoundCRDKey(schemaUID)]
	require.NotContains(t, created, "2020-01-01")
	result, err = p.install(t)
	require.NoError(t, err)
	require.Empty(t, result.Created)
}

func TestInstallBoundCRDs_NotEstablishedOrGone_IsRefused(t *testing.T) {
	p := newPair(t)
	_, err := p.install(t)
	requireRefused(t, activities.BoundResourceMissing, err)
	p.origin.put(t, layout.BoundCRDKey(schemaUID), strings.Replace(establishedCRD, "True", "False", 1))
	_, err = p.install(t)
	requireRefused(t, activities.BoundResourceMissing, err)
}

func TestLiftRevision_ReachesTheOrigins(t *testing.T) {
	p := newPair(t)
	result, err := perform[activities.LiftResult](t, p.destination, p.destination.LiftRevision, activities.LiftInput{Guard: guard, To: 500})
	require.NoError(t, err)
	require.GreaterOrEqual(t, result.Revision, int64(500))
}
