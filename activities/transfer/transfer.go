// Package transfer brings entries from the origin's worker to the destination's: the destination pulls
// gRPC streams over mutual TLS, the origin serves its activities.Source to whoever the claim names.
//
// Two checks stand before every answer. The peer's certificate carries PeerName and comes from the common CA,
// and the claim in the origin's etcd names the workflow run of the request's guard. Values are plaintext
// inside both workers and inside TLS between them; without TLS a worker serves and dials loopback alone.
//
// Memory is bounded by the stream itself: the server takes the next batch from its Source only when the one before
// is on its way, and HTTP/2's flow control holds it back while the reader is busy.
package transfer

//go:generate go run github.com/bufbuild/buf/cmd/buf@v1.75.0 generate

import "time"

// PeerName is the DNS name that the certificate of every worker carries, whichever host it runs on.
const PeerName = "kcp-migrate-worker"

const (
	// maxBatchBytes bounds a message of many entries; one entry above it travels alone.
	maxBatchBytes = 1 << 20
	// maxRequestBytes is what a server accepts: the names of maxRefs entries, whose keys in etcd have some 400 bytes at most.
	maxRequestBytes = 1 << 20
	// maxMessageBytes is what a client accepts: etcd's largest values (1.5 MiB unless raised, 10 MiB at its recommended most) and room to spare.
	maxMessageBytes = 16 << 20
	// windowBytes is how much a stream may be ahead of its reader: 80 MB/s at a round trip of 50 ms.
	windowBytes = 4 << 20
	// maxRefs bounds the values that one Get holds in the origin worker's memory.
	maxRefs = 1000

	// maxConnections bounds what peers can open that have shown no certificate yet; each costs some kilobytes. It is far more
	// than workers need, so that strangers who connect and say nothing do not keep them out.
	maxConnections = 2048
	// maxRequests and maxStreams (for each connection) bound what all destination workers together can ask of one origin
	// worker at a time. A move needs a few; a request above the limit waits.
	maxRequests = 128
	maxStreams  = 16

	// stallLimit ends a stream whose reader takes no message for so long.
	stallLimit = 2 * time.Minute
	// maxHeaderBytes is far more than clients of dumps send.
	maxHeaderBytes = 64 << 10
	// handshakeLimit frees the place of a peer that connects and says nothing.
	handshakeLimit = 10 * time.Second
	// drainLimit is how long streams may go on when a server stops; readers resume them elsewhere.
	drainLimit = 5 * time.Second
	// pingInterval is gRPC's lowest. A dead peer is noticed after it and pingLimit, well within the time a tenant may be away.
	pingInterval = 10 * time.Second
	pingLimit    = 5 * time.Second
)
