// Package simshard is a stand-in for one kcp shard: it serves as much of kcp's REST API
// over a real etcd as a mover of logical clusters, and a curious user with kubectl, need.
// It is not kcp. What it shares with kcp is what a careless mover stumbles over, at the pace of
// the real thing; what it does wrong to such a mover, kcp does too.
//
// Which fact about kcp is simulated where (kcp of August 2026, after v0.32.3):
//
//	key layout, protobuf for built-ins, JSON for the rest   layout.go codec.go
//	what a cluster serves: built-ins, system CRDs, what its
//	APIBindings bind, its own CRDs; 404 where the shard
//	lacks the bound CRD                                     resources.go catalog.go
//	resource versions are etcd revisions: deaf watches,
//	ResourceVersionTooLarge after 3 s, 410 below the watch
//	caches' begin or a compaction (every 5 minutes)         storage.go reads.go watch.go compaction.go
//	the fence, and what it lets through                     fence.go logicalclusters.go
//	trap 1: wildcard requests stay cancelled, informers
//	and controllers with them                               fence.go catalog.go meddlers.go workspaces.go
//	trap 2: a cluster's own cancelled context is sticky     fence.go logicalclusters.go
//	trap 3: processes of one shard race for transitions     logicalclusters.go
//	trap 4: the virtual workspace of an APIExport that
//	moved away fails                                        virtualworkspaces.go
//	the shard annotation, corrected and told to the owner   logicalclusters.go peers.go
//	APIBinding conditions, CAs, ServiceAccounts, quotas,
//	garbage, tokens, old bound CRDs                         meddlers.go inventory.go
//	namespaces, APIBindings, CRDs, logical clusters deleted
//	with their content                                      deletion.go
//	workspaces scheduled and deleted, on any shard          workspaces.go
//
// Requests for a cluster without a LogicalCluster object are served where they come straight to the
// shard: the administrator's credentials pass kcp's authorization by, and nothing is fenced. Through a
// front door nobody's do.
//
// What is not simulated, or is simpler:
//
//   - One user, the administrator, by bearer token; no RBAC, admission, validation, defaulting of
//     custom resources, managed fields, server-side apply, API priority or service-account tokens.
//   - JSON is the only answer, whatever was accepted; tables have a name and an age; OpenAPI has no schemas.
//   - All versions of a custom type read alike: nothing is converted but CRDs.
//   - Reads ask etcd; only CRDs, APIBindings and LogicalClusters come from informers. A watch may begin anywhere
//     after the API server's start, while a real watch cache forgets what is old and much.
//   - A new APIBinding is not bound, and a changed APIExport reaches nobody. New workspaces get copies of the bindings that
//     system:shard has, whatever their type says, and are of the shard that spec.location names, or their parent's.
//   - One process of a shard, the first, runs all controllers but the LogicalClusters'. Trap 4
//     fails every request, where kcp caches some answers.
//   - There is no cache server: what kcp replicates through it is asked of the other shards.
package simshard
