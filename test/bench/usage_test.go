package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseCPU_AddsUserAndSystemTime_WhateverTheProgramIsCalled(t *testing.T) {
	seconds, err := parseCPU("42 (a ) b) S 1 42 42 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 1 0 1 1 1")
	require.NoError(t, err)
	require.InDelta(t, 2, seconds, 0)
	_, err = parseCPU("42 (short) S 1")
	require.Error(t, err)
}

func TestParseMemory_ReadsKilobytes(t *testing.T) {
	bytes, err := parseMemory("VmPeak:\t  99 kB\nVmHWM:\t    2048 kB\nRssAnon:\t 1 kB\n", "VmHWM:")
	require.NoError(t, err)
	require.Equal(t, int64(2<<20), bytes)
	_, err = parseMemory("Name:\tx\n", "VmHWM:")
	require.Error(t, err)
}

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
