package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

// guardian watches the origin's etcd: when the first of the tenant's entries goes, the commit must have landed.
type guardian struct {
	bench  *bench
	tenant string
	leg    leg
	layout keyspace.Layout

	cancel   context.CancelFunc
	done     chan struct{}
	problems []string
}

func (b *bench) guard(ctx context.Context, tenant string, leg leg) *guardian {
	ctx, cancel := context.WithCancel(ctx)
	g := &guardian{bench: b, tenant: tenant, leg: leg, layout: keyspace.NewLayout("/registry"), cancel: cancel, done: make(chan struct{})}
	watch := b.clients[leg.origin].Watch(ctx, "/registry/", clientv3.WithPrefix(), clientv3.WithFilterPut(), clientv3.WithPrevKV())
	go func() {
		defer close(g.done)
		for response := range watch {
			for _, event := range response.Events {
				if g.guards(event) {
					g.accuse(ctx, string(event.Kv.Key))
					return
				}
			}
		}
	}()
	return g
}

func (g *guardian) stop() {
	g.cancel()
	<-g.done
}

// guards leaves out what the tenant's own writer deletes and what goes by its lease.
func (g *guardian) guards(event *clientv3.Event) bool {
	key := string(event.Kv.Key)
	entry, err := g.layout.Parse(key)
	return err == nil && entry.LogicalCluster == g.tenant && !strings.Contains(key, "/default/written-") &&
		(event.PrevKv == nil || event.PrevKv.Lease == 0)
}

// accuse asks for the commit after the deletion was seen: where there is none now, there was none then.
func (g *guardian) accuse(ctx context.Context, key string) {
	for ctx.Err() == nil {
		open, err := g.open(ctx)
		if err == nil && !open {
			g.problems = append(g.problems, fmt.Sprintf("%s was deleted on shard %s, and no commit has landed", key, g.leg.origin))
		}
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollEvery):
		}
	}
}

// open is whether the destination's LogicalCluster is the tenant's, without a fence.
func (g *guardian) open(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askDeadline)
	defer cancel()
	found, err := g.bench.clients[g.leg.destination].Get(ctx, logicalClusterKey(g.tenant))
	if err != nil || len(found.Kvs) == 0 {
		return false, err
	}
	var object struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(found.Kvs[0].Value, &object); err != nil {
		return false, err
	}
	return object.Metadata.Annotations["core.kcp.io/inactive"] == "", nil
}
