package dump

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	migrationv1alpha1 "github.com/kcp-dev/sdk/apis/migration/v1alpha1"
	kcpclientset "github.com/kcp-dev/sdk/client/clientset/versioned"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

const (
	cluster  = "256hdo017n2m0br9"
	shard    = "root"
	revision = int64(4711)
)

var (
	configMaps = keyspace.Family{Group: "core", Resource: "configmaps"}
	cowboys    = keyspace.Family{Group: "wild.wild.west", Resource: "cowboys", Segment: strings.Repeat("0a", 32)}
	object     = activities.Object{Value: []byte(`{"kind":"LogicalCluster"}`), Revision: revision}
)

// origin has one logical cluster in memory, and is the claims too.
type origin struct {
	entries     []activities.Entry
	claim       activities.Claim
	fenceErr    error
	readErr     error
	readErrAt   int
	asked       []activities.ReadRequest
	currentRevs int64
}

func newOrigin(entries int) *origin {
	o := &origin{claim: activities.Claim{
		Token: activities.NewToken("run"), ClaimInfo: activities.ClaimInfo{OriginShard: shard},
	}}
	for i := range entries {
		family := configMaps
		if i >= entries/2 {
			family = cowboys
		}
		o.entries = append(o.entries, activities.Entry{
			Ref:   activities.Ref{Family: family, Suffix: fmt.Sprintf("default/entry-%06d", i)},
			Value: []byte(strings.Repeat("v", 100)),
		})
	}
	return o
}

func (o *origin) ReadClaim(_ context.Context, logicalCluster string) (activities.Claim, error) {
	if logicalCluster != cluster {
		return activities.Claim{}, activities.ErrNotFound
	}
	return o.claim, nil
}

func (o *origin) LogicalCluster(_ context.Context, guard activities.Guard) (activities.Object, error) {
	if guard.Token != o.claim.Token {
		return activities.Object{}, activities.ErrNotFenced
	}
	present := object
	present.Revision += o.currentRevs
	return present, o.fenceErr
}

func (o *origin) Read(_ context.Context, _ activities.Guard, request activities.ReadRequest) activities.Batches {
	o.asked = append(o.asked, request)
	return func(yield func([]activities.Entry, error) bool) {
		rest := o.entries
		if request.After != nil {
			rest = rest[1+slices.IndexFunc(rest, func(entry activities.Entry) bool { return entry.Ref == *request.After }):]
		}
		read := 0
		for batch := range slices.Chunk(rest, 64) {
			if o.readErr != nil && read >= o.readErrAt {
				yield(nil, o.readErr)
				return
			}
			if read += len(batch); !yield(batch, nil) {
				return
			}
		}
	}
}

// keys is what a whole dump gives.
func (o *origin) keys() []string {
	keys := []string{"core.kcp.io/logicalclusters/customresources/" + cluster + "/cluster"}
	for _, entry := range o.entries {
		keys = append(keys, relativeKey(cluster, entry.Ref))
	}
	return keys
}

// serve runs a handler as if clients had shown a certificate of these organisations, and gives the address.
func serve(t *testing.T, o *origin, organisations ...string) string {
	t.Helper()
	handler := NewHandler(shard, o, o)
	certificate := &x509.Certificate{Subject: pkix.Name{Organization: organisations}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{certificate}}}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// sdk is kcp's own client for the tenant.
func sdk(t *testing.T, address string) *kcpclientset.Clientset {
	t.Helper()
	return sdkFor(t, address, cluster)
}

func sdkFor(t *testing.T, address, logicalCluster string) *kcpclientset.Clientset {
	t.Helper()
	client, err := kcpclientset.NewForConfig(&rest.Config{Host: address + "/clusters/" + logicalCluster, QPS: -1})
	require.NoError(t, err)
	return client
}

// request is one by the SDK's client, with what its released types do not have yet.
func request(t *testing.T, client *kcpclientset.Clientset, spec Spec) *rest.Request {
	t.Helper()
	body, err := json.Marshal(LogicalClusterDump{Spec: spec})
	require.NoError(t, err)
	return client.MigrationV1alpha1().RESTClient().
		Post().Resource("logicalclusterdumps").Body(body)
}

func page(t *testing.T, client *kcpclientset.Clientset, spec Spec) (LogicalClusterDump, error) {
	t.Helper()
	raw, err := request(t, client, spec).Do(t.Context()).Raw()
	if err != nil {
		return LogicalClusterDump{}, err
	}
	var answer LogicalClusterDump
	require.NoError(t, json.Unmarshal(raw, &answer))
	return answer, nil
}

func keysOf(dump LogicalClusterDump) []string {
	var keys []string
	for _, entry := range dump.Status.Entries {
		keys = append(keys, entry.Key)
	}
	return keys
}

