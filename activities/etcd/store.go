// Package etcd is a shard's etcd as the activities need it: it finds, streams,
// writes, sums up and deletes the entries of one logical cluster, and keeps the
// claim that guards all of that. It is the only importer of etcd's client.
//
// Besides kcp's own keys it uses these, outside of every kcp storage prefix. Each shard has its own, by its storage prefix
// ("registry" for most), below which others may share the etcd:
//
//	/kcp-migrate/migrations/<prefix>/<logical cluster>/token      the claim: the token, alone; deleted first where a full etcd takes no higher one
//	/kcp-migrate/migrations/<prefix>/<logical cluster>/info       whose the claim is, and whom to ask about it
//	/kcp-migrate/migrations/<prefix>/<logical cluster>/committed  the token under which the commit landed
//	/kcp-migrate/migrations/<prefix>/<logical cluster>/deleted    the range of the latest deletion at an origin
//	/kcp-migrate/cut/<prefix>                                     written with whatever has kcp cut that shard's informers off
//	/kcp-migrate/locks/<prefix>/<name>                            what one worker at a time may do
//	/kcp-migrate/revision                                         written only to raise the revision, which is the whole etcd's
//	/kcp-migrate/probe                                            never there: deleted over and over to learn how long others wait
package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

const (
	// Open gives up after both of these, and an alert's, at the latest.
	reachTimeout = 4 * time.Second
	loginTimeout = 4 * time.Second
	alertTimeout = time.Second

	// etcd cuts clients that ping more often than every 5 s (--grpc-keepalive-min-time).
	keepAliveTime    = 10 * time.Second
	keepAliveTimeout = 5 * time.Second

	revisionKey = "/kcp-migrate/revision"
)

// Config says how to reach a shard's etcd.
type Config struct {
	// Endpoints are the client URLs of the members.
	Endpoints []string
	// Prefix is kcp's storage prefix (--etcd-prefix); empty means /registry.
	Prefix string
	// CAFile, CertFile and KeyFile are PEM files, read anew for every connection, so they may rotate.
	CAFile, CertFile, KeyFile string
	// Username is for an etcd with authentication; empty otherwise.
	Username string
	// Password gives that user's password. It is asked anew for every login, so the password may rotate.
	Password func() (string, error)
	// MaxTxnOps is the server's --max-txn-ops; 0 means etcd's default. A lower limit is learned from the server's refusal.
	MaxTxnOps int
	// PagesOnly has ranges read in pages where the server could stream them too, to compare the two.
	PagesOnly bool
	// MaxEntriesPerSecond and MaxBytesPerSecond bound what is read, written and deleted of the entries of all moves together;
	// 0 means no bound. A deletion counts no bytes.
	MaxEntriesPerSecond, MaxBytesPerSecond int
	// Unbraked has moves go as fast as etcd lets them, whatever others wait meanwhile.
	Unbraked bool
	// Encryption is that of the shard's API servers; nil means that they store everything in the clear.
	Encryption *Encryption
}

// Store is one shard's etcd.
type Store struct {
	client    *clientv3.Client
	layout    keyspace.Layout
	limits    *limits
	resources resources
	// encryption stands between etcd and everything else: entries and objects are in plaintext.
	encryption *Encryption
	// pagesOnly is set once the server has refused a RangeStream.
	pagesOnly atomic.Bool
	pace      *pace
}

var _ activities.Store = (*Store)(nil)

// Open connects to a shard's etcd, proves that it answers, and finds out which resources the shard has: the first
// discovery costs as much as the shard is large, and must not be inside the time that a tenant is away.
func Open(ctx context.Context, config Config) (*Store, error) {
	clientConfig, err := config.client()
	if err != nil {
		return nil, fmt.Errorf("open etcd %s: %w", strings.Join(config.Endpoints, ", "), err)
	}
	client, err := connect(ctx, clientConfig)
	if err != nil {
		return nil, fmt.Errorf("open etcd %s: %w", strings.Join(config.Endpoints, ", "), err)
	}
	store := &Store{
		client:     client,
		layout:     keyspace.NewLayout(config.Prefix),
		limits:     newLimits(config.MaxTxnOps),
		encryption: config.Encryption,
		pace:       newPaceOf(config),
	}
	store.pagesOnly.Store(config.PagesOnly)
	if _, err := store.families(ctx, 0); err != nil {
		err = fmt.Errorf("open etcd %s: find resources: %w", strings.Join(config.Endpoints, ", "), err)
		return nil, errors.Join(err, store.Close())
	}
	if config.Unbraked {
		return store, nil
	}
	probes, err := clientv3.New(clientConfig)
	if err != nil {
		err = fmt.Errorf("open etcd %s: a second connection: %w", strings.Join(config.Endpoints, ", "), translate(err))
		return nil, errors.Join(err, store.Close())
	}
	store.pace.brake = startBrake(probes)
	return store, nil
}

