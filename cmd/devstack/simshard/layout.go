package simshard

import (
	"strings"
)

const (
	// customResources is the third segment of keys of a cluster's own CRDs and of kcp's system types.
	customResources = "customresources"
	// systemCRDs holds the CRDs of kcp's own types, boundCRDs one CRD per bound schema; both are shard-local.
	systemCRDs = "system:system-crds"
	boundCRDs  = "system:bound-crds"
	// systemShard is the logical cluster that every shard has of its own.
	systemShard = "system:shard"
	// identityLength is that of an APIExport's identity: the hex digits of a SHA-256.
	identityLength = 64

	logicalClusterName = "cluster"
)

// family is all objects of one kind that are stored alike.
type family struct {
	// group is the API group as etcd spells it: the core group is "core".
	group, resource string
	// segment is empty for built-in resources, "customresources" or an identity otherwise.
	segment string
}

var (
	logicalClusterFamily = family{group: "core.kcp.io", resource: "logicalclusters", segment: customResources}
	bindingFamily        = family{group: "apis.kcp.io", resource: "apibindings", segment: customResources}
	exportFamily         = family{group: "apis.kcp.io", resource: "apiexports", segment: customResources}
	crdFamily            = family{group: "apiextensions.k8s.io", resource: "customresourcedefinitions"}
	namespaceFamily      = family{group: "core", resource: "namespaces"}
	configMapFamily      = family{group: "core", resource: "configmaps"}
	secretFamily         = family{group: "core", resource: "secrets"}
	accountFamily        = family{group: "core", resource: "serviceaccounts"}
	quotaFamily          = family{group: "core", resource: "resourcequotas"}
)

func (f family) builtIn() bool { return f.segment == "" }

// place is where one object stands.
type place struct {
	family
	cluster, namespace, name string
}

func logicalClusterPlace(cluster string) place {
	return place{family: logicalClusterFamily, cluster: cluster, name: logicalClusterName}
}

// layout is how a shard's keys are built; it holds the storage prefix, slash included.
type layout string

func newLayout(prefix string) layout {
	prefix = strings.Trim(prefix, "/")
	if prefix == "" {
		prefix = "registry"
	}
	return layout("/" + prefix + "/")
}

// familyPrefix is what the keys of a family begin with, whosever they are.
func (l layout) familyPrefix(f family) string {
	prefix := string(l) + f.group + "/" + f.resource + "/"
	if f.segment != "" {
		prefix += f.segment + "/"
	}
	return prefix
}

// rangePrefix is what the keys of a cluster, or of a namespace in it, begin with; cluster "*" is all of them.
func (l layout) rangePrefix(f family, cluster, namespace string) string {
	prefix := l.familyPrefix(f)
	if cluster != wildcard {
		prefix += cluster + "/"
	}
	if namespace != "" {
		prefix += namespace + "/"
	}
	return prefix
}

func (l layout) key(p place) string {
	return l.rangePrefix(p.family, p.cluster, p.namespace) + p.name
}

// parse tells what a key is the place of. The third segment is never ambiguous: a
// cluster's name is shorter than an identity, and "customresources" is no cluster.
func (l layout) parse(key string) (place, bool) {
	rest, below := strings.CutPrefix(key, string(l))
	parts := strings.Split(rest, "/")
	if !below || len(parts) < 4 {
		return place{}, false
	}
	p := place{family: family{group: parts[0], resource: parts[1]}}
	parts = parts[2:]
	if parts[0] == customResources || len(parts[0]) == identityLength {
		p.segment = parts[0]
		parts = parts[1:]
	}
	switch len(parts) {
	case 2:
		p.cluster, p.name = parts[0], parts[1]
	case 3:
		p.cluster, p.namespace, p.name = parts[0], parts[1], parts[2]
	default:
		return place{}, false
	}
	return p, true
}
