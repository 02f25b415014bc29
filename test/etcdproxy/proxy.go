// Package etcdproxy stands between etcd and a client in tests. It changes requests, and holds back or loses answers.
package etcdproxy

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
)

// Hooks are what the proxy does to the messages that pass.
type Hooks struct {
	// Request may change a request; nil leaves it.
	Request func(method string, message []byte) ([]byte, error)
	// Answer is called before an answer goes on; its error goes instead, and the answer is lost. nil lets all pass.
	Answer func(method string) error
}

// Proxy passes everything on until it is told otherwise.
type Proxy struct {
	// Endpoint is where clients reach it.
	Endpoint string

	etcd  *grpc.ClientConn
	hooks atomic.Pointer[Hooks]
}

// Start serves until the test ends.
func Start(t testing.TB, etcd string) *Proxy {
	t.Helper()
	// etcd's limits count, not the proxy's.
	unlimited := grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(1<<30), grpc.MaxCallSendMsgSize(1<<30))
	connection, err := grpc.NewClient(etcd, grpc.WithTransportCredentials(insecure.NewCredentials()), unlimited)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	proxy := &Proxy{Endpoint: listener.Addr().String(), etcd: connection}
	proxy.Set(Hooks{})
	server := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}), grpc.UnknownServiceHandler(proxy.forward),
		grpc.MaxRecvMsgSize(1<<30), grpc.MaxSendMsgSize(1<<30))
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-served)
		require.NoError(t, connection.Close())
	})
	return proxy
}

// Set changes what is done to the messages from now on.
func (p *Proxy) Set(hooks Hooks) { p.hooks.Store(&hooks) }

// forward passes one call on, whatever its kind.
func (p *Proxy) forward(_ any, client grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(client)
	ctx := client.Context()
	if incoming, found := metadata.FromIncomingContext(ctx); found {
		ctx = metadata.NewOutgoingContext(ctx, incoming)
	}
	etcd, err := p.etcd.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	var pumping errgroup.Group
	pumping.Go(func() error { return p.passRequests(method, client, etcd) })
	answered := p.passAnswers(method, etcd, client)
	client.SetTrailer(etcd.Trailer())
	if answered != nil {
		return answered // ends the call, and with it the other pump
	}
	return pumping.Wait()
}

func (p *Proxy) passRequests(method string, from grpc.ServerStream, to grpc.ClientStream) error {
	for {
		var message []byte
		err := from.RecvMsg(&message)
		if errors.Is(err, io.EOF) {
			return to.CloseSend()
		}
		if err != nil {
			return err
		}
		if change := p.hooks.Load().Request; change != nil {
			if message, err = change(method, message); err != nil {
				return err
			}
		}
		if to.SendMsg(message) != nil {
			return nil //nolint:nilerr // etcd has ended the call, and its answer says why
		}
	}
}

func (p *Proxy) passAnswers(method string, from grpc.ClientStream, to grpc.ServerStream) error {
	for {
		var message []byte
		err := from.RecvMsg(&message)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if hold := p.hooks.Load().Answer; hold != nil {
			if err := hold(method); err != nil {
				return err
			}
		}
		if err := to.SendMsg(message); err != nil {
			return err
		}
	}
}

// rawCodec passes messages on as they are.
type rawCodec struct{}

func (rawCodec) Marshal(message any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(message.([]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, message any) error {
	*message.(*[]byte) = data.Materialize()
	return nil
}

func (rawCodec) Name() string { return "proto" }
