// Package kubeconfigs writes kubeconfig files that need no other file beside them.
package kubeconfigs

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/certificates"
)

// DefaultContext is the context's name where nobody asks for another.
const DefaultContext = "default"

// Credentials are a bearer token or a client certificate.
type Credentials struct {
	Token       string
	Certificate certificates.Pair
}

// Access is one server and who one is there.
type Access struct {
	// Context is the only and current one's name.
	Context string
	// Server is a URL, with the path to a logical cluster where one is meant.
	Server string
	// CA signed the server's certificate, PEM-encoded.
	CA          []byte
	Credentials Credentials
}

// Write writes a kubeconfig that gives the access.
func Write(file string, access Access) error {
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters[access.Context] = &clientcmdapi.Cluster{Server: access.Server, CertificateAuthorityData: access.CA}
	kubeconfig.AuthInfos[access.Context] = &clientcmdapi.AuthInfo{
		Token:                 access.Credentials.Token,
		ClientCertificateData: access.Credentials.Certificate.Certificate,
		ClientKeyData:         access.Credentials.Certificate.Key,
	}
	kubeconfig.Contexts[access.Context] = &clientcmdapi.Context{Cluster: access.Context, AuthInfo: access.Context}
	kubeconfig.CurrentContext = access.Context
	if err := clientcmd.WriteToFile(*kubeconfig, file); err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", file, err)
	}
	return nil
}
