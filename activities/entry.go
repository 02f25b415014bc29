package activities

import (
	"iter"
	"strings"
	"time"

	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

// Ref names one entry of a logical cluster, the same on every shard whatever its storage prefix.
type Ref struct {
	Family keyspace.Family `json:"family"`
	// Suffix is [ns/]name.
	Suffix string `json:"suffix"`
}

// String gives <family> <suffix>.
func (r Ref) String() string { return r.Family.String() + " " + r.Suffix }

// Names lists entries for a person.
func Names(refs []Ref) string {
	names := make([]string, len(refs))
	for i, ref := range refs {
		names[i] = ref.String()
	}
	return strings.Join(names, ", ")
}

// Entry is one key of a logical cluster with its plaintext value.
type Entry struct {
	Ref
	Value []byte
	// ModRevision and CreateRevision are those of the shard the entry was read from.
	ModRevision    int64
	CreateRevision int64
	// TTL is what remains of the entry's etcd lease; 0 when it has none.
	TTL time.Duration
}

// Batches is a stream of entries in key order, some at a time; it ends after the first error.
type Batches = iter.Seq2[[]Entry, error]

// Listed is an entry without its value: what a key-level diff compares.
type Listed struct {
	Ref
	// SHA256 is of the plaintext value.
	SHA256      [32]byte
	Bytes       int64
	ModRevision int64
	TTL         time.Duration
}

// ReadRequest says which entries to stream. The LogicalCluster object is never among them: it has methods of its own.
type ReadRequest struct {
	LogicalCluster string
	// Revision pins the read; it must be given.
	Revision int64
	// After resumes behind an entry that an earlier stream delivered.
	After *Ref
}

// FamilyDigest sums up one family of a logical cluster. Entries that have a lease are not in it: they come and go by themselves.
type FamilyDigest struct {
	Family  keyspace.Family `json:"family"`
	Entries int64           `json:"entries"`
	// Bytes counts plaintext values.
	Bytes int64 `json:"bytes"`
	// SHA256 is hex, over length-prefixed suffix and plaintext value in key order.
	SHA256 string `json:"sha256"`
}

// Digest sums up a logical cluster at one revision of one shard, the LogicalCluster object left out.
type Digest struct {
	Revision int64          `json:"revision"`
	Families []FamilyDigest `json:"families"`
	// Leased are the entries with a lease, in key order. They never travel through Temporal.
	Leased []Listed `json:"-"`
}

// Totals adds up entries and value bytes, leased entries included.
func (d Digest) Totals() (entries, bytes int64) {
	for _, family := range d.Families {
		entries += family.Entries
		bytes += family.Bytes
	}
	for _, leased := range d.Leased {
		entries++
		bytes += leased.Bytes
	}
	return entries, bytes
}

// Names are the families.
func (d Digest) Names() []keyspace.Family {
	names := make([]keyspace.Family, len(d.Families))
	for i, family := range d.Families {
		names[i] = family.Family
	}
	return names
}

// Written tells how far a write has come: everything up to and including Last is in etcd.
type Written struct {
	Last    Ref   `json:"last"`
	Entries int64 `json:"entries"`
	Bytes   int64 `json:"bytes"`
}

// Straggler is a write that landed at the origin after its entries were verified.
type Straggler struct {
	Ref     Ref  `json:"ref"`
	Deleted bool `json:"deleted,omitempty"`
	// OriginRevision is the entry's ModRevision at the origin, 0 when it was deleted.
	OriginRevision int64 `json:"originRevision,omitempty"`
	// Carried says that the destination has it now. Otherwise a person decides.
	Carried bool `json:"carried"`
	// Discarded says that it was deleted at the origin and not carried, see CarryInput.DroppedAt.
	Discarded bool `json:"discarded,omitempty"`
	// DestinationRevision is of the write that carried it, 0 before. A later write of the same entry may replace that one.
	DestinationRevision int64 `json:"destinationRevision,omitempty"`
	// Reason says why it was not carried.
	Reason string `json:"reason,omitempty"`
}
