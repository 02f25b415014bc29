package realkcp

import (
	"path/filepath"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/certificates"
	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/kubeconfigs"
	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/ports"
)

// Groups that kcp gives rights to, from its pkg/authorization/bootstrap, and
// Kubernetes' own of those who may do everything.
const (
	groupMasters                     = "system:masters"
	groupKcpAdmin                    = "system:kcp:admin"
	groupLogicalClusterAdmin         = "system:kcp:logical-cluster-admin"
	groupExternalLogicalClusterAdmin = "system:kcp:external-logical-cluster-admin"
)

// workerUser is whom rights.yaml gives what a worker needs through a front-proxy.
const workerUser = "kcp-migrate"

// frontProxyName is the only one that shards and front-proxies let speak for other users.
const frontProxyName = "kcp-front-proxy"

// pki is the certificates by which kcp's processes and their users know each other.
type pki struct {
	folder string

	serving       *certificates.Authority
	client        *certificates.Authority
	requestHeader *certificates.Authority

	// shardAdmin may do everything on a shard, kcpAdmin everything through the front-proxy.
	shardAdmin certificates.Pair
	// worker has the rights that rights.yaml gives.
	worker   certificates.Pair
	kcpAdmin certificates.Pair

	servingCAFile       string
	clientCAFile        string
	requestHeaderCAFile string

	// server is presented by every process: all of them are on loopback.
	server certificates.Files
	// shardClient is who a shard is to others.
	shardClient certificates.Files
	// frontProxyClient is who a front-proxy is to shards.
	frontProxyClient certificates.Files
	// serviceAccount signs tokens; the shards share it, so that a moved token stays good.
	serviceAccount certificates.Files
}

func newPKI(folder string) (*pki, error) {
	p := &pki{folder: folder}
	if err := p.makeAuthorities(); err != nil {
		return nil, err
	}
	var err error
	issue := func(authority *certificates.Authority, subject certificates.Subject) (pair certificates.Pair) {
		if err == nil {
			pair, err = authority.Issue(subject)
		}
		return pair
	}
	write := func(pair certificates.Pair, name string) (files certificates.Files) {
		if err == nil {
			files, err = pair.Write(folder, name)
		}
		return files
	}
	p.shardAdmin = issue(p.client, certificates.Subject{Name: "shard-admin", Groups: []string{groupMasters}})
	p.worker = issue(p.client, certificates.Subject{Name: workerUser})
	p.kcpAdmin = issue(p.client, certificates.Subject{Name: "kcp-admin", Groups: []string{groupKcpAdmin}})

	p.server = write(issue(p.serving, certificates.Subject{Name: "kcp", Hosts: []string{ports.Loopback, "localhost"}}), "server")
	p.shardClient = write(issue(p.client, certificates.Subject{Name: "kcp-shard", Groups: []string{groupMasters}}), "shard-client")
	p.frontProxyClient = write(issue(p.requestHeader, certificates.Subject{Name: frontProxyName}), "front-proxy-client")
	p.serviceAccount = write(issue(p.serving, certificates.Subject{Name: "service-account"}), "service-account")
	return p, err
}

func (p *pki) makeAuthorities() (err error) {
	authorities := []struct {
		authority **certificates.Authority
		file      *string
		name      string
	}{
		{&p.serving, &p.servingCAFile, "serving-ca"},
		{&p.client, &p.clientCAFile, "client-ca"},
		{&p.requestHeader, &p.requestHeaderCAFile, "requestheader-ca"},
	}
	for _, a := range authorities {
		if *a.authority, err = certificates.NewAuthority("kcp-" + a.name); err != nil {
			return err
		}
		files, err := (*a.authority).Write(p.folder, a.name)
		if err != nil {
			return err
		}
		*a.file = files.Certificate
	}
	return nil
}

// kubeconfig writes one that makes its bearer a member of group at the server, and gives its path.
func (p *pki) kubeconfig(name, context, server, group string) (string, error) {
	certificate, err := p.client.Issue(certificates.Subject{Name: name, Groups: []string{group}})
	if err != nil {
		return "", err
	}
	file := filepath.Join(p.folder, name+".kubeconfig")
	return file, kubeconfigs.Write(file, kubeconfigs.Access{
		Context:     context,
		Server:      server,
		CA:          p.serving.Certificate,
		Credentials: kubeconfigs.Credentials{Certificate: certificate},
	})
}
