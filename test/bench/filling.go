package main

import (
	"context"

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
