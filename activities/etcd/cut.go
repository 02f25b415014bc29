package etcd

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

func (s *Store) cutKey() string { return "/kcp-migrate/cut/" + s.ofShard() }

// noteCut goes into the Txn of what has kcp cut the shard's informers off. Its value is for people: whose move it was.
func (s *Store) noteCut(guard activities.Guard) clientv3.Op {
	return clientv3.OpPut(s.cutKey(), guard.LogicalCluster)
}

// LatestCut gives the revision of the latest cut that was noted, 0 where none ever was.
func (s *Store) LatestCut(ctx context.Context) (int64, error) {
	response, err := s.client.Get(ctx, s.cutKey(), clientv3.WithKeysOnly())
	if err != nil {
		return 0, fmt.Errorf("read latest cut of informers: %w", translate(err))
	}
	if len(response.Kvs) == 0 {
		return 0, nil
	}
	return response.Kvs[0].ModRevision, nil
}

// deleteSeen is deleteMarked for as long as no cut was noted after the given one, then ErrCutOff.
func (s *Store) deleteSeen(cut int64) deletionTxn {
	return func(
		ctx context.Context, guard activities.Guard, keys span, compares []clientv3.Cmp, deletes ...clientv3.Op,
	) (*clientv3.TxnResponse, error) {
		response, err := s.deleteMarked(ctx, guard, keys, append([]clientv3.Cmp{isAt(s.cutKey(), cut)}, compares...), deletes...)
		if !errors.Is(err, activities.ErrConflict) {
			return response, err
		}
		latest, readErr := s.LatestCut(ctx)
		if readErr == nil && latest != cut {
			return nil, fmt.Errorf("%w: at revision %d, after %d", activities.ErrCutOff, latest, cut)
		}
		return nil, errors.Join(err, readErr)
	}
}
