package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// checkTimeout bounds one readiness check; it is shorter than the time kubelets wait when told to wait for 5 s.
const checkTimeout = 3 * time.Second

// check asks one of the systems that a worker needs whether it answers.
type check struct {
	name string
	ask  func(ctx context.Context) error
}

// health serves /healthz, /readyz and /metrics.
type health struct {
	listener net.Listener
	server   *http.Server
	checks   []check
}

func startHealth(address string, metrics prometheus.Gatherer, logger *slog.Logger, checks ...check) (*health, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for health checks: %w", err)
	}
	h := &health{listener: listener, checks: checks}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(out http.ResponseWriter, _ *http.Request) { fmt.Fprintln(out, "ok") })
	mux.HandleFunc("/readyz", h.serveReady)
	mux.Handle("/metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	h.server = &http.Server{Handler: mux, ReadHeaderTimeout: checkTimeout}
	go func() {
		if err := h.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			logger.Error("health endpoint ended", "error", err)
		}
	}()
	return h, nil
}

func (h *health) address() string { return h.listener.Addr().String() }

func (h *health) stop() error { return h.server.Close() }

// serveReady answers 503 unless every system answers, and says line by line which does.
func (h *health) serveReady(out http.ResponseWriter, request *http.Request) {
	ctx, cancel := context.WithTimeout(request.Context(), checkTimeout)
	defer cancel()
	failures := h.ask(ctx)
	if errors.Join(failures...) != nil {
		out.WriteHeader(http.StatusServiceUnavailable)
	}
	for i, failure := range failures {
		if failure != nil {
			fmt.Fprintf(out, "%s: %v\n", h.checks[i].name, failure)
		} else {
			fmt.Fprintf(out, "%s: ok\n", h.checks[i].name)
		}
	}
}

// ask runs all checks at once and gives their errors in order.
func (h *health) ask(ctx context.Context) []error {
	failures := make([]error, len(h.checks))
	var asking sync.WaitGroup
	for i, check := range h.checks {
		asking.Go(func() { failures[i] = check.ask(ctx) })
	}
	asking.Wait()
	return failures
}
