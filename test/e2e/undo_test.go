package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/test/installation"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// slowTenant is copied and verified in some seconds: time for a person to abort.
const slowTenant = 40_000

// undoneFenced is what is taken back of a move that had fenced the origin, undoneFilling of one that had begun to copy.
var (
	undoneFenced = []string{
		"sealed the destination: no commit can land",
		"locked out late writers on shard root",
		"lifted the fence on shard root",
		"woke shard root",
		"released the claim on shard shard-1",
		"released the claim on shard root",
	}
	undoneFilling = []string{
		"sealed the destination: no commit can land",
		"locked out late writers on shard root",
		"deleted the entries on shard shard-1",
		"deleted the LogicalCluster on shard shard-1",
		"lifted the fence on shard root",
		"woke shard root",
		"released the claim on shard shard-1",
		"released the claim on shard root",
	}
)

func TestMove_AbortedWhileCopying_PutsTheTenantBack(t *testing.T) {
	t.Parallel()
	stack := start(t, slowTenant)
	origin, destination := stack.export(t, "root"), stack.export(t, "shard-1")
	stack.requireExit(t, exitDone, "start", consumer, "shard-1")
	run := stack.temporal(t).GetWorkflow(t.Context(), workflows.WorkflowID(consumer), "")
	status := stack.awaitStatus(t, run, isMigrating)

	outcome, err := stack.Run(t.Context(), t.Output(), "abort", consumer, "--reason", "wrong shard", "--wait", "-o", "json")
	require.NoError(t, err)
	requireUndone(t, outcome, undoneFilling)
	require.Contains(t, stack.requireExit(t, exitUndone, "watch", consumer), activities.Aborted+": aborted: wrong shard")
	requireTenantBack(t, stack, status.LogicalCluster, origin, destination)
}

func TestMove_AwayTooLong_PutsTheTenantBack(t *testing.T) {
	t.Parallel()
	stack := start(t, 0)
	origin, destination := stack.export(t, "root"), stack.export(t, "shard-1")
	run := stack.holdFenced(t, workflows.Input{
		LogicalCluster: consumer, DestinationShard: "shard-1", RequireApproval: true, MaxTimeAway: workflows.Duration(time.Second),
	})
	status := stack.awaitStatus(t, run, func(status workflows.Status) bool { return status.Step == "undo: seal the destination" })
	stack.replaceWorker(t, "shard-1")

	require.Contains(t, stack.requireExit(t, exitUndone, "watch", run.GetID()), activities.AwayTooLong+": ")
	requireTenantBack(t, stack, status.LogicalCluster, origin, destination)
}

// Invariant 9: a watch that outlives the fence would see every entry deleted at the cleanup.
func TestMove_WhenAnAPIServerKeepsWatches_PutsTheTenantBack(t *testing.T) {
	t.Parallel()
	stack := start(t, 0)
	require.NoError(t, stack.workers["root"].Stop())
	shard, err := stack.Shard("root")
	require.NoError(t, err)
	stack.startWorker(t, "root", "--api-servers="+shard.APIServers[0]+","+watchKeeper(t, shard))
	origin, destination := stack.export(t, "root"), stack.export(t, "shard-1")

	outcome, err := stack.Run(t.Context(), t.Output(), "start", consumer, "shard-1", "--wait", "-o", "json")
	require.NoError(t, err)
	requireUndone(t, outcome, undoneFenced)
	require.Contains(t, stack.requireExit(t, exitUndone, "watch", consumer), activities.WatchesNotCut+": ")
	requireTenantBack(t, stack, consumerCluster, origin, destination)
}

// requireUndone expects the result of a move that was taken back to list at least this; package workflows tests the order.
func requireUndone(t *testing.T, outcome installation.Outcome, undone []string) {
	t.Helper()
	require.Equal(t, exitUndone, outcome.ExitCode, "%s", outcome.Stdout)
	var result workflows.Result
	require.NoError(t, json.Unmarshal(outcome.Stdout, &result))
	require.Equal(t, workflows.Failed, result.Phase)
	require.Subset(t, result.Undone, undone)
}

// watchKeeper is a shard's API server behind something that never ends a watch, whatever the server does.
func watchKeeper(t *testing.T, shard installation.Shard) string {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", shard.Kubeconfig)
	require.NoError(t, err)
	transport, err := rest.TransportFor(config)
	require.NoError(t, err)
	server, err := url.Parse(shard.APIServers[0])
	require.NoError(t, err)
	keeper := httptest.NewServer(&httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1,
		Rewrite:       func(request *httputil.ProxyRequest) { request.SetURL(server) },
		ModifyResponse: func(response *http.Response) error {
			if response.Request.URL.Query().Get("watch") == "true" {
				response.Body = &endless{ReadCloser: response.Body, over: response.Request.Context().Done()}
			}
			return nil
		},
	})
	t.Cleanup(keeper.Close)
	return keeper.URL
}

// endless is a body whose end is kept from the reader.
type endless struct {
	io.ReadCloser
	over <-chan struct{}
}

func (e *endless) Read(into []byte) (int, error) {
	n, err := e.ReadCloser.Read(into)
	if n == 0 && err != nil {
		<-e.over
	}
	return n, err
}
