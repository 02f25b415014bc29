package transfer

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
	"github.com/kcp-migrate/kcp-migrate/activities/transfer/transferpb"
)

func marshalled(f *testing.F, message proto.Message) []byte {
	f.Helper()
	frame, err := proto.Marshal(message)
	require.NoError(f, err)
	return frame
}

// FuzzRequests has any frame come in as each kind of request: the source is asked for nothing but the claimed cluster.
func FuzzRequests(f *testing.F) {
	ref := encodeRef(activities.Ref{Family: cowboys, Suffix: "default/billy"})
	for _, asked := range []activities.Guard{guard, {LogicalCluster: "2ei2q8rs6um1o3uc", Token: guard.Token}, {LogicalCluster: cluster, Token: "run-b/1"}, {}} {
		wired := encodeGuard(asked)
		f.Add(marshalled(f, &transferpb.ReadRequest{Guard: wired, Revision: 7, After: ref}))
		f.Add(marshalled(f, &transferpb.ListRequest{Guard: wired, Families: []string{cowboys.String(), "core"}, Revision: 7}))
		f.Add(marshalled(f, &transferpb.GetRequest{Guard: wired, Refs: []*transferpb.Ref{ref, nil}}))
		f.Add(marshalled(f, &transferpb.BoundCRDsRequest{Guard: wired, SchemaUids: []string{"a", "../b"}}))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		source := &strictSource{t: t, Source: newFakeSource(nil, 1)}
		server := newServer(t, Config{}, source)
		for _, serve := range []func(context.Context, *service) error{
			arrives(server, frame, func(ctx context.Context, s *service, request *transferpb.RevisionRequest) error {
				_, err := s.Revision(ctx, request)
				return err
			}),
			arrives(server, frame, func(ctx context.Context, s *service, request *transferpb.LogicalClusterRequest) error {
				_, err := s.LogicalCluster(ctx, request)
				return err
			}),
			arrives(server, frame, func(ctx context.Context, s *service, request *transferpb.ReadRequest) error {
				return s.Read(request, sink[transferpb.Entries]{ctx: ctx})
			}),
			arrives(server, frame, func(ctx context.Context, s *service, request *transferpb.DigestRequest) error {
				return s.Digest(request, sink[transferpb.DigestResponse]{ctx: ctx})
			}),
			arrives(server, frame, func(ctx context.Context, s *service, request *transferpb.ListRequest) error {
				return s.List(request, sink[transferpb.ListResponse]{ctx: ctx})
			}),
			arrives(server, frame, func(ctx context.Context, s *service, request *transferpb.GetRequest) error {
				return s.Get(request, sink[transferpb.Entries]{ctx: ctx})
			}),
			arrives(server, frame, func(ctx context.Context, s *service, request *transferpb.BoundCRDsRequest) error {
				return s.BoundCRDs(request, sink[transferpb.BoundCRDsResponse]{ctx: ctx})
			}),
		} {
			_ = serve(t.Context(), &service{source: source}) // refused or served; the source complains where it must not be asked
		}
	})
}

// arrives decodes a frame and authorizes it, as the server does before a method is called.
func arrives[Request any](
	server *Server, frame []byte, call func(context.Context, *service, *Request) error,
) func(context.Context, *service) error {
	return func(ctx context.Context, s *service) error {
		request := new(Request)
		if err := proto.Unmarshal(frame, any(request).(proto.Message)); err != nil {
			return err
		}
		if err := server.authorize(ctx, request); err != nil {
			return err
		}
		return call(ctx, s, request)
	}
}

// sink takes whatever is sent.
type sink[Response any] struct {
	grpc.ServerStreamingServer[Response]
	ctx context.Context
}

func (s sink[Response]) Context() context.Context { return s.ctx }
func (sink[Response]) Send(*Response) error       { return nil }

// strictSource fails the test when it is asked by anybody but the run that holds the claim.
type strictSource struct {
	activities.Source
	t *testing.T
}

func (s *strictSource) check(asked activities.Guard) {
	require.Equal(s.t, cluster, asked.LogicalCluster)
	require.True(s.t, asked.Token.SameRun(guard.Token))
}

