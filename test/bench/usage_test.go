package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMeter_MeasuresAProcess(t *testing.T) {
	meter, err := startMeter(t.Context(), map[string]int{"me": os.Getpid()})
	require.NoError(t, err)
	used, err := meter.stop()
	require.NoError(t, err)
	require.Positive(t, used["me"].PeakBytes)
	require.Positive(t, used["me"].PeakOwnBytes)
}

func TestStartedRequests_CountsKeysAndLeases_AndNothingElse(t *testing.T) {
	counted := `grpc_server_started_total{grpc_method="Range",grpc_service="etcdserverpb.KV",grpc_type="unary"} 1.5e+06`
	require.Equal(t, 1_500_000, startedRequests(counted))
	require.Zero(t, startedRequests(`grpc_server_started_total{grpc_method="Status",grpc_service="etcdserverpb.Maintenance",grpc_type="unary"} 3`))
	require.Zero(t, startedRequests(`grpc_server_handled_total{grpc_service="etcdserverpb.KV"} 3`))
	require.Zero(t, startedRequests("# HELP grpc_server_started_total"))
}
