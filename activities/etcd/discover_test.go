package etcd

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

// asked counts what a store has asked for.
type asked struct{ requests, ranges atomic.Int64 }

func counted(t *testing.T, server *server) (*Store, *asked) {
	t.Helper()
	asked := &asked{}
	count := func(
		ctx context.Context, method string, request, reply any, connection *grpc.ClientConn,
		invoke grpc.UnaryInvoker, options ...grpc.CallOption,
	) error {
		asked.requests.Add(1)
		switch request := request.(type) {
		case *pb.RangeRequest:
			asked.ranges.Add(1)
		case *pb.TxnRequest:
			asked.ranges.Add(int64(len(request.Success)))
		}
		return invoke(ctx, method, request, reply, connection, options...)
	}
	config, err := server.config().client()
	require.NoError(t, err)
	config.DialOptions = append(config.DialOptions, grpc.WithChainUnaryInterceptor(count))
	client, err := clientv3.New(config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	store := &Store{client: client, layout: keyspace.NewLayout(""), limits: newLimits(0), pace: newPaceOf(Config{})}
	server.admit(t, store)
	return store, asked
}

func identity(first string) string { return first + strings.Repeat("0", 64-len(first)) }

func TestDiscover_OfManyTenants_ReadsNoMoreThanOfFew(t *testing.T) {
	lines := fixture(t, "root")
	eachServer(t, func(t *testing.T, server *server) {
		store, asked := counted(t, server)
		load(t, store, lines)
		reads := func() (int64, []keyspace.Family) {
			fresh, asked := counted(t, server)
			families, err := fresh.discover(t.Context(), consumer, 0)
			require.NoError(t, err)
			return asked.ranges.Load(), families
		}
		few, before := reads()
		for i := range 2000 {
			putRaw(t, store, fmt.Sprintf("/registry/core/configmaps/tenant%d/default/x", i), "x")
			putRaw(t, store, fmt.Sprintf("/registry/acme.io/gizmos/customresources/tenant%d/default/x", i), "x")
		}
		many, after := reads()
		require.Equal(t, few, many)
		require.Equal(t, before, after)
		require.Less(t, many, int64(120))

		_, err := store.discover(t.Context(), consumer, 0)
		require.NoError(t, err)
		asked.requests.Store(0)
		known, err := store.discover(t.Context(), consumer, 0)
		require.NoError(t, err)
		require.Equal(t, before, known, "with the resources known")
		require.LessOrEqual(t, asked.requests.Load(), int64(2))
	})
}

func TestDiscover_WhenResourcesAppear_FindsThemInTheGaps(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		store := server.open(t)
		families := func() (names []string) {
			found, err := store.discover(t.Context(), consumer, 0)
			require.NoError(t, err)
			for _, family := range found {
				names = append(names, family.String())
			}
			return names
		}
		require.Empty(t, families())
		keys := []string{
			"wild.west/cowboys/" + identity("5") + "/%s/default/x",
			"wild.west/cowboys/" + identity("0") + "/%s/default/x",
			"wild.west/cowboys/" + identity("f") + "/%s/default/x",
			"wild.west/cowboys/customresources/%s/default/x",
			"core/secrets/%s/default/x",
			"core/configmaps/%s/default/x",
			"zoo.io/lions/customresources/%s/x",
		}
		for i, key := range keys {
			for _, tenant := range []string{consumer + "0", "0" + consumer, "zz"} {
				putRaw(t, store, "/registry/"+fmt.Sprintf(key, tenant), "x")
			}
			require.Len(t, families(), i, "others' keys alone")
			putRaw(t, store, "/registry/"+fmt.Sprintf(key, consumer), "x")
			require.Len(t, families(), i+1, key)
		}
		require.Equal(t, []string{
			"core/configmaps", "core/secrets", "wild.west/cowboys/" + identity("0"), "wild.west/cowboys/" + identity("5"),
			"wild.west/cowboys/customresources", "wild.west/cowboys/" + identity("f"), "zoo.io/lions/customresources",
		}, families())

		fresh, err := server.open(t).discover(t.Context(), consumer, 0)
		require.NoError(t, err)
		require.Len(t, fresh, len(keys), "with nothing known")
	})
}

func TestDiscover_AtAnEarlierRevision_FindsWhatWasThereThen(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		store := server.open(t)
		putRaw(t, store, "/registry/core/secrets/"+consumer+"/default/x", "x")
		earlier := revision(t, store)
		deleteRaw(t, store, "/registry/core/secrets/"+consumer+"/default/x")
		putRaw(t, store, "/registry/core/configmaps/"+consumer+"/default/x", "x")
		now, err := store.discover(t.Context(), consumer, 0)
		require.NoError(t, err)
		require.Equal(t, []keyspace.Family{configMaps}, now)
		then, err := store.discover(t.Context(), consumer, earlier)
		require.NoError(t, err)
		require.Equal(t, []keyspace.Family{secrets}, then)
	})
}

func TestDiscover_AmongKeysThatAreNoEntries_PassesThemBy(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		store := server.open(t)
		for _, key := range []string{"health", "masterleases/127.0.0.1", "ranges/serviceips", "a/b/", "core/configmaps", "core/"} {
			putRaw(t, store, "/registry/"+key, "x")
		}
		putRaw(t, store, "/registrynot/core/secrets/"+consumer+"/default/x", "x")
		putRaw(t, store, "/registry/core/configmaps/"+consumer+"/default/x", "x")
		for range 2 {
			found, err := store.discover(t.Context(), consumer, 0)
			require.NoError(t, err)
			require.Equal(t, []keyspace.Family{configMaps}, found)
		}
	})
}

func TestDiscover_OfANameThatIsNone_IsRefused(t *testing.T) {
	server := servers[0]
	server.require(t)
	for _, name := range []string{"", "a/b", "..", identity("a")} {
		_, err := server.open(t).discover(t.Context(), name, 0)
		require.Error(t, err, name)
	}
}

func TestGaps_AreWhatNoSpanCovers(t *testing.T) {
	require.Equal(t, []span{{"a", "b"}, {"d", "f"}, {"h", "z"}},
		gaps([]span{{"b", "d"}, {"c", "d"}, {"f", "h"}, {"g", "g5"}}, span{"a", "z"}))
	require.Equal(t, []span{{"a", "z"}}, gaps(nil, span{"a", "z"}))
	require.Empty(t, gaps([]span{{"a", "z"}}, span{"a", "z"}))
}

func TestDiscover_OfFamiliesThatTheStoreItselfHasWritten_SearchesForNone(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		store, asked := counted(t, server)
		claimed(t, store)
		var entries []activities.Entry
		for i := range 50 {
			family := keyspace.Family{Group: fmt.Sprintf("g%02d.io", i), Resource: "gizmos", Segment: keyspace.CustomResources}
			entries = append(entries, activities.Entry{Ref: activities.Ref{Family: family, Suffix: "default/x"}, Value: []byte("x")})
		}
		require.NoError(t, store.Write(t.Context(), guard, oneBatch(entries), ignore))
		asked.requests.Store(0)
		found, err := store.discover(t.Context(), consumer, 0)
		require.NoError(t, err)
		require.Len(t, found, 50)
		require.LessOrEqual(t, asked.requests.Load(), int64(2))
	})
}
