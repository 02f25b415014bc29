package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/test/faults/point"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// The origin's worker dies when its edit of the fenced LogicalCluster is what every front door has heard last. It stays
// dead until the tenant's clients are served.
func TestMove_WhoseOriginDiesOnceTheRouteLeadsThereAgain_IsServedByTheDestinationMeanwhile(t *testing.T) {
	bench := startTestBench(t)
	cluster := tenants[Neighbour]
	leg := bench.legOf(t, cluster)
	worker := bench.workers[leg.origin]
	var conductor *conductor
	var stranded []time.Duration
	meanwhile := func(ctx context.Context) error {
		defer worker.release()
		ctx, cancel := context.WithTimeout(ctx, meddleDeadline)
		defer cancel()
		for range 2 {
			began := time.Now()
			if err := bench.awaitServedBy(ctx, leg.destination, cluster); err != nil {
				return err
			}
			stranded = append(stranded, time.Since(began))
			if err := bench.touch(ctx, leg.origin, cluster); err != nil { // as kcp's controllers there may
				return err
			}
		}
		return nil
	}
	die := func(ctx context.Context) error {
		if err := bench.awaitRouteTo(ctx, leg.origin, cluster); err != nil {
			return err
		}
		conductor.healing.Go(func() { conductor.note("", meanwhile(ctx)) })
		return worker.kill()
	}
	conductor = bench.conduct(schedule{tenant: Neighbour, blows: []blow{meddling("ReleaseContext", Origin, point.During, die)}}, leg)

	outcome := bench.follow(t, conductor)

	t.Logf("not served for %s", stranded)
	require.Equal(t, workflows.Completed, outcome.result.Phase)
	bench.requireServed(t, cluster)
	bench.requireNothingOf(t, cluster, leg.origin)
	bench.requireNoClaims(t)
}

// awaitRouteTo waits until all front doors lead to a shard.
func (b *bench) awaitRouteTo(ctx context.Context, shard, cluster string) error {
	ctx, cancel := context.WithTimeout(ctx, meddleDeadline)
	defer cancel()
	return await(ctx, "the route to "+shard, func() error {
		for _, door := range []string{b.FrontProxies[0], b.frontDoorURL} {
			if leads := b.leadsTo(ctx, door, cluster); leads != shard {
				return errors.New(door + " leads to " + leads)
			}
		}
		return nil
	})
}

// awaitServedBy waits until a tenant is served by a shard through all front doors.
func (b *bench) awaitServedBy(ctx context.Context, shard, cluster string) error {
	if err := b.awaitRouteTo(ctx, shard, cluster); err != nil {
		return err
	}
	for _, door := range []string{b.FrontProxies[0], b.frontDoorURL} {
		tenant, err := b.clientAt(door, cluster)
		if err != nil {
			return err
		}
		if err := await(ctx, "the tenant at "+door, func() error { return tenant.ask(ctx, "/api/v1/namespaces/default") }); err != nil {
			return err
		}
	}
	return nil
}
