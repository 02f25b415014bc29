package worker

import (
	"bytes"
	"log/slog"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
)

func TestWorkers_TakeEveryActivityThere(t *testing.T) {
	temporal, err := client.NewLazyClient(client.Options{})
	require.NoError(t, err)
	defer temporal.Close()
	fatal := make(chan error)

	// Registering panics on a method that cannot be an activity.
	newFleetWorker(&assembly{systems: &systems{temporal: temporal}}, fatal)
	newShardWorker(&Config{Shard: "root"}, &assembly{systems: &systems{temporal: temporal}}, &transfers{}, fatal)
}

func TestListenForTransfers_AdvertisesWhatItIsTold(t *testing.T) {
	told, err := listenForTransfers(&Config{TransferListen: "127.0.0.1:0", TransferAdvertise: []string{"worker.example:7443"}}, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, told.listener.Close()) }()
	require.Equal(t, "worker.example:7443", told.address)

	untold, err := listenForTransfers(&Config{TransferListen: "127.0.0.1:0"}, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, untold.listener.Close()) }()
	_, port, err := net.SplitHostPort(untold.address)
	require.NoError(t, err)
	require.NotEqual(t, "0", port)
}

func TestListenForTransfers_WithUnusableFiles_IsInvalidInput(t *testing.T) {
	_, err := listenForTransfers(&Config{
		TransferListen: "127.0.0.1:0", TransferCAFile: "nowhere", TransferCertFile: "nowhere", TransferKeyFile: "nowhere",
	}, nil)

	requireType(t, "InvalidInput", err)
}

func TestLogger_WritesJSONWhereNobodyLooks(t *testing.T) {
	var out bytes.Buffer
	logger, err := (&Config{Shard: "root", LogLevel: "info"}).newLogger(&out)
	require.NoError(t, err)

	logger.Info("worker starts")
	logger.Debug("not asked for")

	require.Contains(t, out.String(), `"msg":"worker starts","shard":"root"}`)
	require.NotContains(t, out.String(), "not asked for")
}

func TestLogger_WritesTextWhenTold(t *testing.T) {
	var out bytes.Buffer
	logger, err := (&Config{LogLevel: "debug", LogFormat: logText}).newLogger(&out)
	require.NoError(t, err)

	logger.Log(t.Context(), slog.LevelDebug, "worker starts")

	require.Contains(t, out.String(), `msg="worker starts"`)
}
