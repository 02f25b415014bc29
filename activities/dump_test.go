package activities_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/dump"
)

// dumpsOf serves a shard's dumps to somebody who may ask for them.
func dumpsOf(t *testing.T, s *shard) (ask func(spec dump.Spec) (status int, page dump.Status)) {
	t.Helper()
	handler := dump.NewHandler(s.Name, activities.NewOrigin(s.store), s.store)
	caller := &x509.Certificate{Subject: pkix.Name{Organization: []string{dump.Group}}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{caller}}}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.Client().CloseIdleConnections)
	address := server.URL + "/clusters/" + tenant + "/apis/migration.kcp.io/v1alpha1/logicalclusterdumps"
	return func(spec dump.Spec) (int, dump.Status) {
		body, err := json.Marshal(dump.LogicalClusterDump{Spec: spec})
		require.NoError(t, err)
		answer, err := server.Client().Post(address, "application/json", bytes.NewReader(body))
		require.NoError(t, err)
		defer func() { require.NoError(t, answer.Body.Close()) }()
		if answer.StatusCode != http.StatusCreated {
			return answer.StatusCode, dump.Status{}
		}
		var page dump.LogicalClusterDump
		require.NoError(t, json.NewDecoder(answer.Body).Decode(&page))
		return answer.StatusCode, page.Status
	}
}

func TestDump_OfTheTenantAlone_StaysAtItsRevisionAndEndsWithTheFence(t *testing.T) {
	p := newPair(t)
	ask := dumpsOf(t, p.origin)
	status, _ := ask(dump.Spec{})
	require.Equal(t, http.StatusNotFound, status, "claimed and not fenced yet")
	p.fence(t)

	dumped := map[string]string{}
	spec := dump.Spec{Limit: 1}
	for late := 0; ; late++ {
		status, page := ask(spec)
		require.Equal(t, http.StatusCreated, status)
		require.Len(t, page.Entries, 1)
		dumped["/registry/"+page.Entries[0].Key] = string(page.Entries[0].Value)
		p.origin.put(t, "/registry/core/secrets/"+tenant+"/default/late-"+strconv.Itoa(late), "later than the first page")
		if spec.Continue = page.Continue; spec.Continue == "" {
			break
		}
	}
	held := p.origin.export(t, "/registry/")
	require.Len(t, dumped, 4, "the LogicalCluster, two ConfigMaps and a gizmo: %v", dumped)
	for key, value := range dumped {
		require.Equal(t, held[key], value, key)
	}

	status, page := ask(dump.Spec{Limit: 2})
	require.Equal(t, http.StatusCreated, status)
	revision, err := p.origin.store.Revision(t.Context())
	require.NoError(t, err)
	_, err = p.origin.client.Compact(t.Context(), revision, clientv3.WithCompactPhysical())
	require.NoError(t, err)
	p.origin.put(t, "/registry/core/secrets/"+tenant+"/default/last", "")
	status, _ = ask(dump.Spec{Continue: page.Continue})
	require.Equal(t, http.StatusCreated, status, "nothing has been written between the page and the compaction")
	_, err = p.origin.client.Compact(t.Context(), revision+1)
	require.NoError(t, err)
	status, _ = ask(dump.Spec{Continue: page.Continue})
	require.Equal(t, http.StatusGone, status)

	_, err = perform[any](t, p.origin, p.origin.LiftFence, activities.GuardInput{Guard: fenced})
	require.NoError(t, err)
	status, _ = ask(dump.Spec{})
	require.Equal(t, http.StatusNotFound, status)
}

func TestDump_AtTheDestination_IsNotFound(t *testing.T) {
	p := newPair(t)
	revision := p.fence(t).Revision
	p.enclose(t)
	p.copy(t, revision)
	status, _ := dumpsOf(t, p.destination)(dump.Spec{})
	require.Equal(t, http.StatusNotFound, status)
}
