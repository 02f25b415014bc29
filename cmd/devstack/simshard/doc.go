// Package simshard is a stand-in for one kcp shard: it serves as much of kcp's REST API
// over a real etcd as a mover of logical clusters, and a curious user, need.
package simshard
