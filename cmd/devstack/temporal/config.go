package temporalserver

import (
	"time"

	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/membership/static"
	sqliteplugin "go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/common/primitives"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/ports"
)

// clusterName is what the one Temporal cluster calls itself.
const clusterName = "active"

var dynamicConfig = dynamicconfig.StaticClient{
	// No calling home.
	dynamicconfig.EnableServerVersionCheck.Key(): false,
	// A search attribute is usable as soon as it is added.
	dynamicconfig.ForceSearchAttributesCacheRefreshOnRead.Key(): true,
	// Without this every short timer and retry takes a second.
	dynamicconfig.TimerProcessorMaxTimeShift.Key(): 10 * time.Millisecond,
	// By default a history shard looks 20 times a second for what is to be handed to workers: once a burst is used up, every step
	// of a workflow comes 50 ms late. This server has one shard for all.
	dynamicconfig.TransferProcessorMaxPollRPS.Key(): 2000,
}

var services = []primitives.ServiceName{
	primitives.FrontendService, primitives.HistoryService, primitives.MatchingService, primitives.WorkerService,
}

func newServerConfig(frontendPort int, store store) (*config.Config, error) {
	rpc, err := serviceConfigs(frontendPort)
	if err != nil {
		return nil, err
	}
	frontend := ports.Address(frontendPort)
	serverConfig := &config.Config{
		Services: rpc,
		Persistence: config.Persistence{
			DefaultStore:     sqliteplugin.PluginName,
			VisibilityStore:  sqliteplugin.PluginName,
			NumHistoryShards: 1,
			DataStores:       map[string]config.DataStore{sqliteplugin.PluginName: {SQL: store.sql}},
		},
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10,
			MasterClusterName:        clusterName,
			CurrentClusterName:       clusterName,
			ClusterInformation: map[string]cluster.ClusterInformation{
				clusterName: {Enabled: true, InitialFailoverVersion: 1, RPCAddress: frontend},
			},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		// The server panics without it.
		PublicClient: config.PublicClient{HostPort: frontend},
	}
	serverConfig.Global.Membership = config.Membership{MaxJoinDuration: 30 * time.Second, BroadcastAddress: ports.Loopback}
	disableArchival(serverConfig)
	return serverConfig, nil
}

func disableArchival(serverConfig *config.Config) {
	const disabled = "disabled"
	serverConfig.Archival.History.State = disabled
	serverConfig.Archival.Visibility.State = disabled
	serverConfig.NamespaceDefaults.Archival.History.State = disabled
	serverConfig.NamespaceDefaults.Archival.Visibility.State = disabled
}

// serviceConfigs gives every service a port of its own; only the frontend's is chosen by the caller.
func serviceConfigs(frontendPort int) (map[string]config.Service, error) {
	free, err := ports.FreeSeveral(2 * len(services))
	if err != nil {
		return nil, err
	}
	configs := make(map[string]config.Service, len(services))
	for i, service := range services {
		rpc := config.RPC{GRPCPort: free[2*i], MembershipPort: free[2*i+1], BindOnIP: ports.Loopback}
		if service == primitives.FrontendService {
			rpc.GRPCPort = frontendPort
		}
		configs[string(service)] = config.Service{RPC: rpc}
	}
	return configs, nil
}

func staticHosts(serverConfig *config.Config) map[primitives.ServiceName]static.Hosts {
	hosts := make(map[primitives.ServiceName]static.Hosts, len(services))
	for _, service := range services {
		port := serverConfig.Services[string(service)].RPC.GRPCPort
		hosts[service] = static.SingleLocalHost(ports.Address(port))
	}
	return hosts
}
