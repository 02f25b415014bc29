package activities_test

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/etcd"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
	"github.com/kcp-migrate/kcp-migrate/activities/objects"
)

const (
	tenant    = "256hdo017n2m0br9"
	neighbour = "2ei2q8rs6um1o3uc"
	run       = "0f9d5b5c-run"
)

var (
	layout = keyspace.NewLayout("")
	first  = activities.NewToken(run)
	guard  = activities.Guard{LogicalCluster: tenant, Token: first}
	// fenced is the origin's guard once its fence has raised the token.
	fenced = activities.Guard{LogicalCluster: tenant, Token: first.Next()}
)

// shard is one shard under test: a real etcd, a stand-in for kcp's LogicalCluster controller, scripted probes.
type shard struct {
	*activities.Shard
	store  *etcd.Store
	client *clientv3.Client
	api    *scriptedAPI
	env    *testsuite.TestActivityEnvironment
}

// newShard takes what is special about its etcd.
func newShard(t *testing.T, name string, options ...func(*embed.Config)) *shard {
	return newShardWith(t, name, etcd.Config{}, options...)
}

// newShardWith also takes what is special about the store.
func newShardWith(t *testing.T, name string, config etcd.Config, options ...func(*embed.Config)) *shard {
	client := startEtcd(t, options...)
	if config.Username != "" {
		client = authenticate(t, client)
	}
	return newShardAt(t, name, config, client)
}

