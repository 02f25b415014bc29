package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"go.etcd.io/etcd/client/v3/concurrency"
)

// lockTTL is how many seconds a lock outlives a process that dies with it.
const lockTTL = 10

// Lock takes a lock that ends with the process, for what only one worker of a shard may do at a time.
func (s *Store) Lock(ctx context.Context, name string) (func(), error) {
	session, err := s.session(ctx)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	if err := concurrency.NewMutex(session, "/kcp-migrate/locks/"+s.ofShard()+"/"+name).Lock(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", name, translate(err)), session.Close())
	}
	unlock := func() {
		if err := session.Close(); err != nil {
			slog.WarnContext(ctx, "unlock was not acknowledged: the lock ends with its lease", "lock", name, "error", err)
		}
	}
	return unlock, nil
}

// session lives on after ctx, so that the lock is kept until it is given back; only its beginning is bounded by ctx.
func (s *Store) session(ctx context.Context) (*concurrency.Session, error) {
	lease, err := s.client.Grant(ctx, lockTTL)
	if err != nil {
		return nil, translate(err)
	}
	session, err := concurrency.NewSession(s.client, concurrency.WithLease(lease.ID), concurrency.WithTTL(lockTTL))
	if err != nil {
		return nil, translate(err)
	}
	return session, nil
}
