package transfer

import (
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// frames are messages as they are on the wire.
type frames struct{}

func (frames) Marshal(message any) ([]byte, error) { return *message.(*[]byte), nil }

func (frames) Unmarshal(frame []byte, message any) error {
	*message.(*[]byte) = append([]byte{}, frame...)
	return nil
}

func (frames) Name() string { return "proto" }

// connectRaw serves answers and gives the other end.
func connectRaw(t *testing.T, answer func(exchange) exchange) activities.Source {
	t.Helper()
	return connectTo(t, grpc.ForceServerCodec(frames{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		asked := exchange{}
		asked.Method, _ = grpc.MethodFromServerStream(stream)
		sent, _ := metadata.FromIncomingContext(stream.Context())
		if told := sent.Get(protocolKey); len(told) > 0 {
			asked.Protocol = told[0]
		}
		if err := stream.RecvMsg(&asked.Request); err != nil {
			return err
		}
		answered := answer(asked)
		for _, response := range answered.Responses {
			if err := stream.SendMsg(&response); err != nil {
				return err
			}
		}
		return answered.status(t).Err()
	}))
}

// connectTo gives a client of a server that is not ours.
func connectTo(t *testing.T, options ...grpc.ServerOption) activities.Source {
	t.Helper()
	server := grpc.NewServer(options...)
	listener := listen(t, "127.0.0.1:0")
	go func() { _ = server.Serve(listener) }() // Stop ends it
	t.Cleanup(server.Stop)
	return dial(t, &Dialer{credentials: insecure.NewCredentials()}, listener.Addr().String())
}

// callRaw makes a call, and gives the exchange with its answer.
func callRaw(t *testing.T, address string, asked exchange) exchange {
	t.Helper()
	connection, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer connection.Close()
	ctx := t.Context()
	if asked.Protocol != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, protocolKey, asked.Protocol)
	}
	stream, err := connection.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, asked.Method, grpc.ForceCodec(frames{}))
	require.NoError(t, err)
	require.NoError(t, stream.SendMsg(&asked.Request))
	require.NoError(t, stream.CloseSend())
	answered := asked
	answered.Responses = nil
	for err == nil {
		var response []byte
		if err = stream.RecvMsg(&response); err == nil {
			answered.Responses = append(answered.Responses, response)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	answered.Status, err = proto.Marshal(status.Convert(err).Proto())
	require.NoError(t, err)
	return answered
}

func (e exchange) status(t *testing.T) *status.Status {
	t.Helper()
	answered := &statuspb.Status{}
	require.NoError(t, proto.Unmarshal(e.Status, answered))
	return status.FromProto(answered)
}