// newShardAt is one on an etcd that runs.
func newShardAt(t *testing.T, name string, config etcd.Config, client *clientv3.Client) *shard {
	config.Endpoints = client.Endpoints()
	store, err := etcd.Open(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	api := &scriptedAPI{store: store}
	one := &shard{
		Shard: &activities.Shard{Name: name, Store: store, API: api, TransferAddress: name},
		store: store, client: client, api: api,
	}
	one.env = newEnvironment(one.Shard)
	layout := keyspace.NewLayout(config.Prefix)
	one.put(t, layout.LogicalClusterKey(keyspace.SystemShard), logicalCluster(name))
	api.control(t, client, layout)
	return one
}

func newEnvironment(shard *activities.Shard) *testsuite.TestActivityEnvironment {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestActivityEnvironment()
	env.SetTestTimeout(5 * time.Minute)
	env.RegisterActivity(shard)
	return env
}

func startEtcd(t *testing.T, options ...func(*embed.Config)) *clientv3.Client {
	config := embed.NewConfig()
	config.Dir = t.TempDir()
	config.LogLevel = "fatal"
	config.UnsafeNoFsync = true
	config.TickMs, config.ElectionMs = 10, 100 // its own leader sooner than after a second
	loopback := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{loopback}, []url.URL{loopback}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{loopback}, []url.URL{loopback}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	for _, set := range options {
		set(config)
	}
	server, err := embed.StartEtcd(config)
	require.NoError(t, err)
	t.Cleanup(server.Close)
	<-server.Server.ReadyNotify()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Clients[0].Addr().String()}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func logicalCluster(shard string) string {
	return `{"apiVersion":"core.kcp.io/v1alpha1","kind":"LogicalCluster","metadata":{"annotations":{"core.kcp.io/shard":"` + shard +
		`","kcp.io/path":"root:consumer"},"labels":{"tenancy.kcp.io/phase":"Ready"},"name":"cluster","uid":"uid-of-` + shard + `"},"status":{"phase":"Ready"}}`
}

func (s *shard) put(t *testing.T, key, value string) {
	_, err := s.client.Put(t.Context(), key, value)
	require.NoError(t, err)
}

// export is every key but the claims', with its value.
func (s *shard) export(t *testing.T, prefix string) map[string]string {
	response, err := s.client.Get(t.Context(), prefix, clientv3.WithPrefix())
	require.NoError(t, err)
	found := map[string]string{}
	for _, kv := range response.Kvs {
		found[string(kv.Key)] = string(kv.Value)
	}
	return found
}

func (s *shard) logicalCluster(t *testing.T, name string) *objects.LogicalCluster {
	present, err := s.store.LogicalCluster(t.Context(), name)
	require.NoError(t, err)
	parsed, err := objects.ParseLogicalCluster(present.Value)
	require.NoError(t, err)
	return parsed
}

func (s *shard) claim(t *testing.T, token activities.Token) activities.Guard {
	held := activities.Guard{LogicalCluster: tenant, Token: token}
	_, err := s.store.Claim(t.Context(), held, activities.ClaimInfo{
		WorkflowID: "migrate-consumer", RunID: token.Run(), OriginShard: "root", DestinationShard: "shard-1",
	})
	require.NoError(t, err)
	return held
}

// perform runs an activity by its method.
func perform[Result any](t *testing.T, s *shard, activity, input any) (Result, error) {
	var result Result
	value, err := s.env.ExecuteActivity(activity, input)
	if err == nil && value.HasValue() {
		require.NoError(t, value.Get(&result))
	}
	return result, err
}

// scriptedAPI answers as the LogicalCluster in etcd says, unless a test tells it otherwise.
type scriptedAPI struct {
	store *etcd.Store
	// informers is asked whether the shard's informers have come back, where a test sets it.
	informers func() error
	// idle keeps the stand-in controller from acting.
	idle atomic.Bool
	// uncut keeps canaries open for so many nudges.
	uncut atomic.Int32
	// stuck answers 504 so often after the cluster was opened.
	stuck atomic.Int32
	// silent gives no answer to so many wildcard probes.
	silent atomic.Int32
	// wakes counts system:shard's transitions back to Ready.
	wakes atomic.Int32
	// blind is what a shard is from a fence to the next wake.
	blind atomic.Bool
	// released counts contexts that were dropped because a LogicalCluster is being deleted.
	released atomic.Int64
	// missesReleases makes two API servers of the one, of which the second drops the context at this release only.
	missesReleases atomic.Int64
	contents       activities.Contents
	version        activities.Version
	keys           string
	// uid is what the API servers call system:shard's UID; etcd's unless given.
	uid string
	// ahead is by how many revisions the API servers' etcd is ahead of the worker's, of which one was copied.
	ahead int64

	mutex    sync.Mutex
	canaries []*scriptedCanaries
}

// control does what kcp's controller does to the phase, for every LogicalCluster of the shard.
func (a *scriptedAPI) control(t *testing.T, client *clientv3.Client, layout keyspace.Layout) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	changes := client.Watch(ctx, layout.ResourcePrefix("core.kcp.io", "logicalclusters"), clientv3.WithPrefix())
	running.Go(func() {
		for response := range changes {
			for _, event := range response.Events {
				if event.Type == clientv3.EventTypePut && !a.idle.Load() {
					a.reconcile(ctx, client, string(event.Kv.Key), event.Kv.Value, event.Kv.ModRevision)
				}
			}
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
}

func (a *scriptedAPI) reconcile(ctx context.Context, client *clientv3.Client, key string, value []byte, modRevision int64) {
	present, err := objects.ParseLogicalCluster(value)
	if err != nil {
		return
	}
	switch {
	case present.BeingDeleted() && present.Phase() != objects.PhaseDeleting:
		present.SetPhase(objects.PhaseDeleting)
		a.released.Add(1)
	case present.BeingDeleted():
		return
	case present.Phase() == objects.PhaseReady && present.Inactive():
		present.SetPhase(objects.PhaseInactive)
		a.blind.Store(true)
		a.cut()
	case present.Phase() == objects.PhaseInactive && !present.Inactive():
		present.SetPhase(objects.PhaseReady)
		if strings.Contains(key, "/"+keyspace.SystemShard+"/") {
			a.wakes.Add(1)
			a.blind.Store(false)
		}
	default:
		return
	}
	encoded, err := present.Encode()
	if err != nil {
		return
	}
	// A conflict is another event's to handle.
	_, _ = client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", modRevision)).Then(clientv3.OpPut(key, string(encoded))).Commit()
}

func (a *scriptedAPI) cut() {
	if a.uncut.Add(-1) >= 0 {
		return
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	for _, canary := range a.canaries {
		canary.once.Do(func() { close(canary.ended) })
	}
}

type scriptedCanaries struct {
	ended chan struct{}
	once  sync.Once
}

func (c *scriptedCanaries) AwaitCut(ctx context.Context) ([]string, error) {
	select {
	case <-c.ended:
		return nil, nil
	case <-ctx.Done():
		return []string{"https://one"}, nil
	}
}

func (c *scriptedCanaries) Close() {}

func (a *scriptedAPI) OpenCanaries(ctx context.Context, logicalCluster string) (activities.Canaries, error) {
	if probe := a.ProbeServing(ctx, logicalCluster)[0]; !probe.OK {
		return nil, errors.New(probe.Detail)
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	canary := &scriptedCanaries{ended: make(chan struct{})}
	a.canaries = append(a.canaries, canary)
	return canary, nil
}

func (a *scriptedAPI) inactive(ctx context.Context, logicalCluster string) (bool, error) {
	present, err := a.store.LogicalCluster(ctx, logicalCluster)
	if err != nil {
		return false, err
	}
	parsed, err := objects.ParseLogicalCluster(present.Value)
	return err == nil && parsed.Inactive(), err
}

func (a *scriptedAPI) ProbeServing(ctx context.Context, logicalCluster string) []activities.Probe {
	if a.stuck.Add(-1) >= 0 {
		return []activities.Probe{{Server: "https://one", Detail: "504"}}
	}
	inactive, err := a.inactive(ctx, logicalCluster)
	return []activities.Probe{{Server: "https://one", OK: err == nil && !inactive, Detail: "403 inactive"}}
}

func (a *scriptedAPI) ProbeFenced(ctx context.Context, logicalCluster string) []activities.Probe {
	inactive, err := a.inactive(ctx, logicalCluster)
	probe := activities.Probe{Server: "https://one", OK: err == nil && inactive, Detail: "200"}
	if a.missesReleases.Load() > 0 {
		return []activities.Probe{probe, probe}
	}
	return []activities.Probe{probe}
}

func (a *scriptedAPI) ProbeCluster(ctx context.Context, logicalCluster string) []activities.Probe {
	inactive, err := a.inactive(ctx, logicalCluster)
	released := err == nil && !inactive && a.released.Load() >= a.missesReleases.Load()
	return []activities.Probe{{Server: "https://one", OK: true}, {Server: "https://two", OK: released, Detail: "504"}}
}

func (a *scriptedAPI) ProbeWildcard(context.Context) []activities.Probe {
	if a.silent.Add(-1) >= 0 {
		return []activities.Probe{{Server: "https://one", Unreachable: true, Detail: "connection refused"}}
	}
	return []activities.Probe{{Server: "https://one", OK: !a.blind.Load(), Detail: "504"}}
}

// AwaitInformers ends as the test says.
func (a *scriptedAPI) AwaitInformers(context.Context, string) error {
	if a.informers == nil {
		return nil
	}
	return a.informers()
}

func (a *scriptedAPI) ProbeResources(context.Context, string, []activities.BoundResource) []activities.Probe {
	return []activities.Probe{{Server: "https://one", OK: true}}
}

func (a *scriptedAPI) Version(context.Context) (activities.Version, error) { return a.version, nil }

func (a *scriptedAPI) Identity(ctx context.Context) (activities.Identity, error) {
	present, err := a.store.LogicalCluster(ctx, keyspace.SystemShard)
	if err != nil {
		return activities.Identity{}, err
	}
	parsed, err := objects.ParseLogicalCluster(present.Value)
	return activities.Identity{UID: cmp.Or(a.uid, parsed.UID()), Revision: present.Revision + a.ahead}, err
}

func (a *scriptedAPI) SigningKeys(context.Context) (string, error) { return a.keys, nil }

func (a *scriptedAPI) Contents(context.Context, string) (activities.Contents, error) {
	return a.contents, nil
}

// direct dials a Source of this process.
type direct struct{ source activities.Source }

func (d direct) Dial(string) (activities.Source, func(), error) { return d.source, func() {}, nil }

// pair is an origin that holds the tenant and a neighbour, and an empty destination; both are claimed.
type pair struct {
	origin, destination *shard
	ref                 activities.OriginRef
}

func newPair(t *testing.T) pair { return newPairWith(t, etcd.Config{}, etcd.Config{}) }

// newPairWith takes what is special about the stores; the origin's prefix is the usual one.
func newPairWith(t *testing.T, origin, destination etcd.Config) pair {
	return newPairOf(t, newShardWith(t, "root", origin), newShardWith(t, "shard-1", destination))
}

func newPairOf(t *testing.T, origin, destination *shard) pair {
	p := pair{origin: origin, destination: destination}
	p.destination.Dialer = direct{activities.NewOrigin(p.origin.store)}
	for key, value := range map[string]string{
		layout.LogicalClusterKey(tenant):                               logicalCluster("root"),
		layout.LogicalClusterKey(neighbour):                            logicalCluster("root"),
		"/registry/core/configmaps/" + tenant + "/default/one":         "1",
		"/registry/core/configmaps/" + tenant + "/default/two":         "2",
		"/registry/acme.io/gizmos/customresources/" + tenant + "/big":  `{"spec":{}}`,
		"/registry/core/configmaps/" + neighbour + "/" + tenant + "/x": "trap",
	} {
		p.origin.put(t, key, value)
	}
	p.origin.claim(t, first)
	p.destination.claim(t, first)
	p.ref = activities.OriginRef{Address: "root", Guard: guard}
	return p
}

func (p pair) fence(t *testing.T) activities.FenceResult {
	result, err := perform[activities.FenceResult](t, p.origin, p.origin.FenceOrigin, activities.RaiseInput{Guard: guard, To: fenced.Token})
	require.NoError(t, err)
	return result
}

func (p pair) enclose(t *testing.T) {
	_, err := perform[any](t, p.destination, p.destination.FenceDestination, activities.FenceDestinationInput{Guard: guard, Origin: p.ref})
	require.NoError(t, err)
}

func (p pair) copy(t *testing.T, revision int64) activities.CopyResult {
	result, err := perform[activities.CopyResult](t, p.destination, p.destination.CopyEntries, activities.CopyInput{Guard: guard, Origin: p.ref, Revision: revision})
	require.NoError(t, err)
	return result
}

// fill fences the tenant and copies it, all but the commit and the proof for it.
func (p pair) fill(t *testing.T) {
	fence := p.fence(t)
	p.enclose(t)
	p.copy(t, fence.Revision)
}

// land moves the tenant as far as the commit.
func (p pair) land(t *testing.T) {
	p.fill(t)
	p.verify(t, first)
	p.commit(t)
}

func (p pair) verify(t *testing.T, held activities.Token) activities.VerifyResult {
	result, err := perform[activities.VerifyResult](t, p.destination, p.destination.VerifyEntries, activities.VerifyInput{
		Guard: activities.Guard{LogicalCluster: tenant, Token: held}, RaiseTo: held.Next(), Origin: p.ref,
	})
	require.NoError(t, err)
	return result
}

// commit follows one round of verification.
func (p pair) commit(t *testing.T) activities.CommitResult {
	result, err := perform[activities.CommitResult](t, p.destination, p.destination.Commit, activities.CommitInput{
		Guard: activities.Guard{LogicalCluster: tenant, Token: first.Next()}, RaiseTo: first.Next().Next(), Origin: p.ref,
	})
	require.NoError(t, err)
	return result
}
