package etcd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

// ownDeletion is the range of one deletion of ours; its revision is that of the key it is written to.
type ownDeletion struct {
	From []byte `json:"from"`
	To   []byte `json:"to"`

	revision int64
}

func (s *Store) deletedKey(logicalCluster string) string {
	return s.claimPrefix(logicalCluster) + "deleted"
}

// deletedMark goes into the Txn of a deletion, so that its revision is that of the deletion.
func (s *Store) deletedMark(guard activities.Guard, keys span) (clientv3.Op, error) {
	mark, err := json.Marshal(ownDeletion{From: []byte(keys.from), To: []byte(keys.to)})
	if err != nil {
		return clientv3.Op{}, fmt.Errorf("encode range of a deletion: %w", err)
	}
	return clientv3.OpPut(s.deletedKey(guard.LogicalCluster), string(mark)), nil
}

// NoteDropping leaves in the claim, once, that the logical cluster is about to be dropped at the origin. What comes after
// that is not its clients'.
func (s *Store) NoteDropping(ctx context.Context, guard activities.Guard) error {
	key := s.layout.LogicalClusterKey(guard.LogicalCluster)
	mark, err := s.deletedMark(guard, span{from: key, to: key})
	if err != nil {
		return err
	}
	_, err = s.guarded(ctx, guard, []clientv3.Cmp{absent(s.deletedKey(guard.LogicalCluster))}, mark)
	if err != nil && !errors.Is(err, activities.ErrConflict) {
		return fmt.Errorf("note that logical cluster %s is dropped: %w", guard.LogicalCluster, err)
	}
	return nil
}

// firstDeletion is the first one that was noted under the claim; its revision is 0 where there is none.
func (s *Store) firstDeletion(ctx context.Context, logicalCluster string) (ownDeletion, error) {
	key := s.deletedKey(logicalCluster)
	latest, err := s.client.Get(ctx, key, clientv3.WithKeysOnly())
	if err != nil {
		return ownDeletion{}, fmt.Errorf("read deletions in logical cluster %s: %w", logicalCluster, translate(err))
	}
	if len(latest.Kvs) == 0 {
		return ownDeletion{}, nil
	}
	first := ownDeletion{revision: latest.Kvs[0].CreateRevision}
	noted, err := s.client.Get(ctx, key, clientv3.WithRev(first.revision))
	if err != nil {
		return ownDeletion{}, fmt.Errorf("read first deletion in logical cluster %s: %w", logicalCluster, translate(err))
	}
	if err := json.Unmarshal(noted.Kvs[0].Value, &first); err != nil {
		return ownDeletion{}, fmt.Errorf("decode deletion in logical cluster %s: %w", logicalCluster, err)
	}
	return first, nil
}

// deletedByOthers gives the entries without a lease that were there at a revision and were gone, not deleted by us, at the
// first deletion of ours: after that nobody but kcp's own controllers deletes. ErrCompacted: the history does not reach back
// that far.
func (s *Store) deletedByOthers(
	ctx context.Context, logicalCluster string, revision int64,
) ([]activities.Straggler, error) {
	families, err := s.discover(ctx, logicalCluster, revision)
	if err != nil {
		return nil, err
	}
	first, err := s.firstDeletion(ctx, logicalCluster)
	if err != nil {
		return nil, err
	}
	var gone []activities.Straggler
	for _, family := range families {
		prefix := s.layout.FamilyPrefix(family, logicalCluster)
		missing, err := s.missing(ctx, prefix, revision, first)
		if err != nil {
			return nil, fmt.Errorf("compare family %s of logical cluster %s with revision %d: %w",
				family, logicalCluster, revision, err)
		}
		for _, key := range slices.Sorted(maps.Keys(missing)) {
			if key == s.layout.LogicalClusterKey(logicalCluster) {
				continue
			}
			gone = append(gone, deletedStraggler(family, key[len(prefix):]))
		}
	}
	return gone, nil
}

func deletedStraggler(family keyspace.Family, suffix string) activities.Straggler {
	return activities.Straggler{Ref: activities.Ref{Family: family, Suffix: suffix}, Deleted: true}
}

// keySet is a set of keys.
type keySet map[string]struct{}

// missing are the unleased keys of one family at a revision, less those that were there at the first deletion of ours (now,
// where there is none) and those that it deleted.
func (s *Store) missing(ctx context.Context, prefix string, revision int64, first ownDeletion) (keySet, error) {
	missing := keySet{}
	if err := s.add(ctx, missing, prefixSpan(prefix), revision); err != nil {
		return nil, err
	}
	if err := s.subtract(ctx, missing, prefixSpan(prefix), first.revision); err != nil {
		return nil, err
	}
	if bytes.HasPrefix(first.From, []byte(prefix)) && !bytes.Equal(first.From, first.To) {
		deleted, err := s.deletedIn(ctx, first)
		if err != nil {
			return nil, err
		}
		for key := range deleted {
			delete(missing, key)
		}
	}
	return missing, s.subtractLeased(ctx, missing, revision)
}

// subtractLeased removes the keys that had a lease: one that runs out is nobody's deletion.
// Each is read with its value, because etcd 3.7 leaves the lease out of an answer that is keys only.
func (s *Store) subtractLeased(ctx context.Context, set keySet, revision int64) error {
	for key := range set {
		response, err := s.client.Get(ctx, key, clientv3.WithRev(revision))
		if err != nil {
			return translate(err)
		}
		if len(response.Kvs) == 1 && response.Kvs[0].Lease != 0 {
			delete(set, key)
		}
	}
	return nil
}

// deletedIn are the keys that were there right before a deletion of ours and not after it.
func (s *Store) deletedIn(ctx context.Context, deletion ownDeletion) (keySet, error) {
	keys := span{from: string(deletion.From), to: string(deletion.To)}
	deleted := keySet{}
	if err := s.add(ctx, deleted, keys, deletion.revision-1); err != nil {
		return nil, err
	}
	return deleted, s.subtract(ctx, deleted, keys, deletion.revision)
}

// add puts into a set the keys that are there at a revision.
func (s *Store) add(ctx context.Context, set keySet, keys span, revision int64) error {
	for window, err := range s.keys(ctx, keys, revision) {
		if err != nil {
			return err
		}
		for _, kv := range window {
			set[string(kv.Key)] = struct{}{}
		}
	}
	return nil
}

// subtract removes from a set the keys that are there at a revision (0: now).
func (s *Store) subtract(ctx context.Context, set keySet, keys span, revision int64) error {
	for window, err := range s.keys(ctx, keys, revision) {
		if err != nil {
			return err
		}
		for _, kv := range window {
			delete(set, string(kv.Key))
		}
	}
	return nil
}
