package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

const (
	// txnsInFlight is where etcd's throughput peaked when measured with Txns of 128 puts of 1 kB.
	txnsInFlight = 4
	// putOverhead is a generous guess of what a put adds to the key and value in a request, in bytes.
	putOverhead = 64
)

// put is one entry on its way into etcd.
type put struct {
	ref   activities.Ref
	op    clientv3.Op
	value int // bytes of plaintext
	size  int // bytes in the request
}

// flight is one Txn of puts under way.
type flight struct {
	puts   []put
	landed chan struct{}
}

// writer is one Write under way.
type writer struct {
	store *Store
	guard activities.Guard
	// compares hold for every Txn, beside the guard's own.
	compares []clientv3.Cmp
	buckets  *buckets
	group    *errgroup.Group
	// slots bounds the flights from their start to their acknowledgement.
	slots chan struct{}
	// flights are to be acknowledged in the order in which they started.
	flights chan flight
	// family is the last entry's.
	family keyspace.Family
}

// Write puts entries in guarded Txns, a few in flight; acknowledged is called in order as they land.
func (s *Store) Write(
	ctx context.Context, guard activities.Guard, batches activities.Batches, acknowledged func(activities.Written),
) error {
	return s.write(ctx, guard, nil, batches, acknowledged)
}

func (s *Store) write(
	ctx context.Context, guard activities.Guard, compares []clientv3.Cmp,
	batches activities.Batches, acknowledged func(activities.Written),
) error {
	defer s.pace.begin()()
	group, ctx := errgroup.WithContext(ctx)
	w := &writer{
		store:    s,
		guard:    guard,
		compares: compares,
		buckets:  s.newBuckets(),
		group:    group,
		slots:    make(chan struct{}, txnsInFlight),
		flights:  make(chan flight, txnsInFlight),
	}
	group.Go(func() error {
		defer close(w.flights)
		return w.launch(ctx, batches)
	})
	group.Go(func() error { return w.acknowledge(ctx, acknowledged) })
	return group.Wait()
}

// launch packs entries into Txns that the server takes and starts these.
func (w *writer) launch(ctx context.Context, batches activities.Batches) error {
	var packed []put
	size := 0
	for entries, err := range batches {
		if err != nil {
			return err
		}
		for _, entry := range entries {
			next, err := w.put(ctx, entry)
			if err != nil {
				return err
			}
			limits := w.store.limits
			if len(packed) > 0 && (len(packed) >= limits.maxOps() || size+next.size > limits.maxBytes()) {
				if err := w.start(ctx, packed); err != nil {
					return err
				}
				packed, size = nil, 0
			}
			packed, size = append(packed, next), size+next.size
		}
	}
	if len(packed) == 0 {
		return nil
	}
	return w.start(ctx, packed)
}

func (w *writer) put(ctx context.Context, entry activities.Entry) (put, error) {
	key, err := w.store.key(w.guard.LogicalCluster, entry.Ref)
	if err != nil {
		return put{}, err
	}
	if entry.Family != w.family {
		w.store.expect(key)
		w.family = entry.Family
	}
	lease, err := w.buckets.lease(ctx, entry.TTL)
	if err != nil {
		return put{}, err
	}
	stored, err := w.store.encryption.encrypt(ctx, entry.Family, key, entry.Value)
	if err != nil {
		return put{}, err
	}
	return put{
		ref:   entry.Ref,
		op:    clientv3.OpPut(key, string(stored), clientv3.WithLease(lease)),
		value: len(entry.Value),
		size:  len(key) + len(stored) + putOverhead,
	}, nil
}

