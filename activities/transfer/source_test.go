package transfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

const (
	cluster  = "256hdo017n2m0br9"
	shard    = "root"
	revision = int64(4711)
)

var (
	guard      = activities.Guard{LogicalCluster: cluster, Token: activities.NewToken("run-a")}
	configMaps = keyspace.Family{Group: "core", Resource: "configmaps"}
	cowboys    = keyspace.Family{Group: "wild.wild.west", Resource: "cowboys", Segment: strings.Repeat("0a", 32)}
)

// fakeClaims gives the claim of cluster and no other, or err.
type fakeClaims struct {
	token activities.Token
	err   error
}

func (f *fakeClaims) ReadClaim(_ context.Context, logicalCluster string) (activities.Claim, error) {
	if f.err != nil {
		return activities.Claim{}, f.err
	}
	if logicalCluster != cluster {
		return activities.Claim{}, fmt.Errorf("read claim: %w", activities.ErrNotFound)
	}
	return activities.Claim{Token: f.token, ClaimInfo: activities.ClaimInfo{OriginShard: shard}}, nil
}

// fakeSource answers from memory and keeps account of what it was asked.
type fakeSource struct {
	entries   []activities.Entry
	batchSize int
	digest    activities.Digest
	listed    []activities.Listed
	crds      map[string][]byte
	// err is the answer to everything.
	err error
	// waitAfter makes Read wait for the end of its context behind so many batches.
	waitAfter int

	calls atomic.Int64
	taken atomic.Int64
	// readEnd is closed when the first Read has ended.
	readEnd chan struct{}
	end     func()
	asked   activities.ReadRequest
}

func newFakeSource(entries []activities.Entry, batchSize int) *fakeSource {
	readEnd := make(chan struct{})
	end := sync.OnceFunc(func() { close(readEnd) })
	return &fakeSource{entries: entries, batchSize: batchSize, readEnd: readEnd, end: end}
}

func (f *fakeSource) answer(asked activities.Guard) error {
	f.calls.Add(1)
	if f.err == nil && asked != guard {
		return fmt.Errorf("asked with guard %v", asked)
	}
	return f.err
}

func (f *fakeSource) Revision(_ context.Context, asked activities.Guard) (int64, error) {
	return revision, f.answer(asked)
}

func (f *fakeSource) Read(ctx context.Context, asked activities.Guard, request activities.ReadRequest) activities.Batches {
	return func(yield func([]activities.Entry, error) bool) {
		defer f.end()
		f.asked = request
		if err := f.answer(asked); err != nil {
			yield(nil, err)
			return
		}
		entries := f.entries
		if request.After != nil {
			after := slices.IndexFunc(entries, func(entry activities.Entry) bool { return entry.Ref == *request.After })
			entries = entries[after+1:]
		}
		for batch := range slices.Chunk(entries, f.batchSize) {
			if f.waitAfter > 0 && f.taken.Load() == int64(f.waitAfter) {
				<-ctx.Done()
				yield(nil, ctx.Err())
				return
			}
			f.taken.Add(1)
			if !yield(batch, nil) {
				return
			}
		}
	}
}

func (f *fakeSource) Digest(_ context.Context, asked activities.Guard, at int64) (activities.Digest, error) {
	digest := f.digest
	digest.Revision = at
	return digest, f.answer(asked)
}

func (f *fakeSource) List(_ context.Context, asked activities.Guard, families []keyspace.Family, _ int64) ([]activities.Listed, error) {
	var listed []activities.Listed
	for _, entry := range f.listed {
		if slices.Contains(families, entry.Family) {
			listed = append(listed, entry)
		}
	}
	return listed, f.answer(asked)
}

