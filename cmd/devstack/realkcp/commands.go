package realkcp

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/fixtures"
	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/kubeconfigs"
	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/ports"
)

// shardBase is the context that a shard looks for in --root-shard-kubeconfig-file.
const shardBase = "shard-base"

// startCacheServer starts the process that shards share some objects through.
func (k *Kcp) startCacheServer() (cacheURL string, err error) {
	port, err := ports.Free()
	if err != nil {
		return "", err
	}
	err = k.run("cache-server", append([]string{
		k.config.Binaries.CacheServer,
		"--root-directory=" + filepath.Join(k.config.Folder, "cache-server"),
		"--client-ca-file=" + k.pki.clientCAFile,
		"--etcd-servers=" + strings.Join(k.config.CacheEtcd, ","),
		"--etcd-prefix=/cache",
	}, k.serving(port)...)...)
	return urlOf(port), err
}

// startShards starts the root shard, and the others once it is ready: their informers
// back off for half a minute if they do not find there what they need.
func (k *Kcp) startShards(ctx context.Context, cacheURL string) error {
	files, err := k.shardKubeconfigs(cacheURL)
	if err != nil {
		return err
	}
	for _, shard := range fixtures.Shards {
		for i, port := range k.apiServerPorts[shard] {
			name := fmt.Sprintf("%s-%d", shard, i)
			command := append([]string{k.config.Binaries.Kcp, "start"}, k.shardFlags(shard, name, files)...)
			if err := k.run(name, append(command, k.serving(port)...)...); err != nil {
				return err
			}
		}
		if err := k.awaitReady(ctx, k.APIServers[shard]...); err != nil {
			return err
		}
	}
	return nil
}

// shardKubeconfigs are the files by which a shard reaches others.
type shardKubeconfigs struct {
	cache                       string
	rootShard                   string
	logicalClusterAdmin         string
	externalLogicalClusterAdmin string
}

func (k *Kcp) shardKubeconfigs(cacheURL string) (files shardKubeconfigs, err error) {
	rootShardURL := k.APIServers[fixtures.Shards[0]][0]
	kubeconfigsToWrite := []struct {
		file                         *string
		name, context, server, group string
	}{
		{&files.cache, "cache-client", kubeconfigs.DefaultContext, cacheURL, groupMasters},
		{&files.rootShard, "root-shard-admin", shardBase, rootShardURL, groupMasters},
		// Named is the root shard; kcp uses the credentials at the other shards too.
		{&files.logicalClusterAdmin, "logical-cluster-admin", kubeconfigs.DefaultContext, rootShardURL, groupLogicalClusterAdmin},
		{&files.externalLogicalClusterAdmin, "external-logical-cluster-admin", kubeconfigs.DefaultContext, k.FrontProxies[0], groupExternalLogicalClusterAdmin},
	}
	for _, w := range kubeconfigsToWrite {
		if *w.file, err = k.pki.kubeconfig(w.name, w.context, w.server, w.group); err != nil {
			return shardKubeconfigs{}, err
		}
	}
	k.CacheKubeconfig = files.cache
	return files, nil
}

func (k *Kcp) shardFlags(shard, name string, files shardKubeconfigs) []string {
	flags := []string{
		"--shard-name=" + shard,
		"--root-directory=" + filepath.Join(k.config.Folder, name),
		"--etcd-servers=" + strings.Join(k.config.ShardEtcds[shard], ","),
		"--etcd-prefix=" + cmp.Or(k.config.EtcdPrefixes[shard], fixtures.Prefix),
		"--shard-base-url=" + k.APIServers[shard][0],
		"--shard-external-url=" + k.FrontProxies[0],
		"--shard-client-cert-file=" + k.pki.shardClient.Certificate,
		"--shard-client-key-file=" + k.pki.shardClient.Key,
		"--shard-virtual-workspace-ca-file=" + k.pki.servingCAFile,
		"--client-ca-file=" + k.pki.clientCAFile,
		"--service-account-key-file=" + k.pki.serviceAccount.Certificate,
		"--service-account-private-key-file=" + k.pki.serviceAccount.Key,
		"--service-account-signing-key-file=" + k.pki.serviceAccount.Key,
		"--cache-kubeconfig=" + files.cache,
		"--logical-cluster-admin-kubeconfig=" + files.logicalClusterAdmin,
		"--external-logical-cluster-admin-kubeconfig=" + files.externalLogicalClusterAdmin,
	}
	if shard != fixtures.Shards[0] {
		flags = append(flags, "--root-shard-kubeconfig-file="+files.rootShard)
	}
	if k.config.LeaderElection {
		flags = append(flags, "--enable-leader-election")
	}
	if file := k.config.Encryption[shard]; file != "" {
		flags = append(flags, "--encryption-provider-config="+file)
	}
	return append(flags, k.requestHeaders()...)
}

func (k *Kcp) startFrontProxies() error {
	rootKubeconfig, err := k.pki.kubeconfig("front-proxy-root", kubeconfigs.DefaultContext, k.APIServers[fixtures.Shards[0]][0], groupMasters)
	if err != nil {
		return err
	}
	// The server's address is replaced by each shard's.
	shardsKubeconfig, err := k.pki.kubeconfig("front-proxy-shards", kubeconfigs.DefaultContext, k.APIServers[fixtures.Shards[0]][0], groupMasters)
	if err != nil {
		return err
	}
	mapping, err := k.writeMapping()
	if err != nil {
		return err
	}
	for i, port := range k.config.FrontProxyPorts {
		name := fmt.Sprintf("front-proxy-%d", i)
		flags := append([]string{
			k.config.Binaries.FrontProxy,
			"--root-directory=" + filepath.Join(k.config.Folder, name),
			"--mapping-file=" + mapping,
			"--root-kubeconfig=" + rootKubeconfig,
			"--shards-kubeconfig=" + shardsKubeconfig,
			"--client-ca-file=" + k.pki.clientCAFile,
		}, k.requestHeaders()...)
		if err := k.run(name, append(flags, k.serving(port)...)...); err != nil {
			return err
		}
	}
	return nil
}

// writeMapping tells front-proxies to send /clusters/ to the shards, whose addresses
// they learn from the Shard objects, not from here.
func (k *Kcp) writeMapping() (string, error) {
	content, err := yaml.Marshal([]map[string]string{{
		"path":              "/clusters/",
		"backend":           k.APIServers[fixtures.Shards[0]][0],
		"backend_server_ca": k.pki.servingCAFile,
		"proxy_client_cert": k.pki.frontProxyClient.Certificate,
		"proxy_client_key":  k.pki.frontProxyClient.Key,
	}})
	if err != nil {
		return "", err
	}
	file := filepath.Join(k.config.Folder, "front-proxy-mapping.yaml")
	return file, os.WriteFile(file, content, 0o600)
}

// serving has the flags of every process that listens.
func (k *Kcp) serving(port int) []string {
	return []string{
		"--bind-address=" + ports.Loopback,
		"--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + k.pki.server.Certificate,
		"--tls-private-key-file=" + k.pki.server.Key,
	}
}

// requestHeaders lets front-proxies, and nobody else, say whom they speak for.
func (k *Kcp) requestHeaders() []string {
	return []string{
		"--requestheader-client-ca-file=" + k.pki.requestHeaderCAFile,
		"--requestheader-allowed-names=" + frontProxyName,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
	}
}
