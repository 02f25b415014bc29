package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
	"github.com/kcp-migrate/kcp-migrate/activities/transfer/transferpb"
)

// Dialer reaches origin workers.
type Dialer struct {
	config      Config
	credentials credentials.TransportCredentials
}

var _ activities.Dialer = (*Dialer)(nil)

// NewDialer reads config's files once, to refuse unusable ones at the start.
func NewDialer(config Config) (*Dialer, error) {
	credentials, err := config.credentials(nil)
	if err != nil {
		return nil, fmt.Errorf("set up transfer dialer: %w", err)
	}
	return &Dialer{config: config, credentials: credentials}, nil
}

// Dial gives the Source at host:port, or at whichever of several with commas between them answers, and what closes it. It
// does not wait for the connection.
func (d *Dialer) Dial(address string) (activities.Source, func(), error) {
	workers := manual.NewBuilderWithScheme("worker")
	var known resolver.State
	for one := range strings.SplitSeq(address, ",") {
		if _, _, err := net.SplitHostPort(one); err != nil {
			return nil, nil, fmt.Errorf("dial origin worker %q: %w", address, err)
		}
		if d.config.plaintext() && !isLoopback(one) {
			return nil, nil, fmt.Errorf("dial origin worker %s: %w", address, ErrPlaintext)
		}
		known.Addresses = append(known.Addresses, resolver.Address{Addr: one})
	}
	workers.InitialState(known)
	// A tenant may be away while a connection is tried again: gRPC's two minutes between tries are too long.
	reconnect := grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: handshakeLimit}
	reconnect.Backoff.BaseDelay, reconnect.Backoff.MaxDelay = 100*time.Millisecond, time.Second
	connection, err := grpc.NewClient(workers.Scheme()+":///", append(tellProtocol(Protocols.Newest),
		grpc.WithResolvers(workers),
		grpc.WithAuthority(PeerName),
		grpc.WithTransportCredentials(d.credentials),
		grpc.WithConnectParams(reconnect),
		grpc.WithDisableServiceConfig(),
		grpc.WithStaticStreamWindowSize(windowBytes),
		grpc.WithStaticConnWindowSize(windowBytes),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingInterval, Timeout: pingLimit}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes)),
	)...)
	if err != nil {
		return nil, nil, fmt.Errorf("dial origin worker %s: %w", address, err)
	}
	// Close fails only where it was called before.
	closeConnection := func() { _ = connection.Close() }
	return &Client{address: address, service: transferpb.NewTransferClient(connection)}, closeConnection, nil
}

// Client is the Source that an origin worker serves.
type Client struct {
	address string
	service transferpb.TransferClient
}

var _ activities.Source = (*Client)(nil)

// Revision asks for the origin's current revision while the fence stands.
func (c *Client) Revision(ctx context.Context, guard activities.Guard) (int64, error) {
	response, err := c.service.Revision(ctx, &transferpb.RevisionRequest{Guard: encodeGuard(guard)})
	if err != nil {
		return 0, c.failed("read revision", guard, fromStatus(ctx, err))
	}
	return response.GetRevision(), nil
}

// Read pulls entries; leaving the loop ends the stream at the origin too.
func (c *Client) Read(ctx context.Context, guard activities.Guard, request activities.ReadRequest) activities.Batches {
	return func(yield func([]activities.Entry, error) bool) {
		if request.LogicalCluster != guard.LogicalCluster {
			yield(nil, fmt.Errorf("read entries of logical cluster %s: guard is for %s", request.LogicalCluster, guard.LogicalCluster))
			return
		}
		wired := &transferpb.ReadRequest{Guard: encodeGuard(guard), Revision: request.Revision}
		if request.After != nil {
			wired.After = encodeRef(*request.After)
		}
		for batch, err := range receive(ctx, c.service.Read, wired, decodeEntries) {
			if err != nil {
				yield(nil, c.failed("read entries", guard, err))
				return
			}
			if !yield(batch, nil) {
				return
			}
		}
	}
}

