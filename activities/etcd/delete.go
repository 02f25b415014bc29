package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

// deletePage is how many keys one Txn deletes by their range. It could be all of a family at once, but
// etcd reads every value of a compared range into memory and serves nobody else while the Txn runs.
const deletePage = 1000

// DeleteVerified deletes the entries, all but the LogicalCluster, that have not changed since the verified
// revision. What has changed is left and returned, and so is what somebody else has deleted since then.
//
// Whether a key that is gone was deleted here or by somebody else is read from etcd's history, so that the
// answer is the same when an earlier attempt had deleted half: every deletion of ours writes its range to one
// key in the same Txn. Walking back that key's versions gives the revisions of our deletions, and a key that
// was there one revision before and is not there after was deleted by us. Where that history has been
// compacted, deletions cannot be told: they are not reported, and a warning is logged.
func (s *Store) DeleteVerified(
	ctx context.Context, guard activities.Guard, verifiedRevision int64,
) (int64, []activities.Straggler, error) {
	deleted, err := s.deleteOlder(ctx, guard, verifiedRevision+1)
	if err != nil {
		return deleted, nil, err
	}
	changed, err := s.changedSince(ctx, guard.LogicalCluster, verifiedRevision)
	if err != nil {
		return deleted, nil, err
	}
	gone, err := s.deletedByOthers(ctx, guard.LogicalCluster, verifiedRevision)
	if errors.Is(err, activities.ErrCompacted) {
		slog.WarnContext(ctx, "deletions since the verification cannot be told: etcd has compacted its revision",
			"logicalCluster", guard.LogicalCluster, "revision", verifiedRevision)
		return deleted, changed, nil
	}
	return deleted, append(changed, gone...), err
}

// DeleteAll deletes every entry, all but the LogicalCluster, until a look finds none:
// controllers may write while it runs.
func (s *Store) DeleteAll(ctx context.Context, guard activities.Guard) (int64, error) {
	var total int64
	for {
		deleted, err := s.deleteOlder(ctx, guard, math.MaxInt64)
		total += deleted
		if err != nil || deleted == 0 {
			return total, err
		}
	}
}

// deleteOlder deletes the entries whose ModRevision is below a revision.
func (s *Store) deleteOlder(ctx context.Context, guard activities.Guard, before int64) (int64, error) {
	if err := s.checkToken(ctx, guard); err != nil {
		return 0, err
	}
	families, err := s.discover(ctx, guard.LogicalCluster, 0)
	if err != nil {
		return 0, err
	}
	var total int64
	for _, family := range families {
		deleted, err := s.deleteFamily(ctx, guard, family, before)
		total += deleted
		if err != nil {
			return total, fmt.Errorf("delete family %s of logical cluster %s: %w", family, guard.LogicalCluster, err)
		}
	}
	return total, nil
}

func (s *Store) deleteFamily(
	ctx context.Context, guard activities.Guard, family keyspace.Family, before int64,
) (int64, error) {
	var total int64
	keys := prefixSpan(s.layout.FamilyPrefix(family, guard.LogicalCluster))
	for {
		page, err := s.client.Get(ctx, keys.from, clientv3.WithRange(keys.to),
			clientv3.WithKeysOnly(), clientv3.WithLimit(deletePage))
		if err != nil {
			return total, translate(err)
		}
		deleted, err := s.deleteUnchanged(ctx, guard, page.Kvs, before)
		total += deleted
		if errors.Is(err, activities.ErrConflict) {
			continue // somebody wrote into this page since it was listed: look at it again
		}
		if err != nil || !page.More {
			return total, err
		}
		keys.from = after(page.Kvs)
	}
}

// deleteUnchanged deletes those keys of a page whose ModRevision is below a revision: as a range if that is
// all of them, else one by one. The LogicalCluster stays, and nothing is deleted by a range that spans its key.
func (s *Store) deleteUnchanged(
	ctx context.Context, guard activities.Guard, page []*mvccpb.KeyValue, before int64,
) (int64, error) {
	var unchanged []deletion
	logicalClusterKey := s.layout.LogicalClusterKey(guard.LogicalCluster)
	whole := true
	for _, kv := range page {
		if kv.ModRevision < before && string(kv.Key) != logicalClusterKey {
			unchanged = append(unchanged, deletion{key: string(kv.Key), modRevision: kv.ModRevision})
		}
		whole = whole && kv.ModRevision < before
	}
	if len(unchanged) == 0 {
		return 0, nil
	}
	keys := span{from: unchanged[0].key, to: unchanged[len(unchanged)-1].key + "\x00"}
	if whole && !strings.HasPrefix(keys.from, s.layout.FamilyPrefix(keyspace.LogicalClusters, guard.LogicalCluster)) {
		return s.deleteRange(ctx, guard, keys, before)
	}
	return s.deleteEach(ctx, guard, unchanged)
}

