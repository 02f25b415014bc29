// Package activities holds the hands of a move: one side effect each, repeatable, heartbeating, with typed errors.
//
// Fleet's activities run on any worker and speak to kcp as a whole; Shard's run on the workers beside one shard.
// What they need of etcd, of kcp and of each other's workers are the small interfaces in ports.go; the
// subpackages implement them, and only package worker joins the two.
package activities

// Fleet is the activities that need no particular shard.
type Fleet struct {
	Directory Directory
	Runs      Runs
}

// Shard is the activities of the workers beside one shard.
type Shard struct {
	// Name is the Shard object's.
	Name  string
	Store Store
	API   ShardAPI
	// Dialer reaches other shards' workers.
	Dialer Dialer
	// Cache is nil where the worker was given no access to the cache server.
	Cache Cache
	// Protocols are what this worker serves entries in, and asks for them.
	Protocols Protocols
	// TransferAddress is where this shard's workers serve entries.
	TransferAddress string
}
