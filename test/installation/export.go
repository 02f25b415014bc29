package installation

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

const (
	// exportPage is how many keys one Get of an export asks for.
	exportPage  = 500
	dialTimeout = 10 * time.Second
)

// Exported is one key of an export.
type Exported struct {
	// SHA256 is of the value as it is stored.
	SHA256 [sha256.Size]byte
	// Leased is whether the key goes by itself.
	Leased bool
}

// Export is every key of one etcd, kcp's or not, at one revision.
type Export struct {
	Revision int64
	Keys     map[string]Exported

	layout keyspace.Layout
}

// Etcd dials a shard's etcd.
func (s Shard) Etcd(ctx context.Context) (*clientv3.Client, error) {
	config := clientv3.Config{Context: ctx, Endpoints: s.EtcdEndpoints, DialTimeout: dialTimeout}
	if s.EtcdCAFile != "" {
		tls, err := transport.TLSInfo{TrustedCAFile: s.EtcdCAFile, CertFile: s.EtcdCertFile, KeyFile: s.EtcdKeyFile}.ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("load etcd certificates of shard %s: %w", s.Name, err)
		}
		config.TLS = tls
	}
	return clientv3.New(config)
}

// Export reads a shard's whole etcd at one revision.
func (s Shard) Export(ctx context.Context) (Export, error) {
	etcd, err := s.Etcd(ctx)
	if err != nil {
		return Export{}, err
	}
	defer etcd.Close()
	export := Export{Keys: map[string]Exported{}, layout: keyspace.NewLayout(s.EtcdPrefix)}
	for from, more := "\x00", true; more; {
		page, err := etcd.Get(ctx, from, clientv3.WithFromKey(), clientv3.WithLimit(exportPage), clientv3.WithRev(export.Revision))
		if err != nil {
			return Export{}, fmt.Errorf("export etcd of shard %s: %w", s.Name, err)
		}
		if export.Revision == 0 {
			export.Revision = page.Header.Revision
		}
		for _, entry := range page.Kvs {
			export.Keys[string(entry.Key)] = Exported{SHA256: sha256.Sum256(entry.Value), Leased: entry.Lease != 0}
			from = string(entry.Key) + "\x00"
		}
		more = page.More
	}
	return export, nil
}

// Tenant is the part of an export that belongs to a logical cluster, by key.
func (e Export) Tenant(logicalCluster string) map[string]Exported {
	return e.keep(func(owner string) bool { return owner == logicalCluster })
}

// Neighbours is what belongs to every tenant but the one given: without root and the logical clusters
// of the shards' own (system:*), where live controllers write, and without what has a lease.
func (e Export) Neighbours(logicalCluster string) map[string]Exported {
	neighbours := e.keep(func(owner string) bool {
		return owner != "" && owner != logicalCluster && !keyspace.IsSystem(owner)
	})
	maps.DeleteFunc(neighbours, func(_ string, exported Exported) bool { return exported.Leased })
	return neighbours
}

// Claims are the keys that moves keep in the etcd, those that belong to no move aside.
func (e Export) Claims() []string {
	const prefix = "/kcp-migrate/migrations/"
	var claims []string
	for _, key := range slices.Sorted(maps.Keys(e.Keys)) {
		if len(key) > len(prefix) && key[:len(prefix)] == prefix {
			claims = append(claims, key)
		}
	}
	return claims
}

func (e Export) keep(wanted func(owner string) bool) map[string]Exported {
	kept := map[string]Exported{}
	for key, exported := range e.Keys {
		owner := ""
		if entry, err := e.layout.Parse(key); err == nil {
			owner = entry.LogicalCluster
		}
		if wanted(owner) {
			kept[key] = exported
		}
	}
	return kept
}

// Difference names the keys that are missing, added or changed between two exports' parts, in key order.
func Difference(before, after map[string]Exported) []string {
	var difference []string
	for key, old := range before {
		switch now, found := after[key]; {
		case !found:
			difference = append(difference, "missing "+key)
		case now.SHA256 != old.SHA256:
			difference = append(difference, "changed "+key)
		}
	}
	for key := range after {
		if _, found := before[key]; !found {
			difference = append(difference, "added "+key)
		}
	}
	slices.Sort(difference)
	return difference
}