func (s *Store) deleteRange(ctx context.Context, guard activities.Guard, keys span, before int64) (int64, error) {
	older := clientv3.Compare(clientv3.ModRevision(keys.from).WithRange(keys.to), "<", before)
	mark, err := deletedMark(guard, keys)
	if err != nil {
		return 0, err
	}
	response, err := s.guarded(ctx, guard, []clientv3.Cmp{older},
		clientv3.OpDelete(keys.from, clientv3.WithRange(keys.to)), mark)
	if err != nil {
		return 0, err
	}
	return response.Responses[0].GetResponseDeleteRange().Deleted, nil
}

// deletion is a key that goes if it has not changed.
type deletion struct {
	key         string
	modRevision int64
}

// deleteEach deletes keys of one family, given in key order.
func (s *Store) deleteEach(ctx context.Context, guard activities.Guard, keys []deletion) (int64, error) {
	var total int64
	for len(keys) > 0 {
		// One comparison is the token's, one operation the mark's.
		batch := keys[:min(len(keys), max(s.limits.maxOps()-1, 1))]
		err := s.deleteBatch(ctx, guard, batch)
		if err != nil && s.limits.learn(err, len(batch)+1, 0) {
			continue
		}
		if err != nil {
			return total, err
		}
		total += int64(len(batch))
		keys = keys[len(batch):]
	}
	return total, nil
}

func (s *Store) deleteBatch(ctx context.Context, guard activities.Guard, batch []deletion) error {
	mark, err := deletedMark(guard, span{from: batch[0].key, to: batch[len(batch)-1].key + "\x00"})
	if err != nil {
		return err
	}
	compares := make([]clientv3.Cmp, 0, len(batch))
	ops := make([]clientv3.Op, 0, len(batch)+1)
	for _, deletion := range batch {
		compares = append(compares, clientv3.Compare(clientv3.ModRevision(deletion.key), "=", deletion.modRevision))
		ops = append(ops, clientv3.OpDelete(deletion.key))
	}
	_, err = s.guarded(ctx, guard, compares, append(ops, mark)...)
	return err
}

// DeleteRefs deletes the named entries where their ModRevision is the given one; one that is gone is no
// error, one that has changed gives ErrConflict.
func (s *Store) DeleteRefs(ctx context.Context, guard activities.Guard, entries []activities.Listed) error {
	families := map[keyspace.Family][]deletion{}
	for _, entry := range entries {
		key, err := s.key(guard.LogicalCluster, entry.Ref)
		if err != nil {
			return err
		}
		families[entry.Family] = append(families[entry.Family], deletion{key: key, modRevision: entry.ModRevision})
	}
	for _, family := range slices.SortedFunc(maps.Keys(families), compareFamilies) {
		keys := families[family]
		slices.SortFunc(keys, func(a, b deletion) int { return strings.Compare(a.key, b.key) })
		if err := s.deletePresent(ctx, guard, keys); err != nil {
			return fmt.Errorf("delete entries of family %s of logical cluster %s: %w", family, guard.LogicalCluster, err)
		}
	}
	return nil
}

func (s *Store) deletePresent(ctx context.Context, guard activities.Guard, keys []deletion) error {
	for {
		_, err := s.deleteEach(ctx, guard, keys)
		if !errors.Is(err, activities.ErrConflict) {
			return err
		}
		if keys, err = s.present(ctx, keys); err != nil {
			return err
		}
	}
}

// present leaves out the keys that are gone. ErrConflict: one has changed.
func (s *Store) present(ctx context.Context, keys []deletion) ([]deletion, error) {
	var present []deletion
	for _, deletion := range keys {
		response, err := s.client.Get(ctx, deletion.key, clientv3.WithKeysOnly())
		if err != nil {
			return nil, translate(err)
		}
		if len(response.Kvs) == 0 {
			continue
		}
		if response.Kvs[0].ModRevision != deletion.modRevision {
			return nil, fmt.Errorf("%w: %s", activities.ErrConflict, deletion.key)
		}
		present = append(present, deletion)
	}
	return present, nil
}

// changedSince gives the entries that were written after a revision.
func (s *Store) changedSince(ctx context.Context, logicalCluster string, revision int64) ([]activities.Straggler, error) {
	families, err := s.discover(ctx, logicalCluster, 0)
	if err != nil {
		return nil, err
	}
	var changed []activities.Straggler
	logicalClusterKey := s.layout.LogicalClusterKey(logicalCluster)
	for _, family := range families {
		prefix := s.layout.FamilyPrefix(family, logicalCluster)
		for window, err := range s.keys(ctx, prefixSpan(prefix), 0) {
			if err != nil {
				return nil, fmt.Errorf("list family %s of logical cluster %s: %w", family, logicalCluster, err)
			}
			for _, kv := range window {
				if kv.ModRevision > revision && string(kv.Key) != logicalClusterKey {
					ref := activities.Ref{Family: family, Suffix: string(kv.Key[len(prefix):])}
					changed = append(changed, activities.Straggler{Ref: ref})
				}
			}
		}
	}
	return changed, nil
}