// Digest asks the origin to sum itself up at a revision.
func (c *Client) Digest(ctx context.Context, guard activities.Guard, revision int64) (activities.Digest, error) {
	var digest activities.Digest
	request := &transferpb.DigestRequest{Guard: encodeGuard(guard), Revision: revision}
	for part, err := range receive(ctx, c.service.Digest, request, decodeDigest) {
		if err != nil {
			return activities.Digest{}, c.failed("read digest", guard, err)
		}
		digest.Revision = part.Revision
		digest.Families = append(digest.Families, part.Families...)
		digest.Leased = append(digest.Leased, part.Leased...)
	}
	return digest, nil
}

// List asks for entries without their values.
func (c *Client) List(ctx context.Context, guard activities.Guard, families []keyspace.Family, revision int64) ([]activities.Listed, error) {
	request := &transferpb.ListRequest{
		Guard:    encodeGuard(guard),
		Families: encodeAll(families, keyspace.Family.String),
		Revision: revision,
	}
	var entries []activities.Listed
	for listed, err := range receive(ctx, c.service.List, request, decodeList) {
		if err != nil {
			return nil, c.failed("list entries", guard, err)
		}
		entries = append(entries, listed...)
	}
	return entries, nil
}

// Get asks for entries by name, some at a time.
func (c *Client) Get(ctx context.Context, guard activities.Guard, refs []activities.Ref) ([]activities.Entry, error) {
	var entries []activities.Entry
	for some := range slices.Chunk(refs, maxRefs) {
		request := &transferpb.GetRequest{Guard: encodeGuard(guard), Refs: encodeAll(some, encodeRef)}
		for got, err := range receive(ctx, c.service.Get, request, decodeEntries) {
			if err != nil {
				return nil, c.failed("get entries", guard, err)
			}
			entries = append(entries, got...)
		}
	}
	return entries, nil
}

// LogicalCluster asks for the origin's object while the fence stands.
func (c *Client) LogicalCluster(ctx context.Context, guard activities.Guard) (activities.Object, error) {
	response, err := c.service.LogicalCluster(ctx, &transferpb.LogicalClusterRequest{Guard: encodeGuard(guard)})
	if err != nil {
		return activities.Object{}, c.failed("read LogicalCluster", guard, fromStatus(ctx, err))
	}
	return activities.Object{
		Value:       response.GetValue(),
		ModRevision: response.GetModRevision(),
		Revision:    response.GetRevision(),
	}, nil
}

// BoundCRDs asks for the CRDs that serve the named schemas.
func (c *Client) BoundCRDs(ctx context.Context, guard activities.Guard, schemaUIDs []string) (map[string][]byte, error) {
	crds := make(map[string][]byte, len(schemaUIDs))
	request := &transferpb.BoundCRDsRequest{Guard: encodeGuard(guard), SchemaUids: schemaUIDs}
	for crd, err := range receive(ctx, c.service.BoundCRDs, request, decodeBoundCRD) {
		if err != nil {
			return nil, c.failed("read bound CRDs", guard, err)
		}
		crds[crd.schemaUID] = crd.value
	}
	return crds, nil
}

func (c *Client) failed(what string, guard activities.Guard, err error) error {
	return fmt.Errorf("%s of logical cluster %s from origin worker %s: %w", what, guard.LogicalCluster, c.address, err)
}

// receive yields what the messages of a stream say. One that ends without an error is complete; leaving the loop early cancels it.
func receive[Request, Response, Decoded any](
	ctx context.Context,
	call func(context.Context, *Request, ...grpc.CallOption) (grpc.ServerStreamingClient[Response], error),
	request *Request,
	decode func(*Response) (Decoded, error),
) iter.Seq2[Decoded, error] {
	return func(yield func(Decoded, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := call(ctx, request)
		for err == nil {
			var decoded Decoded
			if decoded, err = receiveOne(stream, decode); err == nil && !yield(decoded, nil) {
				return
			}
		}
		if !errors.Is(err, io.EOF) {
			var none Decoded
			yield(none, fromStatus(ctx, err))
		}
	}
}

func receiveOne[Response, Decoded any](stream grpc.ServerStreamingClient[Response], decode func(*Response) (Decoded, error)) (Decoded, error) {
	response, err := stream.Recv()
	if err != nil {
		var none Decoded
		return none, err
	}
	return decode(response)
}
