// Package kcp speaks kcp's API: to every API server of one shard, and to every front-proxy.
// It reads and watches; what a move writes goes through etcd.
//
// It asks for no tenant's values: objects of tenants are listed as metadata, a page at a time.
package kcp