func (s *strictSource) Revision(_ context.Context, asked activities.Guard) (int64, error) {
	s.check(asked)
	return revision, nil
}

func (s *strictSource) Read(_ context.Context, asked activities.Guard, request activities.ReadRequest) activities.Batches {
	s.check(asked)
	require.Equal(s.t, cluster, request.LogicalCluster)
	return func(func([]activities.Entry, error) bool) {}
}

func (s *strictSource) Digest(_ context.Context, asked activities.Guard, _ int64) (activities.Digest, error) {
	s.check(asked)
	return activities.Digest{}, nil
}

func (s *strictSource) List(_ context.Context, asked activities.Guard, families []keyspace.Family, _ int64) ([]activities.Listed, error) {
	s.check(asked)
	for _, family := range families {
		parsed, err := keyspace.ParseFamily(family.String())
		require.NoError(s.t, err)
		require.Equal(s.t, family, parsed)
	}
	return nil, nil
}

func (s *strictSource) Get(_ context.Context, asked activities.Guard, _ []activities.Ref) ([]activities.Entry, error) {
	s.check(asked)
	return nil, nil
}

func (s *strictSource) LogicalCluster(_ context.Context, asked activities.Guard) (activities.Object, error) {
	s.check(asked)
	return activities.Object{}, nil
}

func (s *strictSource) BoundCRDs(_ context.Context, asked activities.Guard, _ []string) (map[string][]byte, error) {
	s.check(asked)
	return nil, nil
}

// FuzzAnswers has any frame come in as each kind of answer: it is refused, or says the same when it is sent on.
func FuzzAnswers(f *testing.F) {
	entries := tenant(64)
	f.Add(marshalled(f, &transferpb.Entries{Entries: encodeAll(entries[31:34], encodeEntry)}))
	f.Add(marshalled(f, &transferpb.ListResponse{Entries: encodeAll(listing(entries[30:34]), encodeListed)}))
	f.Add(marshalled(f, &transferpb.DigestResponse{Revision: 7, Leased: encodeAll(listing(entries[30:32]), encodeListed),
		Families: []*transferpb.FamilyDigest{{Family: "core/configmaps", Entries: 3, Bytes: 9, Sha256: "ab"}}}))
	f.Add([]byte("\x0a\x00"))
	f.Fuzz(func(t *testing.T, frame []byte) {
		var batch transferpb.Entries
		if proto.Unmarshal(frame, &batch) == nil {
			sentOn(t, &batch, decodeEntries, func(decoded []activities.Entry) *transferpb.Entries {
				return &transferpb.Entries{Entries: encodeAll(decoded, encodeEntry)}
			})
		}
		var list transferpb.ListResponse
		if proto.Unmarshal(frame, &list) == nil {
			sentOn(t, &list, decodeList, func(decoded []activities.Listed) *transferpb.ListResponse {
				return &transferpb.ListResponse{Entries: encodeAll(decoded, encodeListed)}
			})
		}
		var digest transferpb.DigestResponse
		if proto.Unmarshal(frame, &digest) == nil {
			sentOn(t, &digest, decodeDigest, func(decoded activities.Digest) *transferpb.DigestResponse {
				return &transferpb.DigestResponse{Revision: decoded.Revision,
					Families: encodeAll(decoded.Families, encodeFamilyDigest), Leased: encodeAll(decoded.Leased, encodeListed)}
			})
		}
	})
}

func sentOn[Message proto.Message, Decoded any](
	t *testing.T, message Message, decode func(Message) (Decoded, error), encode func(Decoded) Message,
) {
	t.Helper()
	decoded, err := decode(message)
	if err != nil {
		return
	}
	again, err := decode(encode(decoded))
	require.NoError(t, err)
	require.Equal(t, decoded, again)
	first, err := proto.MarshalOptions{Deterministic: true}.Marshal(encode(decoded))
	require.NoError(t, err)
	second, err := proto.MarshalOptions{Deterministic: true}.Marshal(encode(again))
	require.NoError(t, err)
	require.True(t, bytes.Equal(first, second))
}
