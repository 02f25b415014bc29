package installation

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
)

// APIServer is one more API server of a simulated shard, in a process of its own. Front doors do not know of it.
type APIServer struct {
	*Process
	// URL stays the same when it is started again.
	URL string

	installation *Installation
	shard        Shard
	flags        []string
}

// StartAPIServer starts one and returns once it serves; flags are those of `devstack api-server`.
func (i *Installation) StartAPIServer(ctx context.Context, shardName string, flags ...string) (*APIServer, error) {
	shard, err := i.Shard(shardName)
	if err != nil {
		return nil, err
	}
	addresses, err := FreeAddresses(1)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(addresses[0])
	if err != nil {
		return nil, err
	}
	server := &APIServer{
		URL: "https://" + addresses[0], installation: i, shard: shard,
		flags: append([]string{"api-server", "--dir", i.Dir, "--shard", shardName, "--port", port}, flags...),
	}
	return server, server.StartAgain(ctx)
}

// StartAgain starts one that has ended, at the same address, and returns once it serves.
func (s *APIServer) StartAgain(ctx context.Context) (err error) {
	log := filepath.Join(s.installation.logs, fmt.Sprintf("api-server-%d.log", len(s.installation.beside)+1))
	if s.Process, err = StartProcess(log, filepath.Join(s.installation.binDir, "devstack"), s.flags...); err != nil {
		return err
	}
	s.installation.beside = append(s.installation.beside, s.Process)
	ctx, cancel := context.WithTimeout(ctx, workerDeadline)
	defer cancel()
	client, err := s.shard.Client()
	if err != nil {
		return err
	}
	err = await(ctx, func() (bool, error) {
		select {
		case <-s.Done():
			return false, fmt.Errorf("it ended: %w", s.Failure())
		default:
		}
		response, err := client.Get(s.URL + "/readyz")
		return err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusOK, nil
	})
	if err != nil {
		return fmt.Errorf("await API server %s of shard %s: %w", s.URL, s.shard.Name, err)
	}
	return nil
}
