package simshard

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// gitVersion is that of the kcp whose behaviour is simulated.
const gitVersion = "v1.37.0+kcp-v0.32.3"

var verbs = metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

// discover answers everything that is not a resource.
func (a *apiServer) discover(writer http.ResponseWriter, _ *http.Request, t target) error {
	switch strings.TrimSuffix(t.path, "/") {
	case "/readyz", "/livez", "/healthz":
		_, err := writer.Write([]byte("ok"))
		return err
	case "/version":
		return writeJSON(writer, http.StatusOK, version.Info{Major: "1", Minor: "37", GitVersion: gitVersion, Platform: "linux/amd64"})
	case "/openid/v1/jwks":
		return writeJSON(writer, http.StatusOK, a.signingKeys())
	case "/.well-known/openid-configuration":
		return writeJSON(writer, http.StatusOK, a.openIDConfiguration())
	case "/api":
		return writeJSON(writer, http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case "/apis":
		return writeJSON(writer, http.StatusOK, a.groups(t.cluster))
	}
	if strings.HasPrefix(t.path, openAPIRoot) {
		return a.openAPI(writer, t)
	}
	return a.discoverGroup(writer, t)
}

// discoverGroup answers /api/v1, /apis/<group> and /apis/<group>/<version>.
func (a *apiServer) discoverGroup(writer http.ResponseWriter, t target) error {
	parts := strings.Split(strings.Trim(t.path, "/"), "/")
	switch {
	case len(parts) == 2 && parts[0] == "apis":
		for _, group := range a.groups(t.cluster).Groups {
			if group.Name == parts[1] {
				return writeJSON(writer, http.StatusOK, group)
			}
		}
	case len(parts) == 2 && parts[0] == "api":
		return a.discoverVersion(writer, t, schema.GroupVersion{Version: parts[1]})
	case len(parts) == 3 && parts[0] == "apis":
		return a.discoverVersion(writer, t, schema.GroupVersion{Group: parts[1], Version: parts[2]})
	}
	return notServed(http.MethodGet)
}

func (a *apiServer) discoverVersion(writer http.ResponseWriter, t target, wanted schema.GroupVersion) error {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: wanted.String()}
	for _, served := range a.catalog.all(t.cluster) {
		if served.groupVersion() != wanted.String() {
			continue
		}
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: served.resource, SingularName: served.singular, Namespaced: served.namespaced, Kind: served.kind, ShortNames: served.shortNames, Verbs: verbs,
		})
		if served.hasStatus {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: served.resource + "/status", Namespaced: served.namespaced, Kind: served.kind, Verbs: metav1.Verbs{"get", "patch", "update"},
			})
		}
	}
	if list.APIResources == nil {
		return notServed(http.MethodGet)
	}
	slices.SortFunc(list.APIResources, func(a, b metav1.APIResource) int { return cmp.Compare(a.Name, b.Name) })
	return writeJSON(writer, http.StatusOK, list)
}

// groups lists the API groups that a cluster serves, the newest version of each preferred.
func (a *apiServer) groups(cluster string) metav1.APIGroupList {
	versions := map[string][]string{}
	for _, served := range a.catalog.all(cluster) {
		if served.apiGroup != "" && !slices.Contains(versions[served.apiGroup], served.version) {
			versions[served.apiGroup] = append(versions[served.apiGroup], served.version)
		}
	}
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
	for name, served := range versions {
		slices.Sort(served)
		slices.Reverse(served)
		group := metav1.APIGroup{TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: name}
		for _, each := range served {
			group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + each, Version: each})
		}
		group.PreferredVersion = group.Versions[0]
		list.Groups = append(list.Groups, group)
	}
	slices.SortFunc(list.Groups, func(a, b metav1.APIGroup) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func (a *apiServer) openIDConfiguration() map[string]any {
	return map[string]any{
		"issuer": "https://kcp.default.svc", "jwks_uri": a.url + "/openid/v1/jwks", "response_types_supported": []string{"id_token"},
		"subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": []string{"ES256"},
	}
}

// sharedSigningKeys are those of every shard without its own: kcp's shards share theirs, or tokens would die with a move.
var sharedSigningKeys = sync.OnceValue(newSigningKeys)

func newSigningKeys() map[string]any {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(fmt.Errorf("make signing key: %w", err)) // the system has no randomness
	}
	point, err := key.PublicKey.Bytes()
	if err != nil {
		panic(fmt.Errorf("encode signing key: %w", err)) // only a curve of another kind can cause it
	}
	id := sha256.Sum256(point)
	encoded := base64.RawURLEncoding.EncodeToString
	half := (len(point) - 1) / 2 // an uncompressed point: 4, then both coordinates
	return map[string]any{"keys": []any{map[string]any{
		"use": "sig", "kty": "EC", "alg": "ES256", "crv": "P-256", "kid": encoded(id[:]),
		"x": encoded(point[1 : 1+half]), "y": encoded(point[1+half:]),
	}}}
}
