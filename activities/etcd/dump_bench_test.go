package etcd

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/dump"
	"github.com/kcp-migrate/kcp-migrate/activities/objects"
)

// BenchmarkDump asks for the large tenant as kcp's destination does, page by page, and streamed.
func BenchmarkDump(b *testing.B) {
	for name, accept := range map[string]string{"paged": "application/json", "streamed": "application/json;stream=watch"} {
		b.Run(name, func(b *testing.B) {
			eachBench(b, func(b *testing.B, store *Store) {
				ask := serveDumps(b, store, accept)
				requests := 0
				for b.Loop() {
					requests = 0
					for token, read := "", 0; read == 0 || token != ""; requests++ {
						entries, next := ask(token)
						read, token = read+entries, next
						if token == "" {
							require.Equal(b, benchEntries+1, read)
						}
					}
				}
				b.ReportMetric(float64(requests), "requests")
			})
		})
	}
}

// serveDumps gives what asks once, and reads all documents of the answer.
func serveDumps(b *testing.B, store *Store, accept string) (ask func(token string) (entries int, next string)) {
	fenced, err := objects.ParseLogicalCluster([]byte(`{"kind":"LogicalCluster","metadata":{"name":"cluster"}}`))
	require.NoError(b, err)
	fenced.Fence(string(guard.Token))
	fenced.SetPhase(objects.PhaseInactive)
	value, err := fenced.Encode()
	require.NoError(b, err)
	_, err = admin(store).Put(b.Context(), store.layout.LogicalClusterKey(consumer), string(value))
	require.NoError(b, err)

	handler := dump.NewHandler("root", activities.NewOrigin(store), rootsClaim{})
	caller := &x509.Certificate{Subject: pkix.Name{Organization: []string{dump.Group}}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{caller}}}
		handler.ServeHTTP(w, r)
	}))
	b.Cleanup(server.Close)
	address := server.URL + "/clusters/" + consumer + "/apis/migration.kcp.io/v1alpha1/logicalclusterdumps"
	return func(token string) (entries int, next string) {
		body, err := json.Marshal(dump.LogicalClusterDump{Spec: dump.Spec{Continue: token}})
		require.NoError(b, err)
		request, err := http.NewRequestWithContext(b.Context(), http.MethodPost, address, bytes.NewReader(body))
		require.NoError(b, err)
		request.Header.Set("Accept", accept)
		answer, err := server.Client().Do(request)
		require.NoError(b, err)
		defer answer.Body.Close()
		require.Equal(b, http.StatusCreated, answer.StatusCode)
		documents := json.NewDecoder(answer.Body)
		for {
			var page dump.LogicalClusterDump
			err := documents.Decode(&page)
			if errors.Is(err, io.EOF) {
				return entries, next
			}
			require.NoError(b, err)
			entries, next = entries+len(page.Status.Entries), page.Status.Continue
		}
	}
}

// rootsClaim is of a move away from the shard root.
type rootsClaim struct{}

func (rootsClaim) ReadClaim(context.Context, string) (activities.Claim, error) {
	return activities.Claim{Token: guard.Token, ClaimInfo: activities.ClaimInfo{OriginShard: "root"}}, nil
}
