package transfer

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
)

// The protocols as TLS negotiates them. gRPC asks for HTTP/2 alone, while HTTP clients speak HTTP/1.1 too: that tells them apart.
const (
	http1 = "http/1.1"
	http2 = "h2"
)

const (
	// maxDumps bounds how many pages are held in memory at a time; a request above it waits.
	maxDumps = 8
	// idleLimit frees the connection of a client of dumps that asks for nothing more.
	idleLimit = 2 * time.Minute
)

// ServerHandshake lets gRPC have the connections of workers, and hands the others to the door.
func (r rotatingCredentials) ServerHandshake(accepted net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := r.config.load()
	if err != nil {
		return nil, nil, err
	}
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		forClient := config.Clone()
		forClient.NextProtos = []string{http2}
		if slices.Contains(hello.SupportedProtos, http1) {
			forClient.NextProtos = []string{http1}
		}
		return forClient, nil
	}
	lent, ok := accepted.(*lentConnection)
	if !ok {
		return nil, nil, fmt.Errorf("shake hands over a connection of type %T", accepted)
	}
	connection := tls.Server(lent.Conn, config)
	if err := connection.Handshake(); err != nil {
		return nil, nil, err
	}
	switch state := connection.ConnectionState(); state.NegotiatedProtocol {
	case http2:
		return connection, credentials.TLSInfo{
			State:          state,
			CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		}, nil
	case http1:
		lent.takenBack.Store(true)
		r.door.letIn(connection)
		return nil, nil, credentials.ErrConnDispatched
	default:
		return nil, nil, fmt.Errorf("shake hands: the client speaks neither %s nor %s", http2, http1)
	}
}

// lentConnection is a connection that gRPC may lose again. gRPC sets the deadline of what it has accepted once more after
// it has handed it on, when it is no longer its own to set.
type lentConnection struct {
	net.Conn
	takenBack atomic.Bool
}

func (l *lentConnection) SetDeadline(deadline time.Time) error {
	if l.takenBack.Load() {
		return nil
	}
	return l.Conn.SetDeadline(deadline)
}

type lendingListener struct{ net.Listener }

func (l lendingListener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &lentConnection{Conn: accepted}, nil
}

// door is the listener through which the connections of HTTP clients come that gRPC's handed over.
type door struct {
	server  *http.Server
	address net.Addr
	waiting chan net.Conn
	closed  chan struct{}
}

func newDoor(handler http.Handler) *door {
	places := make(places, maxDumps)
	bounded := func(w http.ResponseWriter, r *http.Request) {
		leave, err := places.enter(r.Context())
		if err != nil {
			return // the client is gone
		}
		defer leave()
		handler.ServeHTTP(w, r)
	}
	return &door{
		server: &http.Server{
			Handler: http.HandlerFunc(bounded), ReadHeaderTimeout: handshakeLimit, IdleTimeout: idleLimit, MaxHeaderBytes: maxHeaderBytes,
		},
		waiting: make(chan net.Conn),
		closed:  make(chan struct{}),
	}
}

// open serves until the returned function is called, which lets requests end within a limit.
func (d *door) open(address net.Addr) (closeWithin func(limit time.Duration)) {
	d.address = address
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = d.server.Serve(d) // ends with ErrServerClosed, for Accept fails only once the door is closed
	}()
	return func(limit time.Duration) {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if err := d.server.Shutdown(ctx); err != nil {
			_ = d.server.Close() // closes what is left
		}
		<-served
	}
}

func (d *door) letIn(connection net.Conn) {
	select {
	case d.waiting <- connection:
	case <-d.closed:
		_ = connection.Close() // the client hears of nothing else
	}
}

// Accept gives the next connection that was let in.
func (d *door) Accept() (net.Conn, error) {
	select {
	case connection := <-d.waiting:
		return connection, nil
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

// Close is called once, by the server.
func (d *door) Close() error {
	close(d.closed)
	return nil
}

// Addr is where clients have come in.
func (d *door) Addr() net.Addr { return d.address }
