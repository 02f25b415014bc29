package main

import (
	"maps"
	"strings"

	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
	"github.com/kcp-migrate/kcp-migrate/test/installation"
)

// exports are the whole etcds of both shards at about one time.
type exports struct{ origin, destination installation.Export }

// comparison is what the exports before and after a move say.
type comparison struct {
	// compared counts the tenant's keys that had to arrive unchanged.
	compared int
	// changed names those of them that differ.
	changed []string
	// originLeft names what the origin still has of the tenant.
	originLeft []string
	// claims names what the move left of its own.
	claims []string
	// neighbours counts other tenants' keys on both shards, touched names those that differ.
	neighbours int
	touched    []string
}

func compare(logicalCluster string, before, after exports) comparison {
	unchanging := before.origin.Tenant(logicalCluster)
	arrived := after.destination.Tenant(logicalCluster)
	maps.DeleteFunc(unchanging, func(key string, _ installation.Exported) bool { return mayChange(key) })
	maps.DeleteFunc(arrived, func(key string, _ installation.Exported) bool { return mayChange(key) })
	// An entry with a lease may have run out meanwhile.
	maps.DeleteFunc(unchanging, func(key string, exported installation.Exported) bool {
		_, found := arrived[key]
		return exported.Leased && !found
	})
	result := comparison{
		compared: len(unchanging),
		changed:  installation.Difference(unchanging, arrived),
		claims:   append(after.origin.Claims(), after.destination.Claims()...),
	}
	for key := range after.origin.Tenant(logicalCluster) {
		result.originLeft = append(result.originLeft, key)
	}
	for _, pair := range [][2]installation.Export{{before.origin, after.origin}, {before.destination, after.destination}} {
		old := pair[0].Neighbours(logicalCluster)
		result.neighbours += len(old)
		result.touched = append(result.touched, installation.Difference(old, pair[1].Neighbours(logicalCluster))...)
	}
	return result
}

// mayChange is whether a key of the tenant rightly differs after a move: its LogicalCluster, which says where
// it lives; the certificate of the shard's own CA in every namespace; what the demo's clients write; and the
// quota, which counts what they write.
func mayChange(key string) bool {
	return strings.Contains(key, "/"+keyspace.LogicalClusters.String()+"/") ||
		strings.HasSuffix(key, "/kube-root-ca.crt") || strings.Contains(key, "/core/resourcequotas/") ||
		strings.Contains(key, "/default/written-") || strings.Contains(key, "/default/seen-on-")
}
