package transfer

import (
	"context"
	"fmt"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// Protocols are the versions that this build serves. The newest is raised when a message or a method gets a meaning that a
// worker which does not know of it would miss; what that worker may ignore, or not offer, takes none. The oldest is raised
// when an older worker would be answered wrongly. Recordings of how old workers speak are held against both sides.
var Protocols = activities.Protocols{Oldest: 1, Newest: 1}

// protocolKey is the metadata of a request that tells in which version it is made.
const protocolKey = "kcp-migrate-protocol"

// tellProtocol has every request of a client say its version.
func tellProtocol(newest int) []grpc.DialOption {
	telling := func(ctx context.Context) context.Context {
		return metadata.AppendToOutgoingContext(ctx, protocolKey, strconv.Itoa(newest))
	}
	return []grpc.DialOption{
		grpc.WithUnaryInterceptor(func(
			ctx context.Context, method string, request, response any,
			connection *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption,
		) error {
			return invoke(telling(ctx), method, request, response, connection, options...)
		}),
		grpc.WithStreamInterceptor(func(
			ctx context.Context, description *grpc.StreamDesc, connection *grpc.ClientConn,
			method string, open grpc.Streamer, options ...grpc.CallOption,
		) (grpc.ClientStream, error) {
			return open(telling(ctx), description, connection, method, options...)
		}),
	}
}

// checkProtocol refuses a request in a version that the server does not serve. One that tells none is in the first.
func (s *Server) checkProtocol(ctx context.Context) error {
	told := append(metadata.ValueFromIncomingContext(ctx, protocolKey), strconv.Itoa(activities.FirstProtocol))
	asked, err := strconv.Atoi(told[0])
	if err != nil || asked < 0 {
		return status.Errorf(codes.InvalidArgument, "metadata %s is not a version", protocolKey)
	}
	switch {
	case s.protocols.TooOldFor(asked):
		return fmt.Errorf("%w: the origin's serves %s and is asked in %d; upgrade the origin shard's workers",
			activities.ErrProtocol, s.protocols, asked)
	case s.protocols.TooNewFor(asked):
		return fmt.Errorf("%w: the origin's serves %s and is asked in %d; upgrade the destination shard's workers",
			activities.ErrProtocol, s.protocols, asked)
	}
	return nil
}

// refuseMethod answers what only newer workers know.
func (s *Server) refuseMethod(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	return fmt.Errorf("%w: the origin's serves %s, without %s; upgrade the origin shard's workers", activities.ErrProtocol, s.protocols, method)
}