func (f *fakeSource) Get(_ context.Context, asked activities.Guard, refs []activities.Ref) ([]activities.Entry, error) {
	if len(refs) > maxRefs {
		return nil, fmt.Errorf("asked for %d refs at once", len(refs))
	}
	wanted := map[activities.Ref]bool{}
	for _, ref := range refs {
		wanted[ref] = true
	}
	var got []activities.Entry
	for _, entry := range f.entries {
		if wanted[entry.Ref] {
			got = append(got, entry)
		}
	}
	return got, f.answer(asked)
}

func (f *fakeSource) LogicalCluster(_ context.Context, asked activities.Guard) (activities.Object, error) {
	return activities.Object{Value: []byte(`{"kind":"LogicalCluster"}`), ModRevision: 12, Revision: revision}, f.answer(asked)
}

func (f *fakeSource) BoundCRDs(_ context.Context, asked activities.Guard, schemaUIDs []string) (map[string][]byte, error) {
	crds := map[string][]byte{}
	for _, uid := range schemaUIDs {
		if value, ok := f.crds[uid]; ok {
			crds[uid] = value
		}
	}
	return crds, f.answer(asked)
}

// tenant makes count entries in key order, with all that a tenant may put into one.
func tenant(count int) []activities.Entry {
	entries := make([]activities.Entry, count)
	for i := range entries {
		entry := activities.Entry{
			Ref:            activities.Ref{Family: configMaps, Suffix: fmt.Sprintf("default/configmap-%08d", i)},
			Value:          bytes.Repeat([]byte{0, 0xff, 'k', byte(i)}, i%64),
			ModRevision:    int64(1000 + i),
			CreateRevision: int64(500 + i),
		}
		if i%64 == 0 {
			entry.Value = nil
		}
		if i >= count/2 {
			entry.Family = cowboys
		}
		if i%10 == 0 {
			entry.TTL = time.Duration(i+1) * time.Millisecond
		}
		entries[i] = entry
	}
	return entries
}

func listing(entries []activities.Entry) []activities.Listed {
	listed := make([]activities.Listed, len(entries))
	for i, entry := range entries {
		listed[i] = activities.Listed{
			Ref:         entry.Ref,
			SHA256:      sha256.Sum256(entry.Value),
			Bytes:       int64(len(entry.Value)),
			ModRevision: entry.ModRevision,
			TTL:         entry.TTL,
		}
	}
	return listed
}

// newServer makes a Server for the run that guard names.
func newServer(t testing.TB, config Config, source activities.Source) *Server {
	t.Helper()
	server, err := NewServer(config, source, &fakeClaims{token: guard.Token}, http.NotFoundHandler())
	require.NoError(t, err)
	return server
}

// serve runs server on loopback until the test ends, or until stop.
func serve(t testing.TB, server *Server) (address string, stop func()) {
	t.Helper()
	listener := listen(t, "127.0.0.1:0")
	return listener.Addr().String(), serveOn(t, server, listener)
}

func listen(t testing.TB, address string) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	require.NoError(t, err)
	return listener
}

func serveOn(t testing.TB, server *Server, listener net.Listener) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listener) }()
	stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(t, <-served)
	})
	t.Cleanup(stop)
	return stop
}

func dial(t testing.TB, dialer *Dialer, address string) activities.Source {
	t.Helper()
	source, closeSource, err := dialer.Dial(address)
	require.NoError(t, err)
	t.Cleanup(closeSource)
	return source
}

// connect serves source without TLS and gives the other end.
func connect(t testing.TB, source activities.Source) activities.Source {
	t.Helper()
	address, _ := serve(t, newServer(t, Config{}, source))
	dialer, err := NewDialer(Config{})
	require.NoError(t, err)
	return dial(t, dialer, address)
}

func readRequest() activities.ReadRequest {
	return activities.ReadRequest{LogicalCluster: cluster, Revision: revision}
}

func readAll(ctx context.Context, source activities.Source, request activities.ReadRequest) ([]activities.Entry, error) {
	var entries []activities.Entry
	for batch, err := range source.Read(ctx, guard, request) {
		if err != nil {
			return entries, err
		}
		entries = append(entries, batch...)
	}
	return entries, nil
}