func TestDump_ByKcpsOwnClient_IsWholeWhereOnePageHoldsIt(t *testing.T) {
	o := newOrigin(900)
	dumps := sdk(t, serve(t, o, "someone", Group)).MigrationV1alpha1().LogicalClusterDumps()
	asked := &migrationv1alpha1.LogicalClusterDump{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
	answer, err := dumps.Create(t.Context(), asked, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, "mine", answer.Name)
	require.Len(t, answer.Status.Entries, 901)
	require.Equal(t, object.Value, answer.Status.Entries[0].Value)
	require.Equal(t, o.entries[899].Value, answer.Status.Entries[900].Value)
}

// A destination of kcp 0.32 does not know of pages, and takes the first for everything. docs/rangestream.md tells kcp.
func TestDump_ByAClientThatKnowsOfNoPages_IsCutShortUnseen(t *testing.T) {
	dumps := sdk(t, serve(t, newOrigin(5000), Group)).MigrationV1alpha1().LogicalClusterDumps()
	answer, err := dumps.Create(t.Context(), &migrationv1alpha1.LogicalClusterDump{}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Len(t, answer.Status.Entries, defaultEntries)
}

func TestDump_ByPages_GivesEveryEntryOnceAtOneRevision(t *testing.T) {
	for name, spec := range map[string]Spec{
		"by default":         {},
		"one at a time":      {Limit: 1},
		"by number":          {Limit: 7},
		"by bytes":           {MaxBytes: 1000},
		"smaller than one":   {MaxBytes: 1},
		"less than nothing":  {Limit: -1, MaxBytes: -1},
		"all that was asked": {Limit: 1 << 40, MaxBytes: 1 << 40},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOrigin(300)
			client := sdk(t, serve(t, o, Group))
			var keys []string
			for {
				answer, err := page(t, client, spec)
				require.NoError(t, err)
				if spec.Limit > 0 {
					require.LessOrEqual(t, int64(len(answer.Status.Entries)), spec.Limit)
				}
				require.NotEmpty(t, answer.Status.Entries)
				keys = append(keys, keysOf(answer)...)
				o.currentRevs++
				if spec.Continue = answer.Status.Continue; spec.Continue == "" {
					break
				}
			}
			require.Equal(t, o.keys(), keys)
			for _, asked := range o.asked {
				require.Equal(t, revision, asked.Revision)
			}
		})
	}
}

func TestDump_OfHugeLimits_StaysWithinTheServersOwn(t *testing.T) {
	o := newOrigin(maxEntries + 10)
	answer, err := page(t, sdk(t, serve(t, o, Group)), Spec{Limit: 1 << 40, MaxBytes: 1 << 40})
	require.NoError(t, err)
	require.Len(t, answer.Status.Entries, maxEntries)
	require.NotEmpty(t, answer.Status.Continue)
}

func TestDump_Streamed_GivesEveryPageInOneAnswer(t *testing.T) {
	o := newOrigin(3000)
	stream, err := request(t, sdk(t, serve(t, o, Group)), Spec{Limit: 100}).SetHeader("Accept", streamType).Stream(t.Context())
	require.NoError(t, err)
	defer stream.Close()
	keys, last := readPages(t, stream)
	require.Equal(t, o.keys(), keys)
	require.Empty(t, last.Status.Continue)
	require.Len(t, o.asked, 1, "all pages are one read")
}

// readPages reads until there is no more.
func readPages(t *testing.T, stream io.Reader) (keys []string, last LogicalClusterDump) {
	t.Helper()
	lines := json.NewDecoder(stream)
	for {
		var next LogicalClusterDump
		if err := lines.Decode(&next); err != nil {
			return keys, last
		}
		require.Equal(t, "LogicalClusterDump", next.Kind)
		keys, last = append(keys, keysOf(next)...), next
	}
}

func TestDump_WhenAStreamBreaks_IsResumedBehindItsLastPage(t *testing.T) {
	o := newOrigin(1000)
	o.readErr, o.readErrAt = errors.New("etcd has no leader"), 500
	stream, err := request(t, sdk(t, serve(t, o, Group)), Spec{Limit: 100}).SetHeader("Accept", streamType).Stream(t.Context())
	require.NoError(t, err)
	defer stream.Close()
	keys, last := readPages(t, stream)
	require.NotEmpty(t, last.Status.Continue, "a stream that broke does not look complete")
	_, err = stream.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)

	another := newOrigin(1000)
	another.currentRevs = 100
	rest, err := request(t, sdk(t, serve(t, another, Group)), Spec{Continue: last.Status.Continue}).SetHeader("Accept", streamType).Stream(t.Context())
	require.NoError(t, err)
	defer rest.Close()
	more, last := readPages(t, rest)
	require.Empty(t, last.Status.Continue)
	require.Equal(t, o.keys(), append(keys, more...))
	require.Equal(t, revision, another.asked[0].Revision)
}

