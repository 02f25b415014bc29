package activities

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
	"github.com/kcp-migrate/kcp-migrate/activities/objects"
)

const (
	// leaseTolerance is how near its end a leased entry may be missing on one side, or differ.
	leaseTolerance = 30 * time.Second
	// differencesListed bounds how many differing entries travel through Temporal.
	differencesListed = 20
	// A repair holds at most so many entries, or so many bytes of their values and one entry, at a time.
	repairedAtOnce = 1_000
	repairedBytes  = 8 << 20
)

// VerifyEntries is one round of proof: it locks out earlier writers by raising the token, digests both sides, and
// where they differ repairs the destination from the origin, puts and deletes. The next round shows whether it helped.
func (s *Shard) VerifyEntries(ctx context.Context, input VerifyInput) (*VerifyResult, error) {
	source, hangUp, err := s.Dialer.Dial(input.Origin.Address)
	if err != nil {
		return nil, fmt.Errorf("dial origin worker %s: %w", input.Origin.Address, err)
	}
	defer hangUp()
	var result *VerifyResult
	err = heartbeating(ctx, func(ctx context.Context) error {
		if err := s.Store.RaiseToken(ctx, input.Guard, input.RaiseTo); err != nil {
			return err
		}
		input.Guard.Token = input.RaiseTo
		report(ctx, s.slowed)
		result, err = s.verify(ctx, source, input)
		return err
	})
	if err != nil {
		return nil, permanentForward(fmt.Errorf("verify %s on shard %s: %w", input.Guard.LogicalCluster, s.Name, err))
	}
	return result, nil
}

func (s *Shard) verify(ctx context.Context, source Source, input VerifyInput) (*VerifyResult, error) {
	_, enclosed, err := s.enclosure(ctx, input.Guard.LogicalCluster)
	if err != nil {
		return nil, err
	}
	origin, destination, err := s.digests(ctx, source, input)
	if err != nil {
		return nil, err
	}
	result := &VerifyResult{OriginRevision: origin.Revision, LeasedEntries: int64(len(origin.Leased)), SHA256: origin.SHA256()}
	result.Entries, result.Bytes = origin.Totals()
	families := DifferingFamilies(origin, destination)
	if len(families) == 0 {
		result.Match = true
		return result, nil
	}
	return result, s.repair(ctx, source, input, enclosed.ModRevision, origin.Revision, families, result)
}

// enclosure is the destination's LogicalCluster, as it stands until the commit. Where the tenant is no workspace's, nobody repeats
// a deletion of it that the front-proxies led here.
func (s *Shard) enclosure(ctx context.Context, logicalCluster string) (*objects.LogicalCluster, Object, error) {
	parsed, present, err := s.readLogicalCluster(ctx, logicalCluster)
	gone := errors.Is(err, ErrNotFound)
	if err != nil && !gone {
		return nil, Object{}, err
	}
	if !gone && parsed.BeingDeleted() {
		_, owner, _ := parsed.Owner()
		gone = owner == ""
	}
	if gone {
		return nil, Object{}, Refuse(BeingDeleted,
			"somebody deleted logical cluster %s on shard %s before the commit. The origin has it still: once the move is taken back, delete it there if that was meant", logicalCluster, s.Name)
	}
	return parsed, present, nil
}

// digests takes both sides' at once. The origin's revision is taken after its fence was found standing.
func (s *Shard) digests(ctx context.Context, source Source, input VerifyInput) (origin, destination Digest, err error) {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		revision, err := source.Revision(ctx, input.Origin.Guard)
		if err != nil {
			return fmt.Errorf("read revision of the origin: %w", err)
		}
		if origin, err = source.Digest(ctx, input.Origin.Guard, revision); err != nil {
			return fmt.Errorf("digest the origin: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		revision, err := s.Store.Revision(ctx)
		if err != nil {
			return fmt.Errorf("read revision of the destination: %w", err)
		}
		if destination, err = s.Store.Digest(ctx, input.Guard.LogicalCluster, revision); err != nil {
			return fmt.Errorf("digest the destination: %w", err)
		}
		return nil
	})
	return origin, destination, group.Wait()
}

