package main

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.temporal.io/sdk/activity"

	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

// anyConfigMap is one that most tenants of the fixtures have.
const anyConfigMap = "default/cm-1"

type family = keyspace.Family

var (
	configMaps = family{Group: "core", Resource: "configmaps"}
	secrets    = family{Group: "core", Resource: "secrets"}
)

func activityName(ctx context.Context) string { return activity.GetInfo(ctx).ActivityType.Name }

func firstAttempt(ctx context.Context) bool { return activity.GetInfo(ctx).Attempt == 1 }

// deleteOfAnother deletes the first ConfigMap of some other tenant, past all guards.
func deleteOfAnother(ctx context.Context, endpoints []string, logicalCluster string) (err error) {
	etcd, err := clientv3.New(clientv3.Config{Context: ctx, Endpoints: endpoints})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, etcd.Close()) }()
	layout := keyspace.NewLayout("")
	found, err := etcd.Get(ctx, layout.ResourcePrefix(configMaps.Group, configMaps.Resource), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return err
	}
	for _, entry := range found.Kvs {
		parsed, err := layout.Parse(string(entry.Key))
		if err != nil || parsed.LogicalCluster == logicalCluster || keyspace.IsSystem(parsed.LogicalCluster) {
			continue
		}
		if parsed.Suffix == anyConfigMap {
			_, err := etcd.Delete(ctx, string(entry.Key))
			return err
		}
	}
	return nil
}
