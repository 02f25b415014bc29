package main

import (
	"context"
	"fmt"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
)

// tenants are the logical clusters of the workspaces.
var tenants = map[Tenant]string{
	Consumer: "256hdo017n2m0br9", Neighbour: "2ei2q8rs6um1o3uc", Provider: "19t7u0s93xoks0di",
}

// beside is whom a tenant's move must not disturb.
var beside = map[Tenant]Tenant{Consumer: Neighbour, Neighbour: Consumer, Provider: Consumer}

const (
	// lifted is how far the origin's revision is brought above the destination's.
	lifted = 300
	// raisesInFlight are writes at once to bring it there.
	raisesInFlight = 32
	// raisedKey is outside of kcp's prefix and of what the product uses.
	raisedKey = "/faults/raised"
)

func logicalClusterKey(tenant string) string {
	return "/registry/core.kcp.io/logicalclusters/customresources/" + tenant + "/cluster"
}

// locate finds out which way a tenant can move.
func (b *bench) locate(ctx context.Context, tenant string) (leg, error) {
	for _, way := range []leg{{"root", "shard-1"}, {"shard-1", "root"}} {
		etcd := b.clients[way.origin]
		found, err := etcd.Get(ctx, logicalClusterKey(tenant), clientv3.WithCountOnly())
		if err != nil {
			return leg{}, fmt.Errorf("locate %s: %w", tenant, err)
		}
		if found.Count > 0 {
			return way, nil
		}
	}
	return leg{}, fmt.Errorf("locate %s: no shard has it", tenant)
}

// raiseRevision brings the origin's revision above the destination's, so that a move must lift that one.
func (b *bench) raiseRevision(ctx context.Context, leg leg) error {
	wanted, err := b.revision(ctx, leg.destination)
	if err != nil {
		return err
	}
	present, err := b.revision(ctx, leg.origin)
	if err != nil {
		return err
	}
	var mutex sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	for range raisesInFlight {
		group.Go(func() error {
			for {
				mutex.Lock()
				enough := present >= wanted+lifted
				mutex.Unlock()
				if enough {
					return nil
				}
				put, err := b.clients[leg.origin].Put(ctx, raisedKey, "")
				if err != nil {
					return fmt.Errorf("raise revision of shard %s: %w", leg.origin, err)
				}
				mutex.Lock()
				present = max(present, put.Header.Revision)
				mutex.Unlock()
			}
		})
	}
	return group.Wait()
}

func (b *bench) revision(ctx context.Context, shard string) (int64, error) {
	answer, err := b.clients[shard].Get(ctx, raisedKey)
	if err != nil {
		return 0, fmt.Errorf("read revision of shard %s: %w", shard, err)
	}
	return answer.Header.Revision, nil
}
