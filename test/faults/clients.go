package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

// askDeadline bounds one request of the bench's own.
const askDeadline = 5 * time.Second

// asker asks for paths of a logical cluster.
type asker struct {
	client *http.Client
	base   string
}

// clientAt asks at a front door or an API server; "*" is every logical cluster.
func (b *bench) clientAt(server, workspace string) (asker, error) {
	config, err := b.TenantConfig(workspace)
	if err != nil {
		return asker{}, err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return asker{}, fmt.Errorf("make client of %s: %w", server, err)
	}
	client.Timeout = askDeadline
	return asker{client: client, base: server + "/clusters/" + workspace}, nil
}

// ask gives an error for anything but 200.
func (a asker) ask(ctx context.Context, path string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.base+path, nil)
	if err != nil {
		return err
	}
	response, err := a.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("ask for %s%s: status %d", a.base, path, response.StatusCode)
	}
	return nil
}