// repair brings the differing families into line with the origin, unless somebody edited the LogicalCluster since both sides were
// digested: then the next attempt sees whether it stands open.
func (s *Shard) repair(ctx context.Context, source Source, input VerifyInput, enclosedAt, originRevision int64, families []keyspace.Family, result *VerifyResult) error {
	wanted, err := source.List(ctx, input.Origin.Guard, families, originRevision)
	if err != nil {
		return fmt.Errorf("list differing families of the origin: %w", err)
	}
	revision, err := s.Store.Revision(ctx)
	if err != nil {
		return fmt.Errorf("read revision of the destination: %w", err)
	}
	present, err := s.Store.List(ctx, input.Guard.LogicalCluster, families, revision)
	if err != nil {
		return fmt.Errorf("list differing families of the destination: %w", err)
	}
	puts, deletes := Differences(wanted, present)
	result.RepairedPuts, result.RepairedDeletes = len(puts), len(deletes)
	result.Differing = firstOf(slices.Concat(puts, deletes), differencesListed)
	if err := s.requireEnclosed(ctx, input.Guard, result.Differing); err != nil {
		return err
	}
	for _, portion := range portions(puts, wanted) {
		entries, err := source.Get(ctx, input.Origin.Guard, portion)
		if err != nil {
			return fmt.Errorf("read differing entries of the origin: %w", err)
		}
		if err := s.Store.Repair(ctx, input.Guard, enclosedAt, entries, nil); err != nil {
			return fmt.Errorf("repair the destination: %w", err)
		}
	}
	if err := s.Store.Repair(ctx, input.Guard, enclosedAt, nil, deletes); err != nil {
		return fmt.Errorf("repair the destination: %w", err)
	}
	return nil
}

// portions parts refs by what they and their values, as listed, take of both workers' memory.
func portions(refs []Ref, listed []Listed) [][]Ref {
	sizes := make(map[Ref]int64, len(listed))
	for _, entry := range listed {
		sizes[entry.Ref] = entry.Bytes
	}
	var parts [][]Ref
	from, bytes := 0, int64(0)
	for i, ref := range refs {
		bytes += sizes[ref]
		if i+1-from == repairedAtOnce || bytes >= repairedBytes || i+1 == len(refs) {
			parts = append(parts, refs[from:i+1])
			from, bytes = i+1, 0
		}
	}
	return parts
}

// requireEnclosed refuses to repair what somebody opened: an admin of the tenant may, and the front-proxies lead here by then.
// What clients have written here since would be taken for a difference and be gone without a word.
func (s *Shard) requireEnclosed(ctx context.Context, guard Guard, differing []Ref) error {
	present, _, err := s.enclosure(ctx, guard.LogicalCluster)
	if err != nil {
		return err
	}
	if present.Inactive() {
		return nil
	}
	return Refuse(FenceLost, "someone lifted the fence on shard %s before the commit; find out who, and start the move again. What differs there is lost, tell its writers: %s",
		s.Name, Names(differing))
}

func firstOf(refs []Ref, limit int) []Ref { return refs[:min(len(refs), limit)] }

// SHA256 is one hash over all families' digests, hex. Leased entries are not in it.
func (d Digest) SHA256() string {
	hash := sha256.New()
	for _, family := range d.Families {
		fmt.Fprintf(hash, "%s %d %d %s\n", family.Family, family.Entries, family.Bytes, family.SHA256)
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// DifferingFamilies compares two digests and names the families to look at key by key.
func DifferingFamilies(origin, destination Digest) []keyspace.Family {
	differing := map[keyspace.Family]bool{}
	present := map[keyspace.Family]FamilyDigest{}
	for _, family := range destination.Families {
		present[family.Family] = family
	}
	for _, family := range origin.Families {
		if present[family.Family] != family {
			differing[family.Family] = true
		}
		delete(present, family.Family)
	}
	for family := range present {
		differing[family] = true
	}
	puts, deletes := Differences(origin.Leased, destination.Leased)
	for _, ref := range slices.Concat(puts, deletes) {
		differing[ref.Family] = true
	}
	families := make([]keyspace.Family, 0, len(differing))
	for family := range differing {
		families = append(families, family)
	}
	slices.SortFunc(families, func(a, b keyspace.Family) int { return strings.Compare(a.String(), b.String()) })
	return families
}

// Differences compares two listings: what the destination lacks or has otherwise, and what it has too much.
// Entries whose lease is about to end on either side are not held against it.
func Differences(origin, destination []Listed) (puts, deletes []Ref) {
	present := make(map[Ref]Listed, len(destination))
	for _, entry := range destination {
		present[entry.Ref] = entry
	}
	for _, wanted := range origin {
		found, exists := present[wanted.Ref]
		delete(present, wanted.Ref)
		same := exists && found.SHA256 == wanted.SHA256 && (found.TTL > 0) == (wanted.TTL > 0)
		if !same && !aboutToEnd(wanted) {
			puts = append(puts, wanted.Ref)
		}
	}
	for _, extra := range destination {
		if _, left := present[extra.Ref]; left && !aboutToEnd(extra) {
			deletes = append(deletes, extra.Ref)
		}
	}
	return puts, deletes
}

func aboutToEnd(entry Listed) bool { return entry.TTL > 0 && entry.TTL <= leaseTolerance }