func (w *writer) start(ctx context.Context, puts []put) error {
	if err := w.store.pace.wait(ctx, len(puts), sizeOf(puts)); err != nil {
		return err
	}
	select {
	case w.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	started := flight{puts: puts, landed: make(chan struct{})}
	w.group.Go(func() error {
		if err := w.store.putAll(ctx, w.guard, w.compares, puts); err != nil {
			return err
		}
		close(started.landed)
		return nil
	})
	w.flights <- started // never full: it has room for every slot
	return nil
}

func (w *writer) acknowledge(ctx context.Context, acknowledged func(activities.Written)) error {
	var written activities.Written
	for flight := range w.flights {
		select {
		case <-flight.landed:
		case <-ctx.Done():
			return ctx.Err()
		}
		for _, put := range flight.puts {
			written.Last = put.ref
			written.Entries++
			written.Bytes += int64(put.value)
		}
		acknowledged(written)
		<-w.slots
	}
	return nil
}

// putAll puts these in one Txn, or in halves of it where the server refuses it for its size.
func (s *Store) putAll(ctx context.Context, guard activities.Guard, compares []clientv3.Cmp, puts []put) error {
	ops := make([]clientv3.Op, len(puts))
	for i, put := range puts {
		ops[i] = put.op
	}
	_, err := s.guarded(ctx, guard, compares, ops...)
	if err == nil {
		return nil
	}
	if s.limits.learn(err, len(puts), sizeOf(puts)) {
		half := len(puts) / 2
		if err := s.putAll(ctx, guard, compares, puts[:half]); err != nil {
			return err
		}
		return s.putAll(ctx, guard, compares, puts[half:])
	}
	if errors.Is(err, activities.ErrTooLarge) {
		if err = s.putTightly(ctx, guard, ops); err == nil {
			return nil
		}
	}
	return fmt.Errorf("put %d entries of logical cluster %s from %s on: %w", len(puts), guard.LogicalCluster, puts[0].ref, err)
}

func sizeOf(puts []put) int {
	size := 0
	for _, put := range puts {
		size += put.size
	}
	return size
}

// putTightly compares the token by its revision, which takes fewer bytes than its value, and nothing else: what just fitted into
// the API server's Txn, which names its key three times, must fit into ours.
func (s *Store) putTightly(ctx context.Context, guard activities.Guard, puts []clientv3.Op) error {
	response, err := s.client.Get(ctx, s.tokenKey(guard.LogicalCluster))
	if err != nil {
		return fmt.Errorf("read claim of logical cluster %s: %w", guard.LogicalCluster, translate(err))
	}
	if len(response.Kvs) == 0 {
		return tokenLost(guard, "")
	}
	if token := activities.Token(response.Kvs[0].Value); token != guard.Token {
		return tokenLost(guard, token)
	}
	held := isAt(s.tokenKey(guard.LogicalCluster), response.Kvs[0].ModRevision)
	_, err = s.txn(ctx, []clientv3.Cmp{held}, puts, func() error { return s.checkToken(ctx, guard) })
	return err
}

// Repair puts entries and deletes refs while the LogicalCluster is at a revision (0: while there is none), else ErrConflict: whoever
// opens it edits it, and what is repaired must not be what a client has written since.
func (s *Store) Repair(
	ctx context.Context, guard activities.Guard, enclosedAt int64, puts []activities.Entry, deletes []activities.Ref,
) error {
	enclosed := []clientv3.Cmp{isAt(s.layout.LogicalClusterKey(guard.LogicalCluster), enclosedAt)}
	batch := func(yield func([]activities.Entry, error) bool) { yield(puts, nil) }
	if err := s.write(ctx, guard, enclosed, batch, func(activities.Written) {}); err != nil {
		return err
	}
	keys := make([]string, len(deletes))
	for i, ref := range deletes {
		key, err := s.key(guard.LogicalCluster, ref)
		if err != nil {
			return err
		}
		keys[i] = key
	}
	return s.deleteKeys(ctx, guard, enclosed, keys)
}

func (s *Store) deleteKeys(ctx context.Context, guard activities.Guard, compares []clientv3.Cmp, keys []string) error {
	for len(keys) > 0 {
		batch := keys[:min(len(keys), s.limits.maxOps())]
		ops := make([]clientv3.Op, len(batch))
		for i, key := range batch {
			ops[i] = clientv3.OpDelete(key)
		}
		_, err := s.guarded(ctx, guard, compares, ops...)
		if err != nil && s.limits.learn(err, len(batch), 0) {
			continue
		}
		if err != nil {
			return fmt.Errorf("delete %d entries of logical cluster %s: %w", len(batch), guard.LogicalCluster, err)
		}
		keys = keys[len(batch):]
	}
	return nil
}

// PutIfUnchanged writes an entry only where the present one's ModRevision is at most maxModRevision (0: only
// where there is none, else only where there is one). A repeat after it landed finds its own value and succeeds.
// It gives the entry's ModRevision, 0 where it was not written: it changed, is gone, or somebody else's is there.
func (s *Store) PutIfUnchanged(
	ctx context.Context, guard activities.Guard, entry activities.Entry, maxModRevision int64,
) (int64, error) {
	w := &writer{store: s, guard: guard, buckets: s.newBuckets()}
	put, err := w.put(ctx, entry)
	if err != nil {
		return 0, err
	}
	key := string(put.op.KeyBytes())
	unchanged := []clientv3.Cmp{absent(key)}
	if maxModRevision > 0 {
		// One that is gone was deleted since, and must not come back to life: an absent key has CreateRevision 0.
		unchanged = []clientv3.Cmp{
			clientv3.Compare(clientv3.ModRevision(key), "<", maxModRevision+1),
			clientv3.Compare(clientv3.CreateRevision(key), ">", 0),
		}
	}
	response, err := s.guarded(ctx, guard, unchanged, put.op)
	if errors.Is(err, activities.ErrConflict) {
		return s.holds(ctx, key, entry)
	}
	if err != nil {
		return 0, fmt.Errorf("put %s of logical cluster %s: %w", entry.Ref, guard.LogicalCluster, err)
	}
	return response.Header.Revision, nil
}

// holds gives the ModRevision of a key that has an entry's value, else 0.
func (s *Store) holds(ctx context.Context, key string, entry activities.Entry) (int64, error) {
	response, err := s.client.Get(ctx, key)
	if err != nil {
		return 0, fmt.Errorf("read back what was put: %w", translate(err))
	}
	if len(response.Kvs) == 0 {
		return 0, nil
	}
	present, err := s.encryption.decrypt(ctx, entry.Family, key, response.Kvs[0].Value)
	if err != nil {
		return 0, fmt.Errorf("read back what was put: %w", err)
	}
	if !slices.Equal(present, entry.Value) {
		return 0, nil
	}
	return response.Kvs[0].ModRevision, nil
}
