package installation

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
)

// runningSimulation is what a part in a process of its own must know of the simulation that it belongs to.
type runningSimulation struct {
	state      State
	adminToken string
	serving    tls.Certificate
	// authority signed serving and all other servers' certificates.
	authority *x509.CertPool
}

func readSimulation(folder string) (runningSimulation, error) {
	content, err := os.ReadFile(filepath.Join(folder, stateName))
	if err != nil {
		return runningSimulation{}, fmt.Errorf("read state: %w", err)
	}
	running := runningSimulation{authority: x509.NewCertPool()}
	if err := json.Unmarshal(content, &running.state); err != nil {
		return runningSimulation{}, fmt.Errorf("read state: %w", err)
	}
	admin, err := clientcmd.BuildConfigFromFlags("", running.state.Kubeconfig)
	if err != nil {
		return runningSimulation{}, fmt.Errorf("read %s: %w", running.state.Kubeconfig, err)
	}
	running.adminToken = admin.BearerToken
	running.authority.AppendCertsFromPEM(admin.CAData)
	running.serving, err = tls.LoadX509KeyPair(filepath.Join(folder, servingName+".crt"), filepath.Join(folder, servingName+".key"))
	if err != nil {
		return runningSimulation{}, fmt.Errorf("load serving certificate: %w", err)
	}
	return running, nil
}
