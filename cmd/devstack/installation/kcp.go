package installation

import (
	"context"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/etcdserver"
	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/kubeconfigs"
	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/realkcp"
)

// kcp is where a simulated or a real kcp is reached, and how.
type kcp struct {
	frontProxies []string
	// apiServers are the URLs of each shard's.
	apiServers map[string][]string
	// cacheKubeconfig is for a real kcp's cache server.
	cacheKubeconfig string
	// servingCA signed the certificates of all of them.
	servingCA []byte
	// frontProxyAdmin and shardAdmin may do everything there.
	frontProxyAdmin kubeconfigs.Credentials
	shardAdmin      kubeconfigs.Credentials
	// frontProxyWorker may do what workers need there.
	frontProxyWorker kubeconfigs.Credentials
}

func (i *Installation) startRealKcp(ctx context.Context) (kcp, error) {
	binaries, err := realkcp.FindBinaries()
	if err != nil {
		return kcp{}, err
	}
	cacheEtcd, err := i.startEtcd(ctx, etcdserver.Config{Name: "cache", Members: 1})
	if err != nil {
		return kcp{}, err
	}
	config := realkcp.Config{
		Binaries:        binaries,
		Folder:          i.folder("kcp"),
		LogFolder:       i.folder("logs"),
		CacheEtcd:       cacheEtcd.Endpoints(),
		ShardEtcds:      i.etcds,
		Encryption:      i.options.EncryptionConfigs,
		EtcdPrefixes:    i.options.EtcdPrefixes,
		APIServers:      i.options.APIServers,
		LeaderElection:  i.options.LeaderElection,
		FrontProxyPorts: i.options.Ports.FrontDoors,
	}
	running, err := realkcp.Start(ctx, config)
	if err != nil {
		return kcp{}, err
	}
	i.onStop(func() error { running.Stop(); return nil })
	i.watch(running.Failed())
	if err := running.Fill(ctx, i.options.Entries); err != nil {
		return kcp{}, err
	}
	return kcp{
		frontProxies: running.FrontProxies,
		apiServers:   running.APIServers,

		cacheKubeconfig: running.CacheKubeconfig,

		servingCA:       running.ServingCA,
		frontProxyAdmin: kubeconfigs.Credentials{Certificate: running.FrontProxyAdmin},
		shardAdmin:      kubeconfigs.Credentials{Certificate: running.ShardAdmin},

		frontProxyWorker: kubeconfigs.Credentials{Certificate: running.FrontProxyWorker},
	}, nil
}

// writeKubeconfigs writes admin.kubeconfig and, for workers, front-proxy.kubeconfig, which lead through the front door
// to the workspace root, and one that leads straight to each shard.
func writeKubeconfigs(state State, kcp kcp) error {
	admin := kubeconfigs.Access{
		Context:     kubeconfigs.DefaultContext,
		Server:      kcp.frontProxies[0] + "/clusters/root",
		CA:          kcp.servingCA,
		Credentials: kcp.frontProxyAdmin,
	}
	if err := kubeconfigs.Write(state.Kubeconfig, admin); err != nil {
		return err
	}
	worker := admin
	worker.Credentials = kcp.frontProxyWorker
	if err := kubeconfigs.Write(state.frontProxyKubeconfig(), worker); err != nil {
		return err
	}
	for _, shard := range state.Shards {
		shardAdmin := kubeconfigs.Access{
			Context:     kubeconfigs.DefaultContext,
			Server:      shard.APIServers[0],
			CA:          kcp.servingCA,
			Credentials: kcp.shardAdmin,
		}
		if err := kubeconfigs.Write(shard.Kubeconfig, shardAdmin); err != nil {
			return err
		}
	}
	return nil
}
