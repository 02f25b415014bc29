package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
	"github.com/kcp-migrate/kcp-migrate/activities/transfer/transferpb"
)

var record = flag.String("record", "", "record how today's workers speak, as testdata/recordings/<this>.json; an old recording is never made anew")

// recording is how workers of one version spoke with each other, byte by byte.
type recording struct {
	// Schema is their transfer.proto, as a FileDescriptorProto: what these workers can read.
	Schema    []byte     `json:"schema"`
	Exchanges []exchange `json:"exchanges"`
}

// exchange is one call and its answer.
type exchange struct {
	// Step is which of the steps it was made for.
	Step   string `json:"step"`
	Method string `json:"method"`
	// Protocol is what the metadata of the request tell; the first workers told none.
	Protocol  string   `json:"protocol,omitempty"`
	Request   []byte   `json:"request"`
	Responses [][]byte `json:"responses"`
	// Status is a google.rpc.Status.
	Status []byte `json:"status"`
}

// step is something that a destination worker asks; each takes one call.
type step struct {
	name string
	// failure is the origin's answer.
	failure error
	ask     func(context.Context, activities.Source) (any, error)
}

// steps have names that recordings know them by, and ask for the same as ever. New ones may come.
func steps() []step {
	last := recordedSource().entries[2].Ref
	steps := []step{
		{name: "revision", ask: askRevision},
		{name: "read", ask: func(ctx context.Context, source activities.Source) (any, error) {
			return readAll(ctx, source, readRequest())
		}},
		{name: "read on", ask: func(ctx context.Context, source activities.Source) (any, error) {
			return readAll(ctx, source, activities.ReadRequest{LogicalCluster: cluster, Revision: revision, After: &last})
		}},
		{name: "digest", ask: func(ctx context.Context, source activities.Source) (any, error) {
			return source.Digest(ctx, guard, revision)
		}},
		{name: "list", ask: func(ctx context.Context, source activities.Source) (any, error) {
			return source.List(ctx, guard, []keyspace.Family{configMaps, cowboys}, revision)
		}},
		{name: "get", ask: func(ctx context.Context, source activities.Source) (any, error) {
			return source.Get(ctx, guard, []activities.Ref{last})
		}},
		{name: "logical cluster", ask: func(ctx context.Context, source activities.Source) (any, error) {
			return source.LogicalCluster(ctx, guard)
		}},
		{name: "bound CRDs", ask: func(ctx context.Context, source activities.Source) (any, error) {
			return source.BoundCRDs(ctx, guard, []string{"schema-1", "schema-absent"})
		}},
	}
	for _, sentinel := range sentinels {
		steps = append(steps, step{name: sentinel.reason, failure: sentinel.err, ask: askRevision})
	}
	return steps
}

func askRevision(ctx context.Context, source activities.Source) (any, error) {
	return source.Revision(ctx, guard)
}

// recordedSource holds what the recordings tell of. They cannot be made anew, so it must stay.
func recordedSource() *fakeSource {
	source := newFakeSource(tenant(6), 2)
	source.listed = listing(source.entries)
	source.digest = activities.Digest{
		Families: []activities.FamilyDigest{
			{Family: configMaps, Entries: 3, Bytes: 12, SHA256: "0a1b"}, {Family: cowboys, Entries: 3, Bytes: 34, SHA256: "2c3d"},
		},
		Leased: source.listed[:1],
	}
	source.crds = map[string][]byte{"schema-1": []byte(`{"kind":"CustomResourceDefinition"}`)}
	return source
}

// TestRecord makes a recording of today's workers, where one is asked for.
func TestRecord(t *testing.T) {
	if *record == "" {
		t.Skip("no -record")
	}
	schema, err := proto.Marshal(protodesc.ToFileDescriptorProto(transferpb.File_transferpb_transfer_proto))
	require.NoError(t, err)
	made := recording{Schema: schema}
	for _, step := range steps() {
		source := recordedSource()
		source.err = step.failure
		origin, _ := serve(t, newServer(t, Config{}, source))
		between := connectRaw(t, func(asked exchange) exchange {
			asked.Step = step.name
			answered := callRaw(t, origin, asked)
			made.Exchanges = append(made.Exchanges, answered)
			return answered
		})
		_, err := step.ask(t.Context(), between)
		require.ErrorIs(t, err, step.failure)
	}
	encoded, err := json.MarshalIndent(made, "", " ")
	require.NoError(t, err)
	file, err := os.OpenFile(filepath.Join("testdata", "recordings", *record+".json"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	require.NoError(t, err)
	_, err = file.Write(append(encoded, '\n'))
	require.NoError(t, errors.Join(err, file.Close()))
}
