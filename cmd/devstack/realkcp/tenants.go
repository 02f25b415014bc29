package realkcp

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/fixtures"
)

// What a tenant holds, as the fixtures of the simulation do.
const (
	configMaps     = 40
	secrets        = 10
	events         = 10
	customObjects  = 10
	trapObjects    = 3
	quotaMargin    = 500
	bigConfigMap   = 900_000 // bytes; etcd takes no more than 1.5 MiB
	parallelWrites = 16
)

// Fill makes the workspaces that there are fixtures of: root:provider with the APIExport
// wild, and the tenants root:consumer, root:neighbour and root:remote that bind it.
// root:consumer is fattened by so many ConfigMaps.
func (k *Kcp) Fill(ctx context.Context, entries int) error {
	if err := k.admitWorkers(ctx); err != nil {
		return err
	}
	root := fixtures.Shards[0]
	if err := k.createWorkspace(ctx, "root", "provider", root); err != nil {
		return err
	}
	provider, err := k.workspace("root:provider")
	if err != nil {
		return err
	}
	if err := provider.createManifests(ctx, "provider.yaml"); err != nil {
		return err
	}
	fills, ctx := errgroup.WithContext(ctx)
	fills.Go(func() error { return k.fillConsumerAndNeighbour(ctx, entries) })
	fills.Go(func() error {
		if err := k.createWorkspace(ctx, "root", "remote", fixtures.Shards[1]); err != nil {
			return err
		}
		_, err := k.fillTenant(ctx, "remote", 0)
		return err
	})
	return fills.Wait()
}

// admitWorkers gives workers what they need through a front-proxy.
func (k *Kcp) admitWorkers(ctx context.Context) error {
	for _, servers := range k.APIServers {
		// The rules of this logical cluster of every shard count in all others of it.
		everywhere, err := k.workspaceAt(servers[0], "system:admin", k.ShardAdmin)
		if err != nil {
			return err
		}
		if err := everywhere.createManifests(ctx, "rights.yaml"); err != nil {
			return err
		}
	}
	return nil
}

// fillConsumerAndNeighbour does the consumer first, for the neighbour has a namespace
// that is named like the consumer's logical cluster.
func (k *Kcp) fillConsumerAndNeighbour(ctx context.Context, entries int) error {
	root := fixtures.Shards[0]
	for _, name := range []string{"consumer", "neighbour"} {
		if err := k.createWorkspace(ctx, "root", name, root); err != nil {
			return err
		}
	}
	consumer, err := k.fillTenant(ctx, "consumer", entries)
	if err != nil {
		return err
	}
	big := configMap("default", "big", map[string]any{"blob": strings.Repeat("y", bigConfigMap)})
	if err := consumer.create(ctx, big); err != nil {
		return err
	}
	if err := k.createWorkspace(ctx, "root:consumer", "child", root); err != nil {
		return err
	}
	neighbour, err := k.fillTenant(ctx, "neighbour", 0)
	if err != nil {
		return err
	}
	consumerCluster, err := k.logicalCluster(ctx, "consumer")
	if err != nil {
		return err
	}
	return neighbour.fillTrap(ctx, consumerCluster)
}

func (k *Kcp) fillTenant(ctx context.Context, name string, entries int) (*workspace, error) {
	tenant, err := k.workspace("root:" + name)
	if err != nil {
		return nil, err
	}
	if err := tenant.createManifests(ctx, "tenant.yaml"); err != nil {
		return nil, err
	}
	if err := tenant.createAll(ctx, tenantObjects(name)); err != nil {
		return nil, err
	}
	if err := tenant.fatten(ctx, entries); err != nil {
		return nil, err
	}
	// Last: a quota in force makes every create wait for its count.
	return tenant, tenant.create(ctx, quota(entries+quotaMargin))
}

// fillTrap makes a namespace of which a careless reader of keys would say that it
// belongs to another logical cluster.
func (w *workspace) fillTrap(ctx context.Context, consumerCluster string) error {
	if err := w.create(ctx, newObject("v1", "Namespace", "", consumerCluster, nil)); err != nil {
		return err
	}
	var traps []object
	for i := 1; i <= trapObjects; i++ {
		name := fmt.Sprintf("trap-%d", i)
		traps = append(traps,
			configMap(consumerCluster, name, map[string]any{"i": strconv.Itoa(i)}),
			newObject("wild.west/v1", "Cowboy", consumerCluster, name, spec("intent", "trap")))
	}
	return w.createAll(ctx, traps)
}

// fatten adds the same fillers as the simulation gets, through the API.
func (w *workspace) fatten(ctx context.Context, entries int) error {
	fillers := make([]object, 0, entries)
	for i := 1; i <= entries; i++ {
		filler := fixtures.Filler(i)
		fillers = append(fillers, configMap(filler.Namespace, filler.Name, toAny(filler.Data)))
	}
	return w.createAll(ctx, fillers)
}

func tenantObjects(owner string) []object {
	var objects []object
	add := func(count int, make func(i int) object) {
		for i := 1; i <= count; i++ {
			objects = append(objects, make(i))
		}
	}
	add(configMaps, func(i int) object {
		return configMap("default", fmt.Sprintf("cm-%d", i), map[string]any{"i": strconv.Itoa(i), "owner": owner})
	})
	add(secrets, func(i int) object {
		return newObject("v1", "Secret", "default", fmt.Sprintf("s-%d", i), fields{"stringData": map[string]any{"owner": owner}})
	})
	add(events, func(i int) object { return event(fmt.Sprintf("ev-%d", i), fmt.Sprintf("s-%d", i), owner) })
	add(customObjects, func(i int) object {
		return newObject("acme.io/v1", "Gizmo", "default", fmt.Sprintf("g-%d", i), spec("a", int64(i)))
	})
	add(customObjects, func(i int) object {
		return newObject("wild.west/v1", "Cowboy", "default", fmt.Sprintf("billy-%d", i), spec("intent", owner))
	})
	add(customObjects, func(i int) object {
		return newObject("wild.west/v1", "Sheriff", "", fmt.Sprintf("pat-%d", i), spec("intent", owner))
	})
	return objects
}

func configMap(namespace, name string, data map[string]any) object {
	return newObject("v1", "ConfigMap", namespace, name, fields{"data": data})
}

func event(name, secret, owner string) object {
	return newObject("v1", "Event", "default", name, fields{
		"involvedObject": map[string]any{"kind": "Secret", "name": secret, "namespace": "default"},
		"reason":         "Test",
		"message":        "from " + owner,
		"type":           "Normal",
	})
}

func quota(hard int) object {
	return newObject("v1", "ResourceQuota", "default", "q", fields{
		"spec": map[string]any{"hard": map[string]any{"count/configmaps": strconv.Itoa(hard)}},
	})
}

func spec(field string, value any) fields {
	return fields{"spec": map[string]any{field: value}}
}

func toAny(data map[string]string) map[string]any {
	converted := make(map[string]any, len(data))
	for key, value := range data {
		converted[key] = value
	}
	return converted
}
