package etcd

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

// Encrypted gives those of the families whose values this store encrypts.
func (s *Store) Encrypted(families []keyspace.Family) []keyspace.Family {
	var encrypted []keyspace.Family
	for _, family := range families {
		if s.encryption.encrypts(family) {
			encrypted = append(encrypted, family)
		}
	}
	return encrypted
}

// CheckEncryption reads a few values of each family, whosever they are: ErrEncrypted where the newest of these cannot be
// decrypted. An older one may be left over from a key that is long retired: what kcp has forgotten is never encrypted anew.
func (s *Store) CheckEncryption(ctx context.Context, families []keyspace.Family) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(familiesInFlight)
	for _, family := range families {
		group.Go(func() error { return s.tryDecrypting(ctx, family) })
	}
	return group.Wait()
}

func (s *Store) tryDecrypting(ctx context.Context, family keyspace.Family) error {
	response, err := s.client.Get(ctx, s.layout.ResourcePrefix(family.Group, family.Resource),
		clientv3.WithPrefix(), clientv3.WithLimit(firstPage))
	if err != nil {
		return fmt.Errorf("read some of %s: %w", family, translate(err))
	}
	if len(response.Kvs) == 0 {
		return nil
	}
	newest := newestOf(response.Kvs)
	_, err = s.encryption.decrypt(ctx, family, string(newest.Key), newest.Value)
	return err
}

func newestOf(kvs []*mvccpb.KeyValue) *mvccpb.KeyValue {
	newest := kvs[0]
	for _, kv := range kvs {
		if kv.ModRevision > newest.ModRevision {
			newest = kv
		}
	}
	return newest
}
