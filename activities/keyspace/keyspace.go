// Package keyspace knows how a kcp shard lays out logical clusters in its etcd.
// It is pure: it parses and builds keys and touches no network.
//
// A key has one of three shapes below the shard's storage prefix ("/registry"
// unless kcp runs with another --etcd-prefix); [ns/] is present for namespaced
// objects only:
//
//	<group>/<resource>/<logical cluster>/[ns/]<name>                  built-in resource
//	<group>/<resource>/customresources/<logical cluster>/[ns/]<name>  CRD of the same logical cluster, and kcp's own types
//	<group>/<resource>/<identity>/<logical cluster>/[ns/]<name>       resource bound through an APIBinding
//
// An identity is the 64 hex digits of a SHA-256. A logical cluster's name has at
// most 63 characters, so the third segment is never ambiguous; counting segments,
// as kcp's own parser does, is: a tenant may name a namespace like another
// tenant's logical cluster.
package keyspace

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// DefaultPrefix is kcp's storage prefix unless it runs with another --etcd-prefix.
const DefaultPrefix = "/registry"

const (
	// CustomResources is the third segment of keys of a logical cluster's own CRDs and of kcp's system types.
	CustomResources = "customresources"
	// BoundCRDs is the shard-local logical cluster that holds one CRD per bound schema, named by the schema's UID.
	BoundCRDs = "system:bound-crds"
	// SystemShard is the logical cluster that every shard has of its own.
	SystemShard = "system:shard"
	// Root is the logical cluster at the top of kcp's workspace tree.
	Root = "root"

	identityLength = 64 // hex digits of a SHA-256
)

// ErrNotAnEntry says that a key has none of the three shapes.
var ErrNotAnEntry = errors.New("key is not an entry of a logical cluster")

var logicalClusterName = regexp.MustCompile(`^(system:[^/]+|[a-z0-9]|[a-z0-9][a-z0-9-]{0,61}[a-z0-9])$`)

// IsLogicalClusterName reports whether name has the form of a logical cluster's name,
// as kcp-dev/logicalcluster defines it, system logical clusters included.
func IsLogicalClusterName(name string) bool { return logicalClusterName.MatchString(name) }

// IsSystem reports whether name is a logical cluster that belongs to its shard or to
// kcp as a whole and can never be moved: root and everything below "system:".
func IsSystem(name string) bool { return name == Root || strings.HasPrefix(name, "system:") }

// IsIdentity reports whether segment is the identity hash of an APIExport: 64 lower-case hex digits.
func IsIdentity(segment string) bool {
	if len(segment) != identityLength {
		return false
	}
	return strings.Trim(segment, "0123456789abcdef") == ""
}

// Family is all keys of any one logical cluster under one <group>/<resource>[/<segment>].
type Family struct {
	// Group is the API group as etcd spells it: the core group is "core".
	Group string
	// Resource is the plural resource name.
	Resource string
	// Segment is empty for built-in resources, "customresources", or the 64 hex digits of an identity.
	Segment string
}

// LogicalClusters is the family of the LogicalCluster objects themselves.
var LogicalClusters = Family{Group: "core.kcp.io", Resource: "logicalclusters", Segment: CustomResources}

// CustomResourceDefinitions is the family of the CRDs.
var CustomResourceDefinitions = Family{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}

// Namespaces is the family of the namespaces themselves.
var Namespaces = Family{Group: "core", Resource: "namespaces"}

// APIBindings is the family of the APIBindings.
var APIBindings = Family{Group: "apis.kcp.io", Resource: "apibindings", Segment: CustomResources}

// LogicalClusterName is the name of the one LogicalCluster object in every logical cluster.
const LogicalClusterName = "cluster"

// String gives <group>/<resource>[/<segment>].
func (f Family) String() string {
	if f.Segment == "" {
		return f.Group + "/" + f.Resource
	}
	return f.Group + "/" + f.Resource + "/" + f.Segment
}

