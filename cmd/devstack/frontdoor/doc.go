// Package frontdoor is a stand-in for kcp's front-proxy: it routes requests for a
// logical cluster, by name or by path, to the shard it lives on.
//
// What it shares with the real one (kcp: pkg/index, pkg/proxy):
//
//   - A logical cluster lives where its LogicalCluster object was last written; when
//     the shard that had the last word deletes it, the cluster is unknown until
//     another shard's next event, although another may hold the object all along.
//   - A path is walked through the Workspaces of the shard each parent lives on.
//   - What is unknown gets 403, "workspace access not permitted".
//
// What differs: it learns of the objects from the shards' etcds instead of their APIs, so
// a shard that is blind to its own objects does not blind it; it knows one user, the administrator.
package frontdoor
