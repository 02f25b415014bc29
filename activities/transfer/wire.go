package transfer

import (
	"fmt"
	"iter"
	"time"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
	"github.com/kcp-migrate/kcp-migrate/activities/transfer/transferpb"
)

// itemOverhead is a generous count of the bytes that an item takes on the wire beside its strings.
const itemOverhead = 96

// chunks cuts items into runs that fit a message; an item that does not goes alone.
func chunks[T any](items []T, size func(T) int) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		start, bytes := 0, 0
		for i, item := range items {
			itemBytes := size(item) + itemOverhead
			if i > start && bytes+itemBytes > maxBatchBytes {
				if !yield(items[start:i]) {
					return
				}
				start, bytes = i, 0
			}
			bytes += itemBytes
		}
		if start < len(items) {
			yield(items[start:])
		}
	}
}

func refBytes(ref activities.Ref) int {
	return len(ref.Family.Group) + len(ref.Family.Resource) + len(ref.Family.Segment) + len(ref.Suffix)
}

func entryBytes(entry activities.Entry) int { return refBytes(entry.Ref) + len(entry.Value) }

func listedBytes(listed activities.Listed) int { return refBytes(listed.Ref) + len(listed.SHA256) }

// encodeAll and decodeAll convert slices item by item.
func encodeAll[From, To any](items []From, encode func(From) To) []To {
	encoded := make([]To, len(items))
	for i, item := range items {
		encoded[i] = encode(item)
	}
	return encoded
}

func decodeAll[From, To any](items []From, decode func(From) (To, error)) ([]To, error) {
	decoded := make([]To, len(items))
	for i, item := range items {
		var err error
		if decoded[i], err = decode(item); err != nil {
			return nil, err
		}
	}
	return decoded, nil
}

func encodeGuard(guard activities.Guard) *transferpb.Guard {
	return &transferpb.Guard{LogicalCluster: guard.LogicalCluster, Token: string(guard.Token)}
}

func decodeGuard(guard *transferpb.Guard) activities.Guard {
	return activities.Guard{LogicalCluster: guard.GetLogicalCluster(), Token: activities.Token(guard.GetToken())}
}

func encodeRef(ref activities.Ref) *transferpb.Ref {
	return &transferpb.Ref{Family: ref.Family.String(), Suffix: []byte(ref.Suffix)}
}

func decodeRef(ref *transferpb.Ref) (activities.Ref, error) {
	family, err := keyspace.ParseFamily(ref.GetFamily())
	if err != nil {
		return activities.Ref{}, err
	}
	return activities.Ref{Family: family, Suffix: string(ref.GetSuffix())}, nil
}

func encodeEntry(entry activities.Entry) *transferpb.Entry {
	return &transferpb.Entry{
		Ref:            encodeRef(entry.Ref),
		Value:          entry.Value,
		ModRevision:    entry.ModRevision,
		CreateRevision: entry.CreateRevision,
		TtlNanoseconds: int64(entry.TTL),
	}
}

func decodeEntry(entry *transferpb.Entry) (activities.Entry, error) {
	ref, err := decodeRef(entry.GetRef())
	if err != nil {
		return activities.Entry{}, err
	}
	return activities.Entry{
		Ref:            ref,
		Value:          entry.GetValue(),
		ModRevision:    entry.GetModRevision(),
		CreateRevision: entry.GetCreateRevision(),
		TTL:            time.Duration(entry.GetTtlNanoseconds()),
	}, nil
}

func encodeListed(listed activities.Listed) *transferpb.Listed {
	return &transferpb.Listed{
		Ref:            encodeRef(listed.Ref),
		Sha256:         listed.SHA256[:],
		Bytes:          listed.Bytes,
		ModRevision:    listed.ModRevision,
		TtlNanoseconds: int64(listed.TTL),
	}
}

func decodeListed(listed *transferpb.Listed) (activities.Listed, error) {
	ref, err := decodeRef(listed.GetRef())
	if err != nil {
		return activities.Listed{}, err
	}
	decoded := activities.Listed{
		Ref:         ref,
		Bytes:       listed.GetBytes(),
		ModRevision: listed.GetModRevision(),
		TTL:         time.Duration(listed.GetTtlNanoseconds()),
	}
	if len(listed.GetSha256()) != len(decoded.SHA256) {
		return activities.Listed{}, fmt.Errorf("decode %s: checksum has %d bytes", ref, len(listed.GetSha256()))
	}
	copy(decoded.SHA256[:], listed.GetSha256())
	return decoded, nil
}

func encodeFamilyDigest(digest activities.FamilyDigest) *transferpb.FamilyDigest {
	return &transferpb.FamilyDigest{
		Family:  digest.Family.String(),
		Entries: digest.Entries,
		Bytes:   digest.Bytes,
		Sha256:  digest.SHA256,
	}
}

func decodeFamilyDigest(digest *transferpb.FamilyDigest) (activities.FamilyDigest, error) {
	family, err := keyspace.ParseFamily(digest.GetFamily())
	if err != nil {
		return activities.FamilyDigest{}, err
	}
	return activities.FamilyDigest{
		Family:  family,
		Entries: digest.GetEntries(),
		Bytes:   digest.GetBytes(),
		SHA256:  digest.GetSha256(),
	}, nil
}

func decodeEntries(response *transferpb.Entries) ([]activities.Entry, error) {
	return decodeAll(response.GetEntries(), decodeEntry)
}

func decodeList(response *transferpb.ListResponse) ([]activities.Listed, error) {
	return decodeAll(response.GetEntries(), decodeListed)
}

// decodeDigest gives the part of a digest that one message carries.
func decodeDigest(response *transferpb.DigestResponse) (activities.Digest, error) {
	families, err := decodeAll(response.GetFamilies(), decodeFamilyDigest)
	if err != nil {
		return activities.Digest{}, err
	}
	leased, err := decodeAll(response.GetLeased(), decodeListed)
	if err != nil {
		return activities.Digest{}, err
	}
	return activities.Digest{Revision: response.GetRevision(), Families: families, Leased: leased}, nil
}

// boundCRD is one CRD of system:bound-crds.
type boundCRD struct {
	schemaUID string
	value     []byte
}

func decodeBoundCRD(response *transferpb.BoundCRDsResponse) (boundCRD, error) {
	return boundCRD{schemaUID: response.GetSchemaUid(), value: response.GetValue()}, nil
}
