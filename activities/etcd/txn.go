package etcd

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

// guarded runs one Txn that compares the guard's token before anything else.
// ErrTokenLost and ErrConflict tell apart which comparison failed.
//
// The token is read in a second request and not in the Txn's Else, so that large values fit: see putTightly.
// No token ever returns, so a token read as held afterwards was held before.
func (s *Store) guarded(
	ctx context.Context, guard activities.Guard, compares []clientv3.Cmp, operations ...clientv3.Op,
) (*clientv3.TxnResponse, error) {
	if err := checkGuard(guard); err != nil {
		return nil, err
	}
	compares = append([]clientv3.Cmp{s.holdsToken(guard)}, compares...)
	return s.txn(ctx, compares, operations, func() error { return s.checkToken(ctx, guard) })
}

// sealedCompares is how many comparisons guard a deletion under a sealed claim; a token takes one.
const sealedCompares = 2

// guardedDelete is guarded for what an undo deletes. It also runs under a claim that the guard's run has sealed by
// deleting its token (see Seal): there the run's info must still be the one that was read, which any later claim
// replaces. That does not tell the run's attempts apart. So it is for nothing but deletions that the undo makes as
// well: they are harmless whichever attempt makes them, and a put never is.
func (s *Store) guardedDelete(
	ctx context.Context, guard activities.Guard, compares []clientv3.Cmp, deletes ...clientv3.Op,
) (*clientv3.TxnResponse, error) {
	response, err := s.guarded(ctx, guard, compares, deletes...)
	if !errors.Is(err, activities.ErrTokenLost) {
		return response, err
	}
	info, err := s.sealedInfo(ctx, guard)
	if err != nil {
		return nil, err
	}
	sealed := []clientv3.Cmp{absent(s.tokenKey(guard.LogicalCluster)), isAt(s.infoKey(guard.LogicalCluster), info)}
	return s.txn(ctx, append(sealed, compares...), deletes, func() error {
		_, err := s.sealedInfo(ctx, guard)
		return err
	})
}

// txn gives ErrConflict where a comparison fails, unless proven says that it was the guard's.
func (s *Store) txn(
	ctx context.Context, compares []clientv3.Cmp, operations []clientv3.Op, proven func() error,
) (*clientv3.TxnResponse, error) {
	response, err := s.client.Txn(ctx).If(compares...).Then(operations...).Commit()
	if err != nil {
		return nil, translate(err)
	}
	if response.Succeeded {
		return response, nil
	}
	if err := proven(); err != nil {
		return nil, err
	}
	return nil, activities.ErrConflict
}

// checkGuard keeps a malformed guard from reaching beyond one tenant's keys.
func checkGuard(guard activities.Guard) error {
	if !keyspace.IsLogicalClusterName(guard.LogicalCluster) || keyspace.IsSystem(guard.LogicalCluster) {
		return fmt.Errorf("guard logical cluster %q: not one that can be moved", guard.LogicalCluster)
	}
	if guard.Token == "" {
		return fmt.Errorf("guard logical cluster %s: no token", guard.LogicalCluster)
	}
	return nil
}

func (s *Store) holdsToken(guard activities.Guard) clientv3.Cmp {
	return clientv3.Compare(clientv3.Value(s.tokenKey(guard.LogicalCluster)), "=", string(guard.Token))
}

// checkToken gives ErrTokenLost where the claim does not hold the guard's token.
func (s *Store) checkToken(ctx context.Context, guard activities.Guard) error {
	held, err := s.readToken(ctx, guard.LogicalCluster)
	if err != nil {
		return err
	}
	if held != guard.Token {
		return tokenLost(guard, held)
	}
	return nil
}

// checkDeletable is checkToken for what guardedDelete guards.
func (s *Store) checkDeletable(ctx context.Context, guard activities.Guard) error {
	err := s.checkToken(ctx, guard)
	if errors.Is(err, activities.ErrTokenLost) {
		_, err = s.sealedInfo(ctx, guard)
	}
	return err
}

// sealedInfo gives the ModRevision of the info of a claim that the guard's run has sealed by deleting its token, or
// ErrTokenLost. A committed one is not sealed: there somebody has removed the token by hand.
func (s *Store) sealedInfo(ctx context.Context, guard activities.Guard) (int64, error) {
	present, err := s.readClaim(ctx, guard.LogicalCluster)
	if err != nil {
		return 0, err
	}
	if present.Token != "" || present.Committed || !isOf(present.Claim, guard.Token) {
		return 0, tokenLost(guard, present.Token)
	}
	return present.infoRevision, nil
}

func tokenLost(guard activities.Guard, held activities.Token) error {
	return fmt.Errorf("%w: logical cluster %s is held by %q, not %q", activities.ErrTokenLost, guard.LogicalCluster, held, guard.Token)
}

// readToken gives the token of a logical cluster's claim, empty where there is none.
func (s *Store) readToken(ctx context.Context, logicalCluster string) (activities.Token, error) {
	response, err := s.client.Get(ctx, s.tokenKey(logicalCluster))
	if err != nil {
		return "", fmt.Errorf("read claim of logical cluster %s: %w", logicalCluster, translate(err))
	}
	if len(response.Kvs) == 0 {
		return "", nil
	}
	return activities.Token(response.Kvs[0].Value), nil
}

// key is where an entry of a logical cluster lives in this store. It refuses what is not an entry
// of exactly that logical cluster, and the LogicalCluster object, which is edited by methods of its own.
func (s *Store) key(logicalCluster string, ref activities.Ref) (string, error) {
	wanted := keyspace.Entry{Family: ref.Family, LogicalCluster: logicalCluster, Suffix: ref.Suffix}
	key := s.layout.Key(wanted)
	found, err := s.layout.Parse(key)
	if err != nil {
		return "", fmt.Errorf("place %s: %w", ref, err)
	}
	if found != wanted || key == s.layout.LogicalClusterKey(logicalCluster) {
		return "", fmt.Errorf("place %s: not an entry of logical cluster %s that may be written", ref, logicalCluster)
	}
	return key, nil
}
