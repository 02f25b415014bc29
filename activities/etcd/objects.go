package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

// LogicalCluster reads a LogicalCluster object; ErrNotFound where there is none.
func (s *Store) LogicalCluster(ctx context.Context, logicalCluster string) (activities.Object, error) {
	object, _, err := s.logicalCluster(ctx, logicalCluster)
	if err != nil {
		return activities.Object{}, err
	}
	if object == nil {
		return activities.Object{}, fmt.Errorf("read LogicalCluster %s: %w", logicalCluster, activities.ErrNotFound)
	}
	return *object, nil
}

// logicalCluster gives nil where there is no such object, and the revision at which that is so.
func (s *Store) logicalCluster(ctx context.Context, logicalCluster string) (*activities.Object, int64, error) {
	response, err := s.client.Get(ctx, s.layout.LogicalClusterKey(logicalCluster))
	if err != nil {
		return nil, 0, fmt.Errorf("read LogicalCluster %s: %w", logicalCluster, translate(err))
	}
	revision := response.Header.Revision
	if len(response.Kvs) == 0 {
		return nil, revision, nil
	}
	object, err := s.object(ctx, response.Kvs[0], revision)
	if err != nil {
		return nil, 0, fmt.Errorf("read LogicalCluster %s: %w", logicalCluster, err)
	}
	return object, revision, nil
}

func (s *Store) object(ctx context.Context, kv *mvccpb.KeyValue, revision int64) (*activities.Object, error) {
	plaintext, err := s.encryption.decrypt(ctx, keyspace.LogicalClusters, string(kv.Key), kv.Value)
	if err != nil {
		return nil, err
	}
	return &activities.Object{Value: plaintext, ModRevision: kv.ModRevision, Revision: revision}, nil
}

// AwaitLogicalCluster watches the object until done says so. It is called with the present state first, with
// nil when the object is gone, and then with every later state in turn.
func (s *Store) AwaitLogicalCluster(
	ctx context.Context, logicalCluster string, done func(*activities.Object) (bool, error),
) error {
	for {
		object, revision, err := s.logicalCluster(ctx, logicalCluster)
		if err != nil {
			return err
		}
		if finished, err := done(object); err != nil || finished {
			return err
		}
		finished, err := s.follow(ctx, logicalCluster, revision+1, done)
		if err != nil || finished {
			return err
		}
	}
}

// follow gives false when the watch has to begin anew from the present state: the revision was compacted, or
// the member lost its leader.
func (s *Store) follow(
	ctx context.Context, logicalCluster string, revision int64, done func(*activities.Object) (bool, error),
) (bool, error) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for response := range s.client.Watch(ctx, s.layout.LogicalClusterKey(logicalCluster), clientv3.WithRev(revision)) {
		if err := response.Err(); err != nil {
			if errors.Is(err, rpctypes.ErrCompacted) || errors.Is(err, rpctypes.ErrNoLeader) {
				return false, nil
			}
			return false, fmt.Errorf("watch LogicalCluster %s: %w", logicalCluster, translate(err))
		}
		for _, event := range response.Events {
			finished, err := s.report(ctx, event, response.Header.Revision, done)
			if err != nil || finished {
				return finished, err
			}
		}
	}
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("watch LogicalCluster %s: %w", logicalCluster, err)
	}
	return false, nil
}

func (s *Store) report(
	ctx context.Context, event *clientv3.Event, revision int64, done func(*activities.Object) (bool, error),
) (bool, error) {
	if event.Type == clientv3.EventTypeDelete {
		return done(nil)
	}
	object, err := s.object(ctx, event.Kv, revision)
	if err != nil {
		return false, fmt.Errorf("watch LogicalCluster: %w", err)
	}
	return done(object)
}

// EditLogicalCluster writes the guard's LogicalCluster, or that of system:shard, if its ModRevision is still the
// given one (0: if it is absent). It gives the revision of the write.
func (s *Store) EditLogicalCluster(
	ctx context.Context, guard activities.Guard, logicalCluster string, modRevision int64, value []byte,
) (int64, error) {
	return s.edit(ctx, guard, logicalCluster, modRevision, value)
}

// EditCutting is EditLogicalCluster for what has kcp cut the shard's informers off, which it notes.
func (s *Store) EditCutting(
	ctx context.Context, guard activities.Guard, logicalCluster string, modRevision int64, value []byte,
) (int64, error) {
	return s.edit(ctx, guard, logicalCluster, modRevision, value, s.noteCut(guard))
}

func (s *Store) edit(
	ctx context.Context, guard activities.Guard, logicalCluster string, modRevision int64, value []byte, beside ...clientv3.Op,
) (int64, error) {
	if logicalCluster != guard.LogicalCluster && logicalCluster != keyspace.SystemShard {
		return 0, fmt.Errorf("edit LogicalCluster %s: the guard is for %s", logicalCluster, guard.LogicalCluster)
	}
	key := s.layout.LogicalClusterKey(logicalCluster)
	stored, err := s.encryption.encrypt(ctx, keyspace.LogicalClusters, key, value)
	if err != nil {
		return 0, fmt.Errorf("edit LogicalCluster %s: %w", logicalCluster, err)
	}
	beside = append(beside, clientv3.OpPut(key, string(stored)))
	response, err := s.guarded(ctx, guard, []clientv3.Cmp{isAt(key, modRevision)}, beside...)
	if err != nil {
		return 0, fmt.Errorf("edit LogicalCluster %s: %w", logicalCluster, err)
	}
	return response.Header.Revision, nil
}