// Close ends the connections.
func (s *Store) Close() error {
	err := s.client.Close()
	if s.pace.brake != nil {
		err = errors.Join(err, s.pace.brake.close())
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("close etcd: %w", err)
	}
	return nil
}

func (c Config) client() (clientv3.Config, error) {
	security, err := c.tls()
	if err != nil {
		return clientv3.Config{}, err
	}
	config := clientv3.Config{
		Endpoints:            c.Endpoints,
		TLS:                  security,
		DialTimeout:          loginTimeout,
		DialKeepAliveTime:    keepAliveTime,
		DialKeepAliveTimeout: keepAliveTimeout,
		// The server's own limits are the ones that count, and it may run with higher ones than the client's defaults.
		MaxCallSendMsgSize: math.MaxInt32,
		MaxCallRecvMsgSize: math.MaxInt32,
		// Every error is returned to the caller; the client would print its retries beside.
		Logger: zap.NewNop(),
	}
	if security != nil {
		config.DialOptions = append(config.DialOptions, grpc.WithTransportCredentials(rotatingCredentials{c}))
	}
	if c.Username == "" {
		return config, nil
	}
	config.Username = c.Username
	config.DialOptions = append(config.DialOptions, grpc.WithChainUnaryInterceptor(c.renewPassword))
	config.Password, err = c.Password()
	return config, err
}

// connect first asks without a login, because etcd's client hides behind a timeout
// why a connection could not be made while it waits for its login.
func connect(ctx context.Context, config clientv3.Config) (*clientv3.Client, error) {
	if err := reach(ctx, config); err != nil {
		return nil, err
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, translate(err)
	}
	ctx, cancel := context.WithTimeout(ctx, loginTimeout)
	defer cancel()
	if _, err := client.Get(ctx, revisionKey); err != nil {
		return nil, errors.Join(translate(err), client.Close())
	}
	return client, nil
}

// reach succeeds as soon as one endpoint answers, whatever it says, and otherwise tells why each did not.
func reach(ctx context.Context, config clientv3.Config) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	config.Username, config.Password = "", ""
	anonymous, err := clientv3.New(config)
	if err != nil {
		return err
	}
	defer func() { _ = anonymous.Close() }() // nothing was written through it

	answers := make(chan error, len(config.Endpoints))
	for _, endpoint := range config.Endpoints {
		go func() {
			err := ask(ctx, anonymous, endpoint)
			if err != nil && config.TLS != nil {
				err = errors.Join(err, shakeHands(ctx, config.TLS, endpoint))
			}
			answers <- err
		}()
	}
	var failures []error
	for range config.Endpoints {
		err := <-answers
		if err == nil {
			return nil
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// ask sends one request that fails with the connection's own error instead of waiting for a better one.
func ask(ctx context.Context, client *clientv3.Client, endpoint string) error {
	connection, err := client.Dial(endpoint)
	if err != nil {
		return fmt.Errorf("dial %s: %w", endpoint, err)
	}
	defer func() { _ = connection.Close() }() // nothing was written through it
	_, err = pb.NewKVClient(connection).Range(ctx, &pb.RangeRequest{Key: []byte(revisionKey)})
	var answer rpctypes.EtcdError
	if err != nil && !errors.As(rpctypes.Error(err), &answer) {
		return fmt.Errorf("ask %s: %w", endpoint, err)
	}
	return nil
}

// shakeHands tells why a server refuses our certificate. It may do so after the handshake (TLS 1.3), in
// an alert that a client which has begun to write often does not get to read.
func shakeHands(ctx context.Context, security *tls.Config, endpoint string) error {
	dialer := tls.Dialer{Config: security.Clone()}
	dialer.Config.NextProtos = []string{"h2"} // gRPC's
	connection, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(endpoint, "https://"))
	if err != nil {
		return fmt.Errorf("shake hands with %s: %w", endpoint, err)
	}
	defer func() { _ = connection.Close() }() // nothing was written through it
	if err := connection.SetReadDeadline(time.Now().Add(alertTimeout)); err != nil {
		return err
	}
	_, err = connection.Read(make([]byte, 1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}
