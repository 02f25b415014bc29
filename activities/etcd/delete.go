package etcd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

// DeleteVerified deletes the entries, all but the LogicalCluster, that have not changed since the verified
// revision. What has changed is left and returned, and so is what somebody else has deleted since then.
//
// Whether a key that is gone was deleted here or by somebody else is read from etcd's history, so that the answer is the
// same when an earlier attempt had deleted half: every deletion of ours at an origin writes its range to one key in the
// same Txn, and whose keys were gone by the first of them was not us. Where that history has been compacted, deletions
// cannot be told: ErrDeletionsUnknown comes beside all the rest.
//
// Every Txn compares that no cut was noted after the given one: ErrCutOff.
func (s *Store) DeleteVerified(
	ctx context.Context, guard activities.Guard, verifiedRevision, cut int64,
) (int64, []activities.Straggler, error) {
	if err := s.checkToken(ctx, guard); err != nil {
		return 0, nil, err
	}
	txn := s.deleteMarked
	if cut != activities.WhicheverCut {
		txn = s.deleteSeen(cut)
	}
	deleted, err := s.sweep(guard, verifiedRevision+1, txn).all(ctx)
	if err != nil {
		return deleted, nil, err
	}
	changed, err := s.changedSince(ctx, guard.LogicalCluster, verifiedRevision)
	if err != nil {
		return deleted, nil, err
	}
	gone, err := s.deletedByOthers(ctx, guard.LogicalCluster, verifiedRevision)
	if errors.Is(err, activities.ErrCompacted) {
		return deleted, changed, fmt.Errorf("look for deletions in logical cluster %s since revision %d, which etcd has compacted: %w",
			guard.LogicalCluster, verifiedRevision, activities.ErrDeletionsUnknown)
	}
	return deleted, append(changed, gone...), err
}

// DeleteAll deletes every entry, all but the LogicalCluster, until a look finds none:
// controllers may write while it runs. It deletes in an etcd that is out of space too.
func (s *Store) DeleteAll(ctx context.Context, guard activities.Guard) (int64, error) {
	if err := s.checkDeletable(ctx, guard); err != nil {
		return 0, err
	}
	sweep := s.sweep(guard, math.MaxInt64, s.deleteUnmarked)
	sweep.pace = newPaceOf(Config{}) // an undo does not dawdle: the tenant is away
	var total int64
	for {
		deleted, err := sweep.all(ctx)
		total += deleted
		if err != nil || deleted == 0 {
			return total, err
		}
	}
}

// deletionTxn deletes keys in one Txn, all of them in a span.
type deletionTxn func(
	ctx context.Context, guard activities.Guard, keys span, compares []clientv3.Cmp, deletes ...clientv3.Op,
) (*clientv3.TxnResponse, error)

// deleteMarked leaves in the claim which keys were deleted.
func (s *Store) deleteMarked(
	ctx context.Context, guard activities.Guard, keys span, compares []clientv3.Cmp, deletes ...clientv3.Op,
) (*clientv3.TxnResponse, error) {
	mark, err := s.deletedMark(guard, keys)
	if err != nil {
		return nil, err
	}
	return s.guarded(ctx, guard, compares, append(deletes, mark)...)
}

// deleteUnmarked has no put in its Txn, which an etcd that is out of space would refuse.
func (s *Store) deleteUnmarked(
	ctx context.Context, guard activities.Guard, _ span, compares []clientv3.Cmp, deletes ...clientv3.Op,
) (*clientv3.TxnResponse, error) {
	return s.guardedDelete(ctx, guard, compares, deletes...)
}

// sweep deletes entries of the guard's logical cluster whose ModRevision is below a revision.
type sweep struct {
	store  *Store
	guard  activities.Guard
	before int64
	txn    deletionTxn
	// pace is the store's, unless there is no time for it.
	pace *pace
}

func (s *Store) sweep(guard activities.Guard, before int64, txn deletionTxn) *sweep {
	return &sweep{store: s, guard: guard, before: before, txn: txn, pace: s.pace}
}

func (w *sweep) all(ctx context.Context) (int64, error) {
	defer w.store.pace.begin()()
	families, err := w.store.discover(ctx, w.guard.LogicalCluster, 0)
	if err != nil {
		return 0, err
	}
	namespacesFirst(families)
	var total int64
	for _, family := range families {
		deleted, err := w.family(ctx, family)
		total += deleted
		if err != nil {
			return total, fmt.Errorf("delete family %s of logical cluster %s: %w", family, w.guard.LogicalCluster, err)
		}
	}
	return total, nil
}

