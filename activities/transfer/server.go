package transfer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/transfer/transferpb"
)

// Claims tells which move a logical cluster is claimed by: the origin's activities.Claimer.
type Claims interface {
	ReadClaim(ctx context.Context, logicalCluster string) (activities.Claim, error)
}

// Server lets destination workers read a Source.
type Server struct {
	config     Config
	claims     Claims
	protocols  activities.Protocols
	stallLimit time.Duration
	drainLimit time.Duration
	// places are taken by the requests that are being answered.
	places places
	grpc   *grpc.Server
	door   *door
}

// NewServer reads config's files once, to refuse unusable ones at the start. What comes over TLS and does not speak gRPC is
// answered by dumps.
func NewServer(config Config, source activities.Source, claims Claims, dumps http.Handler) (*Server, error) {
	door := newDoor(dumps)
	credentials, err := config.credentials(door)
	if err != nil {
		return nil, fmt.Errorf("set up transfer server: %w", err)
	}
	server := &Server{
		config: config, claims: claims, protocols: Protocols, stallLimit: stallLimit, drainLimit: drainLimit, places: make(places, maxRequests),
		door: door,
	}
	server.grpc = grpc.NewServer(
		grpc.Creds(credentials),
		grpc.ConnectionTimeout(handshakeLimit),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxRecvMsgSize(maxRequestBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingInterval, Timeout: pingLimit}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingInterval / 2}),
		grpc.WaitForHandlers(true),
		grpc.UnaryInterceptor(server.interceptUnary),
		grpc.StreamInterceptor(server.interceptStream),
		grpc.UnknownServiceHandler(server.refuseMethod),
	)
	transferpb.RegisterTransferServer(server.grpc, &service{source: source})
	return server, nil
}

// Serve answers until ctx is done; then it gives open streams a moment to end. It closes the listener. A server serves once.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	address := listener.Addr().String()
	if s.config.plaintext() && !isLoopback(address) {
		return errors.Join(fmt.Errorf("serve transfers at %s: %w", address, ErrPlaintext), listener.Close())
	}
	stopDraining := context.AfterFunc(ctx, s.drain)
	defer stopDraining()
	closeDoor := s.door.open(listener.Addr())
	err := s.grpc.Serve(lendingListener{netutil.LimitListener(listener, maxConnections)})
	closeDoor(s.drainLimit)
	if err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve transfers at %s: %w", address, err)
	}
	return nil
}

func (s *Server) drain() {
	stop := time.AfterFunc(s.drainLimit, s.grpc.Stop)
	defer stop.Stop()
	s.grpc.GracefulStop()
}

func (s *Server) interceptUnary(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := s.checkProtocol(ctx); err != nil {
		return nil, toStatus(err)
	}
	if err := s.authorize(ctx, request); err != nil {
		return nil, toStatus(err)
	}
	response, err := handler(ctx, request)
	return response, toStatus(err)
}

func (s *Server) interceptStream(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	leave, err := s.enter(stream.Context())
	if err != nil {
		return err
	}
	defer leave()
	if err := s.checkProtocol(stream.Context()); err != nil {
		return toStatus(err)
	}
	return toStatus(handler(service, &guardedStream{ServerStream: stream, server: s}))
}

// enter waits for a place.
func (s *Server) enter(ctx context.Context) (leave func(), err error) {
	if leave, err = s.places.enter(ctx); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	return leave, nil
}

// places bound how many requests are answered at a time.
type places chan struct{}

func (p places) enter(ctx context.Context) (leave func(), err error) {
	select {
	case p <- struct{}{}:
		return func() { <-p }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// authorize stands before every method: a request without a guard, or for a cluster that the guard's run has not claimed, is refused.
func (s *Server) authorize(ctx context.Context, request any) error {
	guarded, ok := request.(interface{ GetGuard() *transferpb.Guard })
	if !ok || guarded.GetGuard() == nil {
		return status.Error(codes.InvalidArgument, "request has no guard")
	}
	guard := decodeGuard(guarded.GetGuard())
	claim, err := s.claims.ReadClaim(ctx, guard.LogicalCluster)
	if errors.Is(err, activities.ErrNotFound) {
		return fmt.Errorf("serve logical cluster %q: nobody claims it: %w", guard.LogicalCluster, activities.ErrTokenLost)
	}
	if err != nil {
		return fmt.Errorf("read claim of logical cluster %q: %w", guard.LogicalCluster, err)
	}
	if !claim.Token.SameRun(guard.Token) {
		return fmt.Errorf("serve logical cluster %q: %w", guard.LogicalCluster, activities.ErrTokenLost)
	}
	return nil
}

// guardedStream authorizes the request of a stream when it arrives, and gives up a reader that stalls.
type guardedStream struct {
	grpc.ServerStream
	server *Server
}

func (g *guardedStream) RecvMsg(message any) error {
	if err := g.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	return g.server.authorize(g.Context(), message)
}

// SendMsg sends in a goroutine because gRPC's Send heeds only the stream's own context, which ends when the handler returns.
func (g *guardedStream) SendMsg(message any) error {
	sent := make(chan error, 1)
	go func() { sent <- g.ServerStream.SendMsg(message) }()
	stalled := time.NewTimer(g.server.stallLimit)
	defer stalled.Stop()
	select {
	case err := <-sent:
		return err
	case <-stalled.C:
		return status.Errorf(codes.DeadlineExceeded, "reader took nothing for %s", g.server.stallLimit)
	}
}
