package kcp

import (
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// rotatingTransport reads the kubeconfig anew when it, or a file that it names, has changed; open watches stay. client-go
// alone never reads a kubeconfig again, which may hold the certificates itself, and when a file that it names has
// changed it cuts every connection: a canary watch would then seem to be cut by kcp.
type rotatingTransport struct {
	load func() (*rest.Config, error)

	mutex sync.Mutex
	read  []fileState
	inner http.RoundTripper
}

// fileState tells whether a file has changed; one that cannot be looked at has no time.
type fileState struct {
	path     string
	modified time.Time
	size     int64
}

// newRotatingTransport loads what it is to load again, to refuse what cannot be used at the start.
func newRotatingTransport(kubeconfig, kubeContext string) (*rotatingTransport, error) {
	t := &rotatingTransport{
		load: func() (*rest.Config, error) { return loadKubeconfig(kubeconfig, kubeContext) },
		read: []fileState{{path: kubeconfig}},
	}
	return t, t.reload()
}

func (t *rotatingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	return t.current().RoundTrip(request)
}

// current keeps the credentials that were read last while those in the files cannot be used: they may be half written.
func (t *rotatingTransport) current() http.RoundTripper {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	present := look(t.read)
	if slices.Equal(t.read, present) {
		return t.inner
	}
	if err := t.reload(); err != nil {
		t.read = present
		slog.Warn("changed credentials cannot be used, the former ones stay", "kubeconfig", t.read[0].path, "error", err)
	}
	return t.inner
}

func (t *rotatingTransport) reload() error {
	// Looked at before it is read: a change in between is seen the next time.
	before := look(t.read[:1])
	config, err := t.load()
	if err != nil {
		return err
	}
	for _, path := range []string{config.CAFile, config.CertFile, config.KeyFile} {
		if path != "" {
			before = append(before, look([]fileState{{path: path}})...)
		}
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		return err
	}
	// With the data alone client-go does not look after the files.
	config.CAFile, config.CertFile, config.KeyFile = "", "", ""
	inner, err := rest.TransportFor(config)
	if err != nil {
		return err
	}
	if t.inner != nil {
		utilnet.CloseIdleConnectionsFor(t.inner)
	}
	t.read, t.inner = before, inner
	return nil
}

func look(files []fileState) []fileState {
	seen := make([]fileState, len(files))
	for i, file := range files {
		seen[i].path = file.path
		if info, err := os.Stat(file.path); err == nil {
			seen[i].modified, seen[i].size = info.ModTime(), info.Size()
		}
	}
	return seen
}
