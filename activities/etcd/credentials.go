package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// tls reads the files of TLS; nil where none is named.
func (c Config) tls() (*tls.Config, error) {
	if c.CAFile == "" && c.CertFile == "" && c.KeyFile == "" {
		return nil, nil
	}
	files := transport.TLSInfo{TrustedCAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile}
	security, err := files.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("load certificates: %w", err)
	}
	return security, nil
}

// rotatingCredentials reads the files anew for every connection. etcd's own client does so for the certificate and
// its key alone: after a change of authority it would reach no member any more.
type rotatingCredentials struct {
	config Config
}

func (r rotatingCredentials) ClientHandshake(ctx context.Context, authority string, connection net.Conn) (net.Conn, credentials.AuthInfo, error) {
	security, err := r.config.tls()
	if err != nil {
		return nil, nil, errors.Join(err, connection.Close())
	}
	return credentials.NewTLS(security).ClientHandshake(ctx, authority, connection)
}

// renewPassword has every login carry the password of now: etcd's own client keeps the one that it began with, and
// could not log in again once its login has expired.
func (c Config) renewPassword(ctx context.Context, method string, request, reply any, connection *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if login, ok := request.(*pb.AuthenticateRequest); ok {
		password, err := c.Password()
		if err != nil {
			return err
		}
		request = &pb.AuthenticateRequest{Name: login.Name, Password: password}
	}
	return invoke(ctx, method, request, reply, connection, options...)
}

func (r rotatingCredentials) ServerHandshake(connection net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.Join(errors.New("these credentials are a client's"), connection.Close())
}

func (r rotatingCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (r rotatingCredentials) Clone() credentials.TransportCredentials { return r }

// OverrideServerName is deprecated in gRPC: the name is that of the endpoint.
func (r rotatingCredentials) OverrideServerName(string) error {
	return errors.New("the name is that of the endpoint")
}
