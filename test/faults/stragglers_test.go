package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
	"github.com/kcp-migrate/kcp-migrate/test/faults/point"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// fate is what has to become of a late write.
type fate string

const (
	// repaired is of what the verification finds: it is on the destination, and nobody need be told.
	repaired fate = "repaired"
	// carried is of puts; deletions are only named.
	carried fate = "carried"
	// discarded is of what only kcp's own controllers can have written.
	discarded fate = "discarded"
	// left is of what comes after the last look.
	left fate = "left"
)

// straggling is a moment of a move at which there land at the origin a put, a deletion, and the first object of a resource
// that the tenant had none of.
type straggling struct {
	name     string
	activity string
	role     Role
	moment   point.Moment
	fate     fate
}

// stragglings are in the order in which a move comes by them. Where both sides differ they are compared again, so the first
// three make for three rounds.
var stragglings = []straggling{
	{"fenced", "FenceOrigin", Origin, point.After, repaired},
	{"copying", "CopyEntries", Destination, point.During, repaired},
	{"compared", "VerifyEntries", Destination, point.After, repaired},
	{"verified", "Commit", Destination, point.Before, carried},
	{"toppedup", "Commit", Destination, point.During, carried},
	{"committed", "Commit", Destination, point.After, carried},
	{"serving", "ReleaseContext", Origin, point.Before, carried},
	{"dismissed", "DropOriginLogicalCluster", Origin, point.Before, carried},
	{"dropped", "DropOriginLogicalCluster", Origin, point.After, discarded},
	{"swept", "AwaitRoute", Either, point.Before, discarded},
	{"released", "Release", Origin, point.Before, left},
}

// lateKeys are what a straggling writes and deletes.
type lateKeys struct{ put, deleted, created string }

func (s straggling) keys(tenant string) lateKeys {
	number := slices.IndexFunc(stragglings, func(other straggling) bool { return other.name == s.name }) + 1
	configMap := func(number int) string {
		return fmt.Sprintf("/registry/core/configmaps/%s/default/cm-%d", tenant, number)
	}
	return lateKeys{
		put: configMap(number), deleted: configMap(20 + number),
		created: fmt.Sprintf("/registry/%s.example/strays/customresources/%s/first", s.name, tenant),
	}
}

func (s straggling) putValue(t *testing.T) string {
	late := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "late"}, Data: map[string]string{"written": s.name},
	}
	var value bytes.Buffer
	require.NoError(t, protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(late, &value))
	return value.String()
}

func (s straggling) createdValue() string {
	return fmt.Sprintf(`{"apiVersion":"%s.example/v1","kind":"Stray","metadata":{"name":"first"}}`, s.name)
}

// land writes straight into the origin's etcd, past the fence.
func (s straggling) land(t *testing.T, etcd *clientv3.Client, tenant string) func(context.Context) error {
	keys, value := s.keys(tenant), s.putValue(t)
	return func(ctx context.Context) error {
		_, putErr := etcd.Put(ctx, keys.put, value)
		_, deleteErr := etcd.Delete(ctx, keys.deleted)
		_, createErr := etcd.Put(ctx, keys.created, s.createdValue())
		return errors.Join(putErr, deleteErr, createErr)
	}
}

func TestMove_WithStragglersAtEveryStep_CarriesOrNamesEach(t *testing.T) {
	bench := startTestBench(t)
	tenant := tenants[Neighbour]
	leg, err := bench.locate(t.Context(), tenant)
	require.NoError(t, err)
	before := bench.values(t, leg.origin)
	meddled := schedule{tenant: Neighbour, number: 1}
	for _, straggling := range stragglings {
		meddled.blows = append(meddled.blows, meddling(straggling.activity, straggling.role, straggling.moment, straggling.land(t, bench.clients[leg.origin], tenant)))
	}

	outcome := bench.meddle(t, meddled)

	require.Equal(t, workflows.Completed, outcome.result.Phase)
	require.Len(t, outcome.hits, len(stragglings))
	here, there := bench.values(t, leg.destination), bench.values(t, leg.origin)
	for _, straggling := range stragglings {
		t.Run(straggling.name, func(t *testing.T) { straggling.requireFate(t, tenant, before, here, there, outcome.result.Stragglers) })
	}
}

// requireFate compares what both etcds hold now, and what the result names.
func (s straggling) requireFate(t *testing.T, tenant string, before, here, there map[string]string, told []activities.Straggler) {
	t.Helper()
	keys := s.keys(tenant)
	if s.fate == repaired || s.fate == carried {
		require.Equal(t, s.putValue(t), here[keys.put])
		require.Equal(t, s.createdValue(), here[keys.created])
	} else {
		require.Equal(t, before[keys.put], here[keys.put])
		require.NotContains(t, here, keys.created)
	}
	if s.fate == repaired {
		require.NotContains(t, here, keys.deleted)
	} else {
		require.Equal(t, before[keys.deleted], here[keys.deleted])
	}
	if s.fate == left {
		require.Equal(t, s.putValue(t), there[keys.put])
		require.Equal(t, s.createdValue(), there[keys.created])
	} else {
		require.NotContains(t, there, keys.put)
		require.NotContains(t, there, keys.created)
	}
	require.NotContains(t, there, keys.deleted)
	for _, key := range []string{keys.put, keys.deleted, keys.created} {
		s.requireNamed(t, key, key == keys.deleted, told)
	}
}

func (s straggling) requireNamed(t *testing.T, key string, deleted bool, told []activities.Straggler) {
	t.Helper()
	entry, err := keyspace.NewLayout("").Parse(key)
	require.NoError(t, err)
	at := slices.IndexFunc(told, func(one activities.Straggler) bool {
		return one.Ref.Family == entry.Family && one.Ref.Suffix == entry.Suffix
	})
	controllers := s.fate == discarded && deleted // what they delete at an origin that has no LogicalCluster is nobody's
	if s.fate == repaired || s.fate == left || controllers {
		require.Negative(t, at, key)
		return
	}
	require.GreaterOrEqual(t, at, 0, key)
	require.Equal(t, deleted, told[at].Deleted)
	require.Equal(t, !deleted && s.fate == carried, told[at].Carried, told[at].Reason)
	require.Equal(t, !deleted && s.fate == discarded, told[at].Discarded, told[at].Reason)
	require.Equal(t, told[at].Carried, told[at].Reason == "")
}