func TestDump_WhenItsRevisionWasCompacted_SaysToBeginAgain(t *testing.T) {
	o := newOrigin(10)
	o.readErr = fmt.Errorf("read: %w", activities.ErrCompacted)
	client := sdk(t, serve(t, o, Group))
	for _, accept := range []string{jsonType, streamType} {
		err := request(t, client, Spec{}).SetHeader("Accept", accept).Do(t.Context()).Error()
		require.True(t, apierrors.IsResourceExpired(err), "%v", err)
	}
}

func TestDump_OfWhatDoesNotMoveAwayFromHere_IsNotFound(t *testing.T) {
	for name, change := range map[string]func(*origin){
		"not fenced":      func(o *origin) { o.fenceErr = activities.ErrNotFenced },
		"moves to here":   func(o *origin) { o.claim.OriginShard = "shard-1" },
		"not claimed":     func(o *origin) { o.claim = activities.Claim{} },
		"claim is sealed": func(o *origin) { o.fenceErr = fmt.Errorf("LogicalCluster is gone: %w", activities.ErrNotFenced) },
	} {
		t.Run(name, func(t *testing.T) {
			o := newOrigin(10)
			change(o)
			_, err := page(t, sdk(t, serve(t, o, Group)), Spec{})
			require.True(t, apierrors.IsNotFound(err), "%v", err)
			require.Empty(t, o.asked)
		})
	}
	other := sdkFor(t, serve(t, newOrigin(1), Group), "1sht4x3krp09o2j5")
	_, err := other.MigrationV1alpha1().LogicalClusterDumps().Create(t.Context(), &migrationv1alpha1.LogicalClusterDump{}, metav1.CreateOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}

func TestDump_ByWhoIsNotOfTheGroup_IsForbidden(t *testing.T) {
	for _, organisations := range [][]string{nil, {"system:masters"}, {Group + "s"}} {
		o := newOrigin(10)
		_, err := page(t, sdk(t, serve(t, o, organisations...)), Spec{})
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		require.Empty(t, o.asked)
	}
	handler := httptest.NewServer(NewHandler(shard, newOrigin(1), newOrigin(1)))
	defer handler.Close()
	_, err := page(t, sdk(t, handler.URL), Spec{})
	require.True(t, apierrors.IsForbidden(err), "nobody is anything without TLS: %v", err)
}

func TestDump_ByAnyVerbButCreate_IsRefused(t *testing.T) {
	address := serve(t, newOrigin(10), Group) + "/clusters/" + cluster + "/apis/migration.kcp.io/v1alpha1/logicalclusterdumps"
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodHead} {
		asked, err := http.NewRequestWithContext(t.Context(), method, address, nil)
		require.NoError(t, err)
		answer, err := http.DefaultClient.Do(asked)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusMethodNotAllowed, answer.StatusCode, method)
		require.Equal(t, http.MethodPost, answer.Header.Get("Allow"))
	}
}

func TestDump_AtThePathOfKcpsVirtualWorkspace_IsServedToo(t *testing.T) {
	answer, err := page(t, sdk(t, serve(t, newOrigin(10), Group)+"/services/migratingworkspaces"), Spec{})
	require.NoError(t, err)
	require.Len(t, answer.Status.Entries, 11)
}

func TestDump_OfWhatCannotBeUnderstood_IsABadRequest(t *testing.T) {
	o := newOrigin(10)
	client := sdk(t, serve(t, o, Group))
	for _, token := range []string{
		"x", "4711", "0:core/configmaps/" + cluster + "/default/entry", "-1:core/configmaps/" + cluster + "/default/entry",
		"4711:core/configmaps/1sht4x3krp09o2j5/default/entry", "4711:core/configmaps/" + cluster + "/", "core/configmaps/" + cluster + "/default/entry",
	} {
		_, err := page(t, client, Spec{Continue: token})
		require.True(t, apierrors.IsBadRequest(err), "%s: %v", token, err)
	}
	for _, body := range []string{"{", `{"spec":{"limit":"1"}}`} {
		err := request(t, client, Spec{}).Body([]byte(body)).Do(t.Context()).Error()
		require.True(t, apierrors.IsBadRequest(err), "%v", err)
	}
	huge := `"` + strings.Repeat("x", maxRequestBytes) + `"`
	// The answer may be lost where the server closes the connection before all of it has arrived.
	require.Error(t, request(t, client, Spec{}).Body([]byte(huge)).Do(t.Context()).Error())
	require.Empty(t, o.asked)
}
