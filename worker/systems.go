package worker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"

	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/etcd"
	"github.com/kcp-migrate/kcp-migrate/activities/kcp"
)

// systems are what a worker works with.
type systems struct {
	temporal  client.Client
	store     *etcd.Store
	api       activities.ShardAPI
	directory activities.Directory
	// cache is nil where the configuration names none.
	cache activities.Cache
}

// dial reaches all of them at once and proves that each answers and suits this worker.
func dial(ctx context.Context, config *Config, logger *slog.Logger, metrics client.MetricsHandler) (*systems, error) {
	api, err := kcp.NewShard(kcp.ShardConfig{Name: config.Shard, Kubeconfig: config.Kubeconfig, Servers: config.APIServers})
	if err != nil {
		return nil, activities.Refuse(activities.InvalidInput, "use --kubeconfig: %v", err)
	}
	directory, err := OpenDirectory(config)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(ctx, startPatience)
	defer stop()
	s := &systems{api: api, directory: directory}
	var dialling errgroup.Group
	dialling.Go(func() (err error) { s.store, err = openStore(ctx, config); return err })
	dialling.Go(func() error { return checkShard(ctx, config, api) })
	dialling.Go(func() error { return checkDirectory(ctx, config, directory) })
	dialling.Go(func() (err error) { s.cache, err = openCache(ctx, config); return err })
	dialling.Go(func() (err error) { s.temporal, err = dialTemporal(ctx, &config.Temporal, logger, metrics); return err })
	if err := dialling.Wait(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *systems) close() error {
	if s.temporal != nil {
		s.temporal.Close()
	}
	if s.store == nil {
		return nil
	}
	return s.store.Close()
}

// checks are what readiness depends on.
func (s *systems) checks() []check {
	return []check{
		{"temporal", func(ctx context.Context) error {
			_, err := s.temporal.CheckHealth(ctx, &client.CheckHealthRequest{})
			return err
		}},
		{"etcd", func(ctx context.Context) error { _, err := s.store.Health(ctx); return err }},
		{"kcp", func(ctx context.Context) error { _, err := s.api.Version(ctx); return err }},
	}
}

// OpenStore reaches the etcd of the shard that a worker is configured for.
func OpenStore(ctx context.Context, config *Config) (store activities.Store, hangUp func() error, err error) {
	opened, err := openStore(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	return opened, opened.Close, nil
}

func openStore(ctx context.Context, config *Config) (*etcd.Store, error) {
	if _, err := config.etcdPassword(); err != nil {
		return nil, activities.Refuse(activities.InvalidInput, "%v", err)
	}
	encryption, err := config.encryption()
	if err != nil {
		return nil, err
	}
	store, err := etcd.Open(ctx, etcd.Config{
		Endpoints:  config.EtcdEndpoints,
		Prefix:     config.EtcdPrefix,
		CAFile:     config.EtcdCAFile,
		CertFile:   config.EtcdCertFile,
		KeyFile:    config.EtcdKeyFile,
		Username:   config.EtcdUsername,
		Password:   config.etcdPassword,
		Encryption: encryption,

		MaxEntriesPerSecond: config.MaxEntriesPerSecond,
		MaxBytesPerSecond:   config.MaxBytesPerSecond,
		Unbraked:            !config.Brake,
	})
	if err != nil {
		return nil, unreachable(err, "reach etcd of shard %s: %v: check the --etcd-… flags", config.Shard, err)
	}
	return store, nil
}

// OpenDirectory prepares what a worker's configuration says of the front-proxies; it does not dial.
func OpenDirectory(config *Config) (activities.Directory, error) {
	directory, err := kcp.NewDirectory(kcp.DirectoryConfig{Kubeconfig: config.FrontProxyKubeconfig, Servers: config.FrontProxies})
	if err != nil {
		return nil, activities.Refuse(activities.InvalidInput, "use --front-proxy-kubeconfig: %v", err)
	}
	return directory, nil
}

func openCache(ctx context.Context, config *Config) (activities.Cache, error) {
	if config.CacheKubeconfig == "" {
		return nil, nil
	}
	cache, err := kcp.NewCache(kcp.CacheConfig{Kubeconfig: config.CacheKubeconfig})
	if err != nil {
		return nil, activities.Refuse(activities.InvalidInput, "use --cache-kubeconfig: %v", err)
	}
	if err := cache.Check(ctx); err != nil {
		return nil, unreachable(err, "reach kcp's cache server: %v: check --cache-kubeconfig", err)
	}
	return cache, nil
}

func dialTemporal(ctx context.Context, config *TemporalConfig, logger *slog.Logger, metrics client.MetricsHandler) (client.Client, error) {
	temporal, err := config.Dial(ctx, logger, metrics)
	if err != nil {
		return nil, err
	}
	namespace, err := config.EffectiveNamespace()
	if err != nil {
		return nil, err
	}
	if err := checkNamespace(ctx, temporal, namespace); err != nil {
		temporal.Close()
		return nil, err
	}
	return temporal, nil
}

func checkShard(ctx context.Context, config *Config, api activities.ShardAPI) error {
	if _, err := api.Version(ctx); err != nil {
		return unreachable(err, "reach kcp's shard %s: %v: check --kubeconfig and --api-servers", config.Shard, err)
	}
	return nil
}

// checkDirectory also catches a misspelt shard, whose worker would wait for work for ever.
func checkDirectory(ctx context.Context, config *Config, directory activities.Directory) error {
	shards, err := directory.Shards(ctx)
	if err != nil {
		return unreachable(err, "reach kcp's front-proxy: %v: check --front-proxy-kubeconfig and --front-proxies", err)
	}
	names := make([]string, len(shards))
	for i, shard := range shards {
		names[i] = shard.Name
	}
	if !slices.Contains(names, config.Shard) {
		return activities.Refuse(activities.ShardNotFound, "find shard %s: kcp has no such Shard: --shard is one of %s",
			config.Shard, strings.Join(names, ", "))
	}
	return nil
}

// unreachable gives the error the type that clients tell it by.
func unreachable(cause error, format string, args ...any) error {
	if errors.Is(cause, activities.ErrForbidden) {
		return activities.Refuse(activities.Forbidden, format, args...)
	}
	return activities.Refuse(activities.Unreachable, format, args...)
}
