package temporalserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	uiserver "github.com/temporalio/ui-server/v2/server"
	uiconfig "github.com/temporalio/ui-server/v2/server/config"
	"github.com/temporalio/ui-server/v2/server/server_options"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/ports"
)

const (
	// startTimeout bounds the wait for a part to serve; a loaded machine takes a few seconds.
	startTimeout = 60 * time.Second
	pollInterval = 20 * time.Millisecond
)

// webUI is Temporal's own web UI; its assets are compiled in and it asks no other host.
type webUI struct {
	server *uiserver.Server
	done   chan error
}

func startWebUI(ctx context.Context, port int, temporalAddress string) (*webUI, error) {
	ui := &webUI{done: make(chan error, 1), server: uiserver.NewServer(server_options.WithConfigProvider(&uiconfig.Config{
		Host:                ports.Loopback,
		Port:                port,
		TemporalGRPCAddress: temporalAddress,
		EnableUI:            true,
		HideLogs:            true,
		DisableNewsFetch:    true,
		DefaultNamespace:    Namespace,
		CORS:                uiconfig.CORS{CookieInsecure: true},
	}))}
	go func() { ui.done <- ui.server.Start() }()

	healthz := "http://" + ports.Address(port) + "/healthz"
	if err := poll(ctx, func(ctx context.Context) error { return get(ctx, healthz) }); err != nil {
		return nil, errors.Join(fmt.Errorf("await Temporal web UI at %s: %w", healthz, err), ui.stop())
	}
	return ui, nil
}

func (u *webUI) stop() error {
	u.server.Stop()
	return <-u.done
}

// awaitFrontend returns once the frontend answers for the namespace, which is what clients need.
func awaitFrontend(ctx context.Context, address string) error {
	temporalClient, err := client.NewLazyClient(client.Options{HostPort: address, Namespace: Namespace})
	if err != nil {
		return fmt.Errorf("create Temporal client for %s: %w", address, err)
	}
	defer temporalClient.Close()
	err = poll(ctx, func(ctx context.Context) error {
		_, err := temporalClient.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Namespace: Namespace})
		return err
	})
	if err != nil {
		return fmt.Errorf("await Temporal frontend at %s: %w", address, err)
	}
	return nil
}

func get(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		err = fmt.Errorf("get %s: %s", url, response.Status)
	}
	if closeErr := response.Body.Close(); err == nil {
		err = closeErr
	}
	return err
}

// poll tries until it goes well or startTimeout is over, and returns the last error.
func poll(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (last: %w)", ctx.Err(), err)
		case <-ticker.C:
		}
	}
}
