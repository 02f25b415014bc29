package kcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

// acceptKeySet is asked for by name: kcp answers 406 to a plain application/json.
const acceptKeySet = "application/jwk-set+json, application/json"

// systemCRDs is the logical cluster of every shard that holds the CRDs of kcp's own types.
const systemCRDs = "system:system-crds"

// releasedVersion finds kcp's version in a release's gitVersion, "v1.37.0+kcp-v0.32.3".
var releasedVersion = regexp.MustCompile(`\+kcp-(v\d+\.\d+\.\d+\S*)$`)

// Version asks one API server what it is, and the shard's LogicalCluster CRD what the fence needs.
func (s *Shard) Version(ctx context.Context) (activities.Version, error) {
	var info version.Info
	if err := s.servers.get(ctx, query{path: "/version"}, &info); err != nil {
		return activities.Version{}, err
	}
	var crd apiextensionsv1.CustomResourceDefinition
	where := query{path: objectPath(systemCRDs, crds, logicalClusters.GroupResource().String())}
	if err := s.servers.get(ctx, where, &crd); err != nil {
		return activities.Version{}, err
	}
	return activities.Version{Kcp: kcpVersion(info.GitVersion), FencesByAnnotation: knowsInactive(crd)}, nil
}

// kcpVersion is empty for a build that does not tell, such as one from a checkout.
func kcpVersion(gitVersion string) string {
	match := releasedVersion.FindStringSubmatch(gitVersion)
	if match == nil {
		return ""
	}
	return match[1]
}

// knowsInactive reports whether every served version has the phase Inactive: kcp 0.32 and later.
func knowsInactive(crd apiextensionsv1.CustomResourceDefinition) bool {
	served := 0
	for _, version := range crd.Spec.Versions {
		if !version.Served {
			continue
		}
		served++
		if !slices.Contains(phases(version), string(corev1alpha1.LogicalClusterPhaseInactive)) {
			return false
		}
	}
	return served > 0
}

func phases(version apiextensionsv1.CustomResourceDefinitionVersion) []string {
	if version.Schema == nil || version.Schema.OpenAPIV3Schema == nil {
		return nil
	}
	var names []string
	for _, value := range version.Schema.OpenAPIV3Schema.Properties["status"].Properties["phase"].Enum {
		var name string
		if json.Unmarshal(value.Raw, &name) == nil {
			names = append(names, name)
		}
	}
	return names
}

// Identity asks one API server for what every shard has of its own. A list without a resourceVersion is at the revision that
// etcd's quorum is at, also where it is answered from a cache.
func (s *Shard) Identity(ctx context.Context) (activities.Identity, error) {
	var list metav1.PartialObjectMetadataList
	where := query{path: listPath(keyspace.SystemShard, logicalClusters), accept: metadataListOnly}
	if err := s.servers.get(ctx, where, &list); err != nil {
		return activities.Identity{}, err
	}
	revision, err := strconv.ParseInt(list.ResourceVersion, 10, 64)
	if err != nil {
		return activities.Identity{}, fmt.Errorf("list LogicalClusters of %s: revision %q: %w", keyspace.SystemShard, list.ResourceVersion, err)
	}
	identity := activities.Identity{Revision: revision}
	for _, found := range list.Items {
		if found.Name == corev1alpha1.LogicalClusterName {
			identity.UID = string(found.UID)
		}
	}
	return identity, nil
}

// SigningKeys hashes the issuer and the sorted public keys that the shard publishes for its ServiceAccount tokens.
func (s *Shard) SigningKeys(ctx context.Context) (string, error) {
	var issuer struct {
		Issuer string `json:"issuer"`
	}
	if err := s.servers.get(ctx, query{path: "/.well-known/openid-configuration"}, &issuer); err != nil {
		return "", err
	}
	var published struct {
		Keys []map[string]any `json:"keys"`
	}
	if err := s.servers.get(ctx, query{path: "/openid/v1/jwks", accept: acceptKeySet}, &published); err != nil {
		return "", err
	}
	if len(published.Keys) == 0 {
		return "", fmt.Errorf("read /openid/v1/jwks of shard %s: it publishes no keys", s.name)
	}
	return fingerprint(issuer.Issuer, published.Keys)
}

func fingerprint(issuer string, keys []map[string]any) (string, error) {
	lines := make([]string, 0, len(keys))
	for _, key := range keys {
		line, err := json.Marshal(key) // sorts the fields
		if err != nil {
			return "", fmt.Errorf("encode ServiceAccount key: %w", err)
		}
		lines = append(lines, string(line))
	}
	slices.Sort(lines)
	encoded, err := json.Marshal(append([]string{issuer}, lines...))
	if err != nil {
		return "", fmt.Errorf("encode ServiceAccount keys: %w", err)
	}
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:]), nil
}