// namespacesFirst has kcp's controllers see that a namespace is gone before they miss what they keep in every one
// (kube-root-ca.crt and the ServiceAccount default), which they would make anew.
func namespacesFirst(families []keyspace.Family) {
	if at := slices.Index(families, keyspace.Namespaces); at > 0 {
		copy(families[1:], families[:at])
		families[0] = keyspace.Namespaces
	}
}

func (w *sweep) family(ctx context.Context, family keyspace.Family) (int64, error) {
	var total int64
	keys := prefixSpan(w.store.layout.FamilyPrefix(family, w.guard.LogicalCluster))
	for limit := leastKeysPage; ; {
		page, err := w.store.client.Get(ctx, keys.from, clientv3.WithRange(keys.to),
			clientv3.WithKeysOnly(), clientv3.WithLimit(int64(limit)))
		if err != nil {
			return total, translate(err)
		}
		if err := w.pace.wait(ctx, len(page.Kvs), 0); err != nil {
			return total, err
		}
		start := time.Now()
		deleted, err := w.page(ctx, page.Kvs)
		limit = nextKeysPage(limit, time.Since(start))
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

// page deletes those of some keys whose ModRevision is below the sweep's revision: as a range if that is
// all of them, else one by one. The LogicalCluster stays, and nothing is deleted by a range that spans its key.
func (w *sweep) page(ctx context.Context, page []*mvccpb.KeyValue) (int64, error) {
	var unchanged []deletion
	layout := w.store.layout
	logicalClusterKey := layout.LogicalClusterKey(w.guard.LogicalCluster)
	whole := true
	for _, kv := range page {
		if kv.ModRevision < w.before && string(kv.Key) != logicalClusterKey {
			unchanged = append(unchanged, deletion{key: string(kv.Key), modRevision: kv.ModRevision})
		}
		whole = whole && kv.ModRevision < w.before
	}
	if len(unchanged) == 0 {
		return 0, nil
	}
	keys := span{from: unchanged[0].key, to: unchanged[len(unchanged)-1].key + "\x00"}
	if whole && !strings.HasPrefix(keys.from, layout.FamilyPrefix(keyspace.LogicalClusters, w.guard.LogicalCluster)) {
		return w.span(ctx, keys)
	}
	return w.store.deleteEach(ctx, w.guard, unchanged, w.txn)
}

func (w *sweep) span(ctx context.Context, keys span) (int64, error) {
	older := clientv3.Compare(clientv3.ModRevision(keys.from).WithRange(keys.to), "<", w.before)
	response, err := w.txn(ctx, w.guard, keys, []clientv3.Cmp{older},
		clientv3.OpDelete(keys.from, clientv3.WithRange(keys.to)))
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
func (s *Store) deleteEach(
	ctx context.Context, guard activities.Guard, keys []deletion, txn deletionTxn,
) (int64, error) {
	var total int64
	for len(keys) > 0 {
		// Room for the comparisons of a sealed claim, or of a token and the latest cut; the mark needs less.
		batch := keys[:min(len(keys), max(s.limits.maxOps()-sealedCompares, 1))]
		err := deleteBatch(ctx, guard, batch, txn)
		if err != nil && s.limits.learn(err, len(batch)+sealedCompares, 0) {
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

func deleteBatch(ctx context.Context, guard activities.Guard, batch []deletion, txn deletionTxn) error {
	keys := span{from: batch[0].key, to: batch[len(batch)-1].key + "\x00"}
	compares := make([]clientv3.Cmp, 0, len(batch))
	ops := make([]clientv3.Op, 0, len(batch)+1) // and the mark
	for _, deletion := range batch {
		compares = append(compares, clientv3.Compare(clientv3.ModRevision(deletion.key), "=", deletion.modRevision))
		ops = append(ops, clientv3.OpDelete(deletion.key))
	}
	_, err := txn(ctx, guard, keys, compares, ops...)
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
		_, err := s.deleteEach(ctx, guard, keys, s.deleteMarked)
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
					changed = append(changed, activities.Straggler{Ref: ref, OriginRevision: kv.ModRevision})
				}
			}
		}
	}
	return changed, nil
}
