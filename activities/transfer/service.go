package transfer

import (
	"context"

	"google.golang.org/grpc"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
	"github.com/kcp-migrate/kcp-migrate/activities/transfer/transferpb"
)

// service speaks a Source in protobuf. Server has authorized every request before it comes here.
type service struct {
	transferpb.UnimplementedTransferServer
	source activities.Source
}

func (s *service) Revision(ctx context.Context, request *transferpb.RevisionRequest) (*transferpb.RevisionResponse, error) {
	revision, err := s.source.Revision(ctx, decodeGuard(request.GetGuard()))
	if err != nil {
		return nil, err
	}
	return &transferpb.RevisionResponse{Revision: revision}, nil
}

func (s *service) Read(request *transferpb.ReadRequest, stream grpc.ServerStreamingServer[transferpb.Entries]) error {
	guard := decodeGuard(request.GetGuard())
	read := activities.ReadRequest{LogicalCluster: guard.LogicalCluster, Revision: request.GetRevision()}
	if request.GetAfter() != nil {
		after, err := decodeRef(request.GetAfter())
		if err != nil {
			return err
		}
		read.After = &after
	}
	for batch, err := range s.source.Read(stream.Context(), guard, read) {
		if err != nil {
			return err
		}
		if err := sendEntries(stream, batch); err != nil {
			return err
		}
	}
	// A Source that ends early because its context did must not look complete.
	return stream.Context().Err()
}

func (s *service) Digest(request *transferpb.DigestRequest, stream grpc.ServerStreamingServer[transferpb.DigestResponse]) error {
	digest, err := s.source.Digest(stream.Context(), decodeGuard(request.GetGuard()), request.GetRevision())
	if err != nil {
		return err
	}
	first := &transferpb.DigestResponse{Revision: digest.Revision, Families: encodeAll(digest.Families, encodeFamilyDigest)}
	if err := stream.Send(first); err != nil {
		return err
	}
	for leased := range chunks(digest.Leased, listedBytes) {
		next := &transferpb.DigestResponse{Revision: digest.Revision, Leased: encodeAll(leased, encodeListed)}
		if err := stream.Send(next); err != nil {
			return err
		}
	}
	return nil
}

func (s *service) List(request *transferpb.ListRequest, stream grpc.ServerStreamingServer[transferpb.ListResponse]) error {
	families, err := decodeAll(request.GetFamilies(), keyspace.ParseFamily)
	if err != nil {
		return err
	}
	entries, err := s.source.List(stream.Context(), decodeGuard(request.GetGuard()), families, request.GetRevision())
	if err != nil {
		return err
	}
	for listed := range chunks(entries, listedBytes) {
		if err := stream.Send(&transferpb.ListResponse{Entries: encodeAll(listed, encodeListed)}); err != nil {
			return err
		}
	}
	return nil
}

func (s *service) Get(request *transferpb.GetRequest, stream grpc.ServerStreamingServer[transferpb.Entries]) error {
	refs, err := decodeAll(request.GetRefs(), decodeRef)
	if err != nil {
		return err
	}
	entries, err := s.source.Get(stream.Context(), decodeGuard(request.GetGuard()), refs)
	if err != nil {
		return err
	}
	return sendEntries(stream, entries)
}

func (s *service) LogicalCluster(ctx context.Context, request *transferpb.LogicalClusterRequest) (*transferpb.LogicalClusterResponse, error) {
	object, err := s.source.LogicalCluster(ctx, decodeGuard(request.GetGuard()))
	if err != nil {
		return nil, err
	}
	return &transferpb.LogicalClusterResponse{
		Value:       object.Value,
		ModRevision: object.ModRevision,
		Revision:    object.Revision,
	}, nil
}

func (s *service) BoundCRDs(request *transferpb.BoundCRDsRequest, stream grpc.ServerStreamingServer[transferpb.BoundCRDsResponse]) error {
	crds, err := s.source.BoundCRDs(stream.Context(), decodeGuard(request.GetGuard()), request.GetSchemaUids())
	if err != nil {
		return err
	}
	for schemaUID, value := range crds {
		if err := stream.Send(&transferpb.BoundCRDsResponse{SchemaUid: schemaUID, Value: value}); err != nil {
			return err
		}
	}
	return nil
}

func sendEntries(stream grpc.ServerStreamingServer[transferpb.Entries], entries []activities.Entry) error {
	for chunk := range chunks(entries, entryBytes) {
		if err := stream.Send(&transferpb.Entries{Entries: encodeAll(chunk, encodeEntry)}); err != nil {
			return err
		}
	}
	return nil
}
