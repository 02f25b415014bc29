package main

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
)

const (
	fillTxnPuts   = 128
	fillTxnBytes  = 1 << 20
	fillsInFlight = 4
	// migrations is where moves keep their claims.
	migrations = "/kcp-migrate/"
)

// fill puts content into an etcd.
func fill(ctx context.Context, etcd *clientv3.Client, content content) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(fillsInFlight)
	var puts []clientv3.Op
	size := 0
	flush := func() {
		batch := puts
		group.Go(func() error {
			_, err := etcd.Txn(ctx).Then(batch...).Commit()
			return err
		})
		puts, size = nil, 0
	}
	for key, value := range content {
		if len(puts) == fillTxnPuts || len(puts) > 0 && size+len(value) > fillTxnBytes {
			flush()
		}
		puts, size = append(puts, clientv3.OpPut(key, value)), size+len(value)
	}
	if len(puts) > 0 {
		flush()
	}
	return group.Wait()
}

// wipe deletes the tenant of a shape and all that a move left.
func wipe(ctx context.Context, etcd *clientv3.Client, shape shape) error {
	prefixes := []string{migrations, layout.LogicalClusterKey(tenant)}
	for _, family := range shape.families() {
		prefixes = append(prefixes, layout.FamilyPrefix(family, tenant))
	}
	for _, prefix := range prefixes {
		if _, err := etcd.Delete(ctx, prefix, clientv3.WithPrefix()); err != nil {
			return fmt.Errorf("delete %s: %w", prefix, err)
		}
	}
	return nil
}

// compact forgets the etcd's past and gives its space back, so that every repetition finds the same.
func compact(ctx context.Context, etcd *clientv3.Client) error {
	revision, err := etcd.Get(ctx, migrations, clientv3.WithCountOnly())
	if err != nil {
		return err
	}
	_, err = etcd.Compact(ctx, revision.Header.Revision, clientv3.WithCompactPhysical())
	for _, endpoint := range etcd.Endpoints() {
		_, failure := etcd.Defragment(ctx, endpoint)
		err = errors.Join(err, failure)
	}
	return err
}
