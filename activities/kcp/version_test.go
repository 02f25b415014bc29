package kcp

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

const (
	crdPath    = "/clusters/system:system-crds/apis/apiextensions.k8s.io/v1/customresourcedefinitions/logicalclusters.core.kcp.io"
	issuerPath = "/.well-known/openid-configuration"
	keysPath   = "/openid/v1/jwks"
)

// crdVersion is one version of the LogicalCluster CRD whose phases are these.
func crdVersion(served, phases string) string {
	return fmt.Sprintf(`{"served":%s,"schema":{"openAPIV3Schema":{"properties":{"status":{"properties":{"phase":{"enum":[%s]}}}}}}}`, served, phases)
}

func TestVersion_TellsKcpsReleaseAndWhetherItFences(t *testing.T) {
	const old, new = `"Scheduling","Ready"`, `"Scheduling","Ready","Inactive"`
	for name, one := range map[string]struct {
		gitVersion, versions string
		want                 activities.Version
	}{
		"release":                {"v1.37.0+kcp-v0.32.3", crdVersion("true", new), activities.Version{Kcp: "v0.32.3", FencesByAnnotation: true}},
		"pre-release":            {"v1.37.0+kcp-v0.33.0-rc.1", crdVersion("true", new), activities.Version{Kcp: "v0.33.0-rc.1", FencesByAnnotation: true}},
		"build from source":      {"v0.0.0-master+$Format:%H$", crdVersion("true", new), activities.Version{FencesByAnnotation: true}},
		"before 0.32":            {"v1.34.2+kcp-v0.31.0", crdVersion("true", old), activities.Version{Kcp: "v0.31.0"}},
		"one served version old": {"v1.37.0+kcp-v0.32.3", crdVersion("true", new) + "," + crdVersion("true", old), activities.Version{Kcp: "v0.32.3"}},
		"an old one not served":  {"v1.37.0+kcp-v0.32.3", crdVersion("true", new) + "," + crdVersion("false", old), activities.Version{Kcp: "v0.32.3", FencesByAnnotation: true}},
		"no schema":              {"v1.37.0+kcp-v0.32.3", `{"served":true}`, activities.Version{Kcp: "v0.32.3"}},
		"no version":             {"v1.37.0+kcp-v0.32.3", ``, activities.Version{Kcp: "v0.32.3"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := startServer(t)
			server.on("/version", reply(fmt.Sprintf(`{"gitVersion":%q}`, one.gitVersion)))
			server.on(crdPath, reply(`{"spec":{"versions":[`+one.versions+`]}}`))
			version, err := newShard(t, server).Version(t.Context())
			require.NoError(t, err)
			require.Equal(t, one.want, version)
		})
	}
}

func TestIdentity_IsTheShardsOwnAndAsOldAsItsEtcd(t *testing.T) {
	server := startServer(t)
	const path = "/clusters/system:shard/apis/core.kcp.io/v1alpha1/logicalclusters"
	server.on(path, reply(`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"93"},"items":[{"metadata":{"name":"cluster","uid":"4711","resourceVersion":"7"}}]}`))
	identity, err := newShard(t, server).Identity(t.Context())
	require.NoError(t, err)
	require.Equal(t, activities.Identity{UID: "4711", Revision: 93}, identity)

	server.on(path, reply(`{"metadata":{"resourceVersion":""}}`))
	_, err = newShard(t, server).Identity(t.Context())
	require.ErrorContains(t, err, `revision ""`)
}

func TestVersion_WithoutRights_IsForbidden(t *testing.T) {
	server := startServer(t)
	server.on("/version", forbidden)
	_, err := newShard(t, server).Version(t.Context())
	require.ErrorIs(t, err, activities.ErrForbidden)
	require.ErrorContains(t, err, server.URL)
}

// signing has a server publish keys as kcp does: only to those who ask for a key set.
func signing(t *testing.T, issuer, keys string) string {
	t.Helper()
	server := startServer(t)
	server.on(issuerPath, reply(fmt.Sprintf(`{"issuer":%q,"jwks_uri":%q}`, issuer, server.URL+keysPath)))
	server.on(keysPath, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") == "application/json" {
			w.WriteHeader(http.StatusNotAcceptable)
			return
		}
		reply(`{"keys":[`+keys+`]}`)(w, r)
	})
	fingerprint, err := newShard(t, server).SigningKeys(t.Context())
	require.NoError(t, err)
	return fingerprint
}

func TestSigningKeys_DifferByKeysAndIssuerAlone(t *testing.T) {
	one := signing(t, "kcp", `{"kid":"a","n":"1"},{"kid":"b","n":"2"}`)
	require.Equal(t, one, signing(t, "kcp", `{"n":"2","kid":"b"},{"n":"1","kid":"a"}`), "order does not matter")
	require.NotEqual(t, one, signing(t, "kcp", `{"kid":"a","n":"1"}`))
	require.NotEqual(t, one, signing(t, "kcp", `{"kid":"a","n":"1"},{"kid":"b","n":"3"}`))
	require.NotEqual(t, one, signing(t, "other", `{"kid":"a","n":"1"},{"kid":"b","n":"2"}`))
}

func TestSigningKeys_WhenNotPublished_SaysSo(t *testing.T) {
	silent, keyless := startServer(t), startServer(t)
	_, err := newShard(t, silent).SigningKeys(t.Context())
	require.ErrorIs(t, err, activities.ErrNotFound)
	require.ErrorContains(t, err, issuerPath)
	keyless.on(issuerPath, reply(`{"issuer":"kcp"}`))
	keyless.on(keysPath, reply(`{"keys":[]}`))
	_, err = newShard(t, keyless).SigningKeys(t.Context())
	require.ErrorContains(t, err, "publishes no keys")
}
