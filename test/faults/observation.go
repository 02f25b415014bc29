package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
	"github.com/kcp-migrate/kcp-migrate/test/installation"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

const (
	// settleDeadline is how soon after a move everything must serve; all faults are healed by then.
	settleDeadline = 10 * time.Second
	// sightDeadline is how soon a watch must show a new object. An informer that was refused often waits up to 30 s
	// before it tries again (client-go's reflector).
	sightDeadline = 45 * time.Second
	// writtenLabel is on what installation.Writer writes.
	writtenLabel = "kcp-migrate.io/written-by-test"
)

// observation is everybody who works and looks on while a tenant moves.
type observation struct {
	bench  *bench
	tenant string
	path   Tenant
	leg    leg

	before    map[string]installation.Export
	writer    *installation.Writer
	neighbour *installation.Writer
	watcher   *installation.Watcher
	guardian  *guardian
}

// observe sends writers to the tenant and to one beside it, and follows the tenant's watches and the origin's entries.
func (b *bench) observe(ctx context.Context, path Tenant, leg leg) (*observation, error) {
	o := &observation{bench: b, tenant: tenants[path], path: path, leg: leg}
	var err error
	if o.before, err = b.exportAll(ctx); err != nil {
		return nil, err
	}
	if o.watcher, err = b.StartWatcher(ctx, string(path)); err != nil {
		return nil, err
	}
	if o.writer, err = b.StartWriter(ctx, string(path)); err != nil {
		return nil, errors.Join(err, o.stop())
	}
	if o.neighbour, err = b.StartWriter(ctx, string(beside[path])); err != nil {
		return nil, errors.Join(err, o.stop())
	}
	o.guardian = b.guard(ctx, o.tenant, leg)
	return o, nil
}

func (o *observation) stop() error {
	o.watcher.Stop()
	for _, writer := range []*installation.Writer{o.writer, o.neighbour} {
		if writer != nil {
			writer.Stop()
		}
	}
	if o.guardian != nil {
		o.guardian.stop()
	}
	return nil
}

// check holds everything that was seen and is left against the invariants of README.md.
func (o *observation) check(ctx context.Context, outcome *outcome) error {
	o.checkServed(ctx, outcome)
	o.checkWatches(ctx, outcome)
	if err := o.stop(); err != nil {
		return err
	}
	o.checkWrites(ctx, outcome)
	for _, problem := range o.guardian.problems {
		outcome.violate("1: %s", problem)
	}
	if err := o.checkEntries(ctx, outcome); err != nil {
		return err
	}
	if err := o.bench.checkTimeAway(ctx, outcome); err != nil {
		return err
	}
	if err := o.bench.checkSecrecy(outcome); err != nil {
		return err
	}
	return o.tidy(ctx)
}

// shard is where the tenant must be now.
func (o *observation) shard(outcome *outcome) (here, there string) {
	if outcome.result.Phase == workflows.Completed {
		return o.leg.destination, o.leg.origin
	}
	return o.leg.origin, o.leg.destination
}

func (o *observation) checkServed(ctx context.Context, outcome *outcome) {
	ctx, cancel := context.WithTimeout(ctx, settleDeadline)
	defer cancel()
	ask := func(server, workspace, path string) {
		client, err := o.bench.clientAt(server, workspace)
		if err == nil {
			err = await(ctx, server, func() error { return client.ask(ctx, path) })
		}
		if err != nil {
			outcome.violate("6: %s is not served: %v", workspace, err)
		}
	}
	for _, door := range []string{o.bench.FrontProxies[0], o.bench.frontDoorURL} {
		ask(door, string(o.path), "/api/v1/namespaces/default")
		ask(door, string(beside[o.path]), "/api/v1/namespaces/default")
	}
	here, _ := o.shard(outcome)
	for _, shard := range o.bench.Shards {
		for _, server := range shard.APIServers {
			ask(server, "*", "/api/v1/configmaps?limit=1")
			if shard.Name == here {
				ask(server, o.tenant, "/api/v1/namespaces/default")
			}
		}
	}
}

