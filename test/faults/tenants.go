package main

import (
	"context"
	"fmt"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/kcp-migrate/kcp-migrate/workflows"
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

// prepareRevision brings the origin's revision above the destination's where the move is to lift that one. It also keeps out a
// known limit (docs/kcp-findings.md): a watch whose resourceVersion is below the last deletion of the tenant's entries at the
// destination is told of that deletion when it goes on there. So every watch must begin above it.
func (b *bench) prepareRevision(ctx context.Context, schedule schedule, leg leg) error {
	wanted := b.emptied[abode{schedule.tenant, leg.destination}] + 1
	if schedule.needs(aLift) {
		destination, err := b.revision(ctx, leg.destination)
		if err != nil {
			return err
		}
		wanted = max(wanted, destination+max(schedule.gap, lifted))
	}
	return b.raiseRevision(ctx, leg.origin, wanted)
}

// abode is a shard that a tenant is or was on.
type abode struct {
	tenant Tenant
	shard  string
}

// noteEmptied remembers until which revision a shard may have deleted the tenant's entries.
func (b *bench) noteEmptied(ctx context.Context, outcome *outcome) error {
	shard := outcome.leg.destination
	if outcome.result.Phase == workflows.Completed {
		shard = outcome.leg.origin
	}
	revision, err := b.revision(ctx, shard)
	b.emptied[abode{outcome.schedule.tenant, shard}] = revision
	return err
}

func (b *bench) raiseRevision(ctx context.Context, shard string, wanted int64) error {
	present, err := b.revision(ctx, shard)
	if err != nil {
		return err
	}
	var mutex sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	for range raisesInFlight {
		group.Go(func() error {
			for {
				mutex.Lock()
				enough := present >= wanted
				mutex.Unlock()
				if enough {
					return nil
				}
				put, err := b.clients[shard].Put(ctx, raisedKey, "")
				if err != nil {
					return fmt.Errorf("raise revision of shard %s: %w", shard, err)
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
