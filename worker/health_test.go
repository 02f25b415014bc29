package worker

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func startTestHealth(t *testing.T, checks ...check) *health {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	registry, metrics, err := newMetrics(logger)
	require.NoError(t, err)
	metrics.WithTags(map[string]string{"outcome": "completed"}).Counter("kcp_migrate_moves_total").Inc(2)
	metrics.Timer("kcp_migrate_time_away_seconds").Record(400 * time.Millisecond)
	h, err := startHealth("127.0.0.1:0", registry, logger, checks...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.stop()) })
	return h
}

func get(t *testing.T, h *health, path string) (int, string) {
	t.Helper()
	response, err := http.Get("http://" + h.address() + path)
	require.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, errors.Join(err, response.Body.Close()))
	return response.StatusCode, string(body)
}

func answers(context.Context) error { return nil }

func hangs(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

func TestReady_WhenAllAnswer_IsOK(t *testing.T) {
	code, body := get(t, startTestHealth(t, check{"etcd", answers}, check{"kcp", answers}), "/readyz")

	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "etcd: ok\nkcp: ok\n", body)
}

func TestReady_WhenOneHangs_NamesIt(t *testing.T) {
	h := startTestHealth(t, check{"etcd", hangs}, check{"kcp", answers})

	code, body := get(t, h, "/readyz")

	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "etcd: context deadline exceeded\nkcp: ok\n", body)
	code, _ = get(t, h, "/healthz")
	require.Equal(t, http.StatusOK, code, "a worker whose etcd is away is not to be restarted")
}

func TestMetrics_CountInBaseUnits(t *testing.T) {
	_, body := get(t, startTestHealth(t), "/metrics")

	require.Contains(t, body, `kcp_migrate_moves_total{outcome="completed"} 2`)
	require.Contains(t, body, `kcp_migrate_time_away_seconds_bucket{le="0.5"} 1`)
	require.Contains(t, body, `kcp_migrate_time_away_seconds_bucket{le="0.25"} 0`)
}

func TestStartHealth_WhenTheAddressIsTaken_SaysSo(t *testing.T) {
	h := startTestHealth(t)

	_, err := startHealth(h.address(), nil, slog.New(slog.DiscardHandler))

	require.ErrorContains(t, err, "listen for health checks")
}