// ParseFamily reads what String gives.
func ParseFamily(text string) (Family, error) {
	parts := strings.Split(text, "/")
	if len(parts) != 2 && len(parts) != 3 || parts[0] == "" || parts[1] == "" {
		return Family{}, fmt.Errorf("parse family %q: want <group>/<resource>[/<segment>]", text)
	}
	family := Family{Group: parts[0], Resource: parts[1]}
	if len(parts) == 3 {
		if parts[2] != CustomResources && !IsIdentity(parts[2]) {
			return Family{}, fmt.Errorf("parse family %q: segment is neither %q nor an identity", text, CustomResources)
		}
		family.Segment = parts[2]
	}
	return family, nil
}

// MarshalText spells the family as String does.
func (f Family) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (f *Family) UnmarshalText(text []byte) error {
	family, err := ParseFamily(string(text))
	if err != nil {
		return err
	}
	*f = family
	return nil
}

// Entry is the place of one key: whose it is, in which family, and its [ns/]name.
type Entry struct {
	Family         Family
	LogicalCluster string
	Suffix         string
}

// Layout is the key layout of one shard.
type Layout struct {
	prefix string
}

// NewLayout gives the layout below a storage prefix; slashes at its ends do not matter, "" means DefaultPrefix.
func NewLayout(prefix string) Layout {
	prefix = strings.Trim(prefix, "/")
	if prefix == "" {
		return Layout{prefix: DefaultPrefix + "/"}
	}
	return Layout{prefix: "/" + prefix + "/"}
}

// Prefix is what every key of the shard begins with, slash included.
func (l Layout) Prefix() string { return l.prefix }

// ResourcePrefix is what every key of one resource begins with, whosever it is.
func (l Layout) ResourcePrefix(group, resource string) string {
	return l.prefix + group + "/" + resource + "/"
}

// FamilyPrefix is what every key of a family in one logical cluster begins with.
// The trailing slash keeps out logical clusters whose names begin with this one's.
func (l Layout) FamilyPrefix(family Family, logicalCluster string) string {
	return l.prefix + family.String() + "/" + logicalCluster + "/"
}

// Key is the etcd key of an entry.
func (l Layout) Key(entry Entry) string {
	return l.FamilyPrefix(entry.Family, entry.LogicalCluster) + entry.Suffix
}

// LogicalClusterKey is the key of the LogicalCluster object.
func (l Layout) LogicalClusterKey(logicalCluster string) string {
	return l.FamilyPrefix(LogicalClusters, logicalCluster) + LogicalClusterName
}

// BoundCRDKey is the key of the CRD that serves a bound schema, named by the schema's UID.
func (l Layout) BoundCRDKey(schemaUID string) string {
	return l.FamilyPrefix(CustomResourceDefinitions, BoundCRDs) + schemaUID
}

// Parse tells whose entry a key is. Keys of no logical cluster give ErrNotAnEntry.
func (l Layout) Parse(key string) (Entry, error) {
	rest, found := strings.CutPrefix(key, l.prefix)
	if !found {
		return Entry{}, fmt.Errorf("%w: %q is not below %q", ErrNotAnEntry, key, l.prefix)
	}
	parts := strings.SplitN(rest, "/", 4)
	if len(parts) < 4 || parts[0] == "" || parts[1] == "" {
		return Entry{}, fmt.Errorf("%w: %q", ErrNotAnEntry, key)
	}
	entry := Entry{Family: Family{Group: parts[0], Resource: parts[1]}, LogicalCluster: parts[2], Suffix: parts[3]}
	if parts[2] == CustomResources || IsIdentity(parts[2]) {
		logicalCluster, suffix, found := strings.Cut(parts[3], "/")
		if !found {
			return Entry{}, fmt.Errorf("%w: %q", ErrNotAnEntry, key)
		}
		entry.Family.Segment, entry.LogicalCluster, entry.Suffix = parts[2], logicalCluster, suffix
	}
	if !IsLogicalClusterName(entry.LogicalCluster) || entry.Suffix == "" {
		return Entry{}, fmt.Errorf("%w: %q", ErrNotAnEntry, key)
	}
	return entry, nil
}
