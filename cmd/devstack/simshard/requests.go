package simshard

import (
	"net/http"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// target is what a request's URL points at.
type target struct {
	// cluster is a logical cluster's name, "*", or empty when the URL names none.
	cluster string
	// path is the URL's without the cluster.
	path string
	// version is empty unless the path is that of a resource.
	group, version, resource string
	// identity is what follows the resource in a wildcard request: <resource>:<identity>.
	identity                     string
	namespace, name, subresource string
}

// clusterPath is kcp's form of a cluster in a URL: a name, or a path of names.
var clusterPath = regexp.MustCompile(`^([a-z0-9][a-z0-9-]*[a-z0-9]|[a-z0-9])(:([a-z0-9][a-z0-9-]*[a-z0-9]|[a-z0-9]))*$`)

// parseTarget reads /clusters/<cluster>/api/v1/… and /clusters/<cluster>/apis/<group>/<version>/….
func parseTarget(request *http.Request) (target, error) {
	parsed := target{path: request.URL.Path}
	if rest, has := strings.CutPrefix(parsed.path, "/clusters/"); has {
		cluster, path, _ := strings.Cut(rest, "/")
		if cluster != wildcard && !clusterPath.MatchString(cluster) {
			return target{}, apierrors.NewBadRequest("invalid cluster: \"" + cluster + "\" does not match the regex")
		}
		parsed.cluster, parsed.path = cluster, "/"+path
	}
	parts := strings.Split(strings.Trim(parsed.path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parsed.version = parts[1]
		parsed.parseResource(parts[2:])
	case parts[0] == "apis" && len(parts) > 3:
		parsed.group, parsed.version = parts[1], parts[2]
		parsed.parseResource(parts[3:])
	}
	return parsed, nil
}

// parseResource reads [namespaces/<namespace>/]<resource>[/<name>[/<subresource>]]; a
// namespace's own subresources are the two that cannot be resources in it.
func (t *target) parseResource(parts []string) {
	ownSubresource := len(parts) == 3 && (parts[2] == "status" || parts[2] == "finalize")
	if parts[0] == "namespaces" && len(parts) > 2 && !ownSubresource {
		t.namespace = parts[1]
		parts = parts[2:]
	}
	t.resource, t.identity, _ = strings.Cut(parts[0], ":")
	if len(parts) > 1 {
		t.name = parts[1]
	}
	if len(parts) > 2 {
		t.subresource = parts[2]
	}
}

func (t target) isResource() bool { return t.resource != "" }

func (t target) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: t.group, Resource: t.resource}
}
