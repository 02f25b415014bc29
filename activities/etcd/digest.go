package etcd

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"

	"golang.org/x/sync/errgroup"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

// Two of etcd's cores are kept busy by about as many streams; more only fill memory.
const familiesInFlight = 4

// Digest discovers the families anew and sums each up at a pinned revision.
// Families that hold nothing but leased entries are not in it: those come and go by themselves.
func (s *Store) Digest(ctx context.Context, logicalCluster string, revision int64) (activities.Digest, error) {
	families, err := s.discover(ctx, logicalCluster, revision)
	if err != nil {
		return activities.Digest{}, err
	}
	sums := make([]familySum, len(families))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(familiesInFlight)
	for i, family := range families {
		group.Go(func() (err error) {
			sums[i], err = s.sum(groupCtx, logicalCluster, family, revision)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return activities.Digest{}, err
	}
	digest := activities.Digest{Revision: revision}
	for _, sum := range sums {
		digest.Leased = append(digest.Leased, sum.leased...)
		if sum.Entries > 0 {
			digest.Families = append(digest.Families, sum.FamilyDigest)
		}
	}
	return digest, nil
}

type familySum struct {
	activities.FamilyDigest
	leased []activities.Listed
}

func (s *Store) sum(
	ctx context.Context, logicalCluster string, family keyspace.Family, revision int64,
) (familySum, error) {
	request := activities.ReadRequest{LogicalCluster: logicalCluster, Revision: revision}
	sum := familySum{FamilyDigest: activities.FamilyDigest{Family: family}}
	hashed := sha256.New()
	keys, _ := s.resume(request, family)
	for entries, err := range s.readFamily(ctx, request, family, keys, s.newRemaining()) {
		if err != nil {
			return familySum{}, err
		}
		for _, entry := range entries {
			if entry.TTL > 0 {
				sum.leased = append(sum.leased, list(entry))
				continue
			}
			sum.Entries++
			sum.Bytes += int64(len(entry.Value))
			hashPrefixed(hashed, []byte(entry.Suffix))
			hashPrefixed(hashed, entry.Value)
		}
	}
	sum.SHA256 = hex.EncodeToString(hashed.Sum(nil))
	return sum, nil
}

// hashPrefixed writes the length first, so that no two lists of suffixes and values hash alike.
func hashPrefixed(sum hash.Hash, content []byte) {
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(len(content)))
	sum.Write(length[:]) // a hash never returns an error
	sum.Write(content)
}
