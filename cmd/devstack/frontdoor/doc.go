// Package frontdoor is a stand-in for kcp's front-proxy: it routes requests for a
// logical cluster, by name or by path, to the shard it lives on.
package frontdoor
