package installation

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/certificates"
)

// kcp is where a simulated or a real kcp is reached, and how.
type kcp struct {
	frontProxies []string
	// apiServers are the URLs of each shard's.
	apiServers map[string][]string
	// servingCA is what signed the certificates of all of them.
	servingCA []byte
	// frontProxyAdmin and shardAdmin may do everything there.
	frontProxyAdmin credentials
	shardAdmin      credentials
}

// credentials are a bearer token or a client certificate.
type credentials struct {
	token       string
	certificate certificates.Pair
}

// writeKubeconfigs writes admin.kubeconfig, which leads through the front door to the
// workspace root, and one that leads straight to each shard.
func writeKubeconfigs(state State, kcp kcp) error {
	root := kcp.frontProxies[0] + "/clusters/root"
	if err := writeKubeconfig(state.Kubeconfig, root, kcp.servingCA, kcp.frontProxyAdmin); err != nil {
		return err
	}
	for _, shard := range state.Shards {
		if err := writeKubeconfig(shard.Kubeconfig, shard.APIServers[0], kcp.servingCA, kcp.shardAdmin); err != nil {
			return err
		}
	}
	return nil
}

func writeKubeconfig(file, server string, servingCA []byte, admin credentials) error {
	const name = "default"
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: servingCA}
	kubeconfig.AuthInfos[name] = &clientcmdapi.AuthInfo{
		Token:                 admin.token,
		ClientCertificateData: admin.certificate.Certificate,
		ClientKeyData:         admin.certificate.Key,
	}
	kubeconfig.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	kubeconfig.CurrentContext = name
	if err := clientcmd.WriteToFile(*kubeconfig, file); err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", file, err)
	}
	return nil
}
