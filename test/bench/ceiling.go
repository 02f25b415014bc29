package main

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
)

const (
	// 128 operations are what etcd takes in a Txn by default; beyond 1 MiB larger ones were no faster.
	ceilingPuts  = 128
	ceilingBytes = 1 << 20
	// ceilingInFlight is how many Txns were fastest on two cores.
	ceilingInFlight = 4
)

// oneLoop reads by prefix and writes batched Txns in one process, and nothing else: it is told which prefixes there are, takes no revision,
// crosses no network, compares no token and knows of no lease.
type oneLoop struct {
	assigned    assignment
	origin      *clientv3.Client
	destination *clientv3.Client
}

func newCeiling(ctx context.Context, assigned assignment) (*oneLoop, error) {
	origin, err := dial(ctx, assigned.Origin)
	if err != nil {
		return nil, err
	}
	destination, err := dial(ctx, assigned.Target)
	if err != nil {
		return nil, err
	}
	return &oneLoop{assigned: assigned, origin: origin, destination: destination}, nil
}

func (l *oneLoop) do(ctx context.Context, order order) (answer, error) {
	if order.Task != copying {
		return cannot(order.Task)
	}
	entries, err := l.copy(ctx)
	return answer{Entries: entries}, err
}

func (l *oneLoop) copy(ctx context.Context) (int64, error) {
	txns, ctx := errgroup.WithContext(ctx)
	txns.SetLimit(ceilingInFlight)
	var entries int64
	batch := &batch{}
	write := func() {
		puts := batch.take()
		txns.Go(func() error {
			_, err := l.destination.Txn(ctx).Then(puts...).Commit()
			return err
		})
	}
	for _, family := range l.assigned.Shape.families() {
		chunks, err := l.origin.GetStream(ctx, layout.FamilyPrefix(family, tenant), clientv3.WithPrefix())
		if err != nil {
			return 0, err
		}
		for chunk := range chunks {
			if err := chunk.Err(); err != nil {
				return 0, err
			}
			for _, kv := range chunk.Kvs {
				if batch.isFull(len(kv.Value)) {
					write()
				}
				batch.add(clientv3.OpPut(string(kv.Key), string(kv.Value)), len(kv.Value))
				entries++
			}
		}
	}
	if len(batch.puts) > 0 {
		write()
	}
	return entries, txns.Wait()
}

func (l *oneLoop) close() error {
	_ = l.origin.Close() // neither has anything to lose any more
	_ = l.destination.Close()
	return nil
}

// batch is puts for one Txn.
type batch struct {
	puts []clientv3.Op
	size int
}

func (b *batch) isFull(next int) bool {
	return len(b.puts) == ceilingPuts || len(b.puts) > 0 && b.size+next > ceilingBytes
}

func (b *batch) add(put clientv3.Op, size int) {
	b.puts, b.size = append(b.puts, put), b.size+size
}

func (b *batch) take() []clientv3.Op {
	taken := b.puts
	b.puts, b.size = make([]clientv3.Op, 0, ceilingPuts), 0
	return taken
}
