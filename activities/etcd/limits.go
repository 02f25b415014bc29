package etcd

import "sync/atomic"

const (
	// etcd's --max-txn-ops by default.
	defaultMaxTxnOps = 128
	// Two thirds of etcd's default --max-request-bytes (1.5 MiB): beyond it bigger requests are no faster
	// and hold up the shard's other writers.
	defaultMaxTxnBytes = 1 << 20
)

// limits are how much the server takes in one Txn. It does not tell; it is learned from refusals.
type limits struct {
	ops   atomic.Int64
	bytes atomic.Int64
}

func newLimits(maxTxnOps int) *limits {
	if maxTxnOps <= 0 {
		maxTxnOps = defaultMaxTxnOps
	}
	l := &limits{}
	l.ops.Store(int64(maxTxnOps))
	l.bytes.Store(defaultMaxTxnBytes)
	return l
}

// maxOps is how many operations, or comparisons, one Txn may have: etcd counts the larger of the two.
func (l *limits) maxOps() int { return int(l.ops.Load()) }

func (l *limits) maxBytes() int { return int(l.bytes.Load()) }

// learn halves the limit that a Txn of this size ran into, and reports whether a smaller one is worth a try.
func (l *limits) learn(refusal error, ops, bytes int) bool {
	switch {
	case ops <= 1:
		return false
	case isTooManyOps(refusal):
		lower(&l.ops, int64(ops/2))
		return true
	case isTooLarge(refusal):
		lower(&l.bytes, int64(bytes/2))
		return true
	default:
		return false
	}
}

// lower never raises what a concurrent refusal has lowered already.
func lower(limit *atomic.Int64, to int64) {
	for present := limit.Load(); to < present; present = limit.Load() {
		if limit.CompareAndSwap(present, to) {
			return
		}
	}
}