// DeleteLogicalCluster deletes the guard's LogicalCluster if its ModRevision is still the given one.
func (s *Store) DeleteLogicalCluster(ctx context.Context, guard activities.Guard, modRevision int64) error {
	key := s.layout.LogicalClusterKey(guard.LogicalCluster)
	// An object that is absent has ModRevision 0: there would be nothing to delete, and nothing to say so.
	if modRevision <= 0 {
		return fmt.Errorf("delete LogicalCluster %s: no revision given", guard.LogicalCluster)
	}
	if _, err := s.guardedDelete(ctx, guard, []clientv3.Cmp{isAt(key, modRevision)}, clientv3.OpDelete(key)); err != nil {
		return fmt.Errorf("delete LogicalCluster %s: %w", guard.LogicalCluster, err)
	}
	return nil
}

// DropLogicalCluster also leaves in the claim that it was deleted, and so when.
func (s *Store) DropLogicalCluster(ctx context.Context, guard activities.Guard, modRevision int64) error {
	key := s.layout.LogicalClusterKey(guard.LogicalCluster)
	if modRevision <= 0 {
		return fmt.Errorf("drop LogicalCluster %s: no revision given", guard.LogicalCluster)
	}
	keys := span{from: key, to: key + "\x00"}
	if _, err := s.deleteMarked(ctx, guard, keys, []clientv3.Cmp{isAt(key, modRevision)}, clientv3.OpDelete(key)); err != nil {
		return fmt.Errorf("drop LogicalCluster %s: %w", guard.LogicalCluster, err)
	}
	return nil
}

// Commit writes the guard's LogicalCluster, leaves the landing in the claim and raises its token, in one Txn. It notes the cut
// of this shard's informers that comes of it.
// A repeat after it landed, under whichever token of the run, succeeds and gives the revision of the landing.
func (s *Store) Commit(
	ctx context.Context, guard activities.Guard, modRevision int64, value []byte, raiseTo activities.Token, landing activities.Landing,
) (int64, error) {
	if err := checkRaise(guard, raiseTo); err != nil {
		return 0, err
	}
	landing.Token = guard.Token
	committed, err := s.putLanding(guard, landing)
	if err != nil {
		return 0, err
	}
	key := s.layout.LogicalClusterKey(guard.LogicalCluster)
	stored, err := s.encryption.encrypt(ctx, keyspace.LogicalClusters, key, value)
	if err != nil {
		return 0, fmt.Errorf("commit logical cluster %s: %w", guard.LogicalCluster, err)
	}
	unlanded := absent(s.committedKey(guard.LogicalCluster))
	response, err := s.guarded(ctx, guard, []clientv3.Cmp{isAt(key, modRevision), unlanded},
		clientv3.OpPut(key, string(stored)),
		committed, s.putToken(guard, raiseTo), s.noteCut(guard))
	if err == nil {
		return response.Header.Revision, nil
	}
	if errors.Is(err, activities.ErrTokenLost) || errors.Is(err, activities.ErrConflict) {
		present, readErr := s.readClaim(ctx, guard.LogicalCluster)
		if readErr == nil && present.landing.Token.SameRun(guard.Token) {
			return present.landing.Revision, nil
		}
		err = errors.Join(err, readErr)
	}
	return 0, fmt.Errorf("commit logical cluster %s: %w", guard.LogicalCluster, err)
}

// BoundCRDs gives the CRDs in system:bound-crds that are named by these schema UIDs, by UID; absent ones are left out.
func (s *Store) BoundCRDs(ctx context.Context, schemaUIDs []string) (map[string][]byte, error) {
	found := map[string][]byte{}
	for _, schemaUID := range schemaUIDs {
		response, err := s.client.Get(ctx, s.layout.BoundCRDKey(schemaUID))
		if err != nil {
			return nil, fmt.Errorf("read bound CRD %s: %w", schemaUID, translate(err))
		}
		for _, kv := range response.Kvs {
			plaintext, err := s.encryption.decrypt(ctx, keyspace.CustomResourceDefinitions, string(kv.Key), kv.Value)
			if err != nil {
				return nil, fmt.Errorf("read bound CRD %s: %w", schemaUID, err)
			}
			found[schemaUID] = plaintext
		}
	}
	return found, nil
}

// CreateBoundCRD creates one unless it exists.
func (s *Store) CreateBoundCRD(
	ctx context.Context, guard activities.Guard, schemaUID string, value []byte,
) (bool, error) {
	key := s.layout.BoundCRDKey(schemaUID)
	if entry, err := s.layout.Parse(key); err != nil || entry.Suffix != schemaUID {
		return false, fmt.Errorf("create bound CRD %q: no schema's UID: %w", schemaUID, err)
	}
	stored, err := s.encryption.encrypt(ctx, keyspace.CustomResourceDefinitions, key, value)
	if err != nil {
		return false, fmt.Errorf("create bound CRD %s: %w", schemaUID, err)
	}
	_, err = s.guarded(ctx, guard, []clientv3.Cmp{absent(key)}, clientv3.OpPut(key, string(stored)))
	if errors.Is(err, activities.ErrConflict) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("create bound CRD %s: %w", schemaUID, err)
	}
	return true, nil
}

// isAt compares a key's ModRevision; that of an absent key is 0.
func isAt(key string, modRevision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(key), "=", modRevision)
}