func (o *observation) checkWatches(ctx context.Context, outcome *outcome) {
	ctx, cancel := context.WithTimeout(ctx, sightDeadline)
	defer cancel()
	name := fmt.Sprintf("seen-%d-%d", outcome.schedule.number, time.Now().UnixNano())
	if _, err := o.watcher.Probe(ctx, name); err != nil {
		outcome.violate("9: %v", err)
	}
	if deleted := o.watcher.FalseDeletes(o.writer.Deleted()); len(deleted) > 0 {
		outcome.violate("9: watches reported %d false deletes, of %s among them", len(deleted), deleted[0])
	}
}

// checkWrites excuses what the result names as a straggler.
func (o *observation) checkWrites(ctx context.Context, outcome *outcome) {
	for whose, writer := range map[string]*installation.Writer{"the tenant": o.writer, "the neighbour": o.neighbour} {
		problems, err := writer.Verify(ctx)
		if err != nil {
			outcome.violate("2: %v", err)
		}
		for _, problem := range problems {
			if !named(outcome.result, problem) {
				outcome.violate("2: of %s: %s", whose, problem)
			}
		}
	}
}

func named(result workflows.Result, problem string) bool {
	return slices.ContainsFunc(result.Stragglers, func(straggler activities.Straggler) bool {
		_, name, _ := strings.Cut(straggler.Ref.Suffix, "/")
		return strings.HasSuffix(problem, ": "+name)
	})
}

// checkEntries compares both etcds with what they were.
func (o *observation) checkEntries(ctx context.Context, outcome *outcome) error {
	after, err := o.bench.exportAll(ctx)
	if err != nil {
		return err
	}
	here, there := o.shard(outcome)
	was, is := lasting(o.before[o.leg.origin].Tenant(o.tenant)), lasting(after[here].Tenant(o.tenant))
	if difference := installation.Difference(was, is); len(difference) > 0 {
		outcome.violate("2: on shard %s %d entries differ: %s", here, len(difference), difference[0])
	}
	if left := after[there].Tenant(o.tenant); len(left) > 0 {
		outcome.violate("shard %s holds %d keys of the tenant, %s among them", there, len(left), slices.Min(slices.Collect(maps.Keys(left))))
	}
	for shard, export := range after {
		if claims := export.Claims(); len(claims) > 0 {
			outcome.violate("claims are left on shard %s: %v", shard, claims)
		}
		touched := installation.Difference(lasting(o.before[shard].Neighbours(o.tenant)), lasting(export.Neighbours(o.tenant)))
		if len(touched) > 0 {
			outcome.violate("3: on shard %s %d entries of others differ: %s", shard, len(touched), touched[0])
		}
	}
	if len(outcome.result.NotUndone) > 0 {
		outcome.violate("not undone: %v", outcome.result.NotUndone)
	}
	return nil
}

// lasting leaves out what rightly differs: the LogicalCluster, which says where it lives; the certificate of the shard's
// own CA; quotas, which count; what the bench's clients write; and what has a lease.
func lasting(entries map[string]installation.Exported) map[string]installation.Exported {
	maps.DeleteFunc(entries, func(key string, exported installation.Exported) bool {
		return exported.Leased || strings.Contains(key, "/"+keyspace.LogicalClusters.String()+"/") ||
			strings.HasSuffix(key, "/kube-root-ca.crt") || strings.Contains(key, "/core/resourcequotas/") ||
			strings.Contains(key, "/default/written-") || strings.Contains(key, "/default/seen-")
	})
	return entries
}

func (b *bench) exportAll(ctx context.Context) (map[string]installation.Export, error) {
	exports := map[string]installation.Export{}
	for _, shard := range b.Shards {
		export, err := shard.Export(ctx)
		if err != nil {
			return nil, err
		}
		exports[shard.Name] = export
	}
	return exports, nil
}

// tidy deletes what the writers left, so that tenants do not grow from case to case.
func (o *observation) tidy(ctx context.Context) error {
	for _, path := range []Tenant{o.path, beside[o.path]} {
		tenant, err := o.bench.Tenant(string(path))
		if err != nil {
			return err
		}
		written := metav1.ListOptions{LabelSelector: writtenLabel}
		if err := tenant.CoreV1().ConfigMaps("default").DeleteCollection(ctx, metav1.DeleteOptions{}, written); err != nil {
			return fmt.Errorf("tidy %s: %w", path, err)
		}
	}
	return nil
}
