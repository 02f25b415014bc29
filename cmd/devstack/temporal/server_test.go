package temporalserver_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/ports"
	temporalserver "github.com/kcp-migrate/kcp-migrate/cmd/devstack/temporal"
)

const queue = "test"

func TestStart_RunsWorkflowsAndShowsThemInTheUI(t *testing.T) {
	server := start(t, "")
	temporalClient := dial(t, server)

	attributes, err := temporalClient.OperatorService().ListSearchAttributes(t.Context(),
		&operatorservice.ListSearchAttributesRequest{Namespace: temporalserver.Namespace})
	require.NoError(t, err)
	for name := range temporalserver.SearchAttributes {
		require.Equal(t, enums.INDEXED_VALUE_TYPE_KEYWORD, attributes.GetCustomAttributes()[name], name)
	}
	namespace, err := temporalClient.WorkflowService().DescribeNamespace(t.Context(),
		&workflowservice.DescribeNamespaceRequest{Namespace: temporalserver.Namespace})
	require.NoError(t, err)
	require.Equal(t, 7*24*time.Hour, namespace.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration())

	runWorkflow(t, temporalClient, "greet")
	require.Eventually(t, func() bool {
		found, err := temporalClient.CountWorkflow(t.Context(),
			&workflowservice.CountWorkflowExecutionsRequest{Query: `KcpLogicalCluster = "abc"`})
		return err == nil && found.GetCount() == 1
	}, time.Minute, 50*time.Millisecond, "the search attribute finds the workflow")

	require.Contains(t, get(t, server.UIURL()+"/healthz"), "OK")
	require.Contains(t, get(t, server.UIURL()+"/namespaces/default/workflows"), "<!doctype html>")
	require.Contains(t, get(t, server.UIURL()+"/api/v1/namespaces/default/workflows/greet"), `"greet"`)
}

func TestStart_OnTheFileOfAStoppedServer_KnowsItsWorkflows(t *testing.T) {
	file := filepath.Join(t.TempDir(), "temporal.db")
	first := start(t, file)
	runWorkflow(t, dial(t, first), "kept")

	_, err := temporalserver.Start(t.Context(), config(t, file))
	require.ErrorContains(t, err, "another Temporal server uses it")
	require.NoError(t, first.Stop())

	second := start(t, file)
	var result string
	require.NoError(t, dial(t, second).GetWorkflow(t.Context(), "kept", "").Get(t.Context(), &result))
	require.Equal(t, "hello kept", result)
}

func TestStart_OnATakenPort_IsAnError(t *testing.T) {
	taken, err := net.Listen("tcp", ports.Address(0))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, taken.Close()) })

	for what, take := range map[string]func(*temporalserver.Config, int){
		"frontend": func(c *temporalserver.Config, port int) { c.Port = port },
		"web UI":   func(c *temporalserver.Config, port int) { c.UIPort = port },
	} {
		t.Run(what, func(t *testing.T) {
			c := config(t, "")
			take(&c, taken.Addr().(*net.TCPAddr).Port)
			_, err := temporalserver.Start(t.Context(), c)
			require.ErrorContains(t, err, "address already in use")
		})
	}
}

func start(t *testing.T, file string) *temporalserver.Server {
	t.Helper()
	server, err := temporalserver.Start(t.Context(), config(t, file))
	require.NoError(t, err)
	if file == "" {
		t.Cleanup(func() { require.NoError(t, server.Stop()) })
	}
	return server
}

func config(t *testing.T, file string) temporalserver.Config {
	t.Helper()
	free, err := ports.FreeSeveral(2)
	require.NoError(t, err)
	return temporalserver.Config{Port: free[0], UIPort: free[1], File: file}
}

func dial(t *testing.T, server *temporalserver.Server) client.Client {
	t.Helper()
	temporalClient, err := client.Dial(client.Options{HostPort: server.Address()})
	require.NoError(t, err)
	t.Cleanup(temporalClient.Close)
	return temporalClient
}

func runWorkflow(t *testing.T, temporalClient client.Client, id string) {
	t.Helper()
	w := worker.New(temporalClient, queue, worker.Options{})
	w.RegisterWorkflow(greetWorkflow)
	w.RegisterActivity(greet)
	require.NoError(t, w.Start())
	defer w.Stop()

	run, err := temporalClient.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
		ID: id, TaskQueue: queue,
		TypedSearchAttributes: temporal.NewSearchAttributes(temporal.NewSearchAttributeKeyKeyword("KcpLogicalCluster").ValueSet("abc")),
	}, greetWorkflow, id)
	require.NoError(t, err)
	var result string
	require.NoError(t, run.Get(t.Context(), &result))
	require.Equal(t, "hello "+id, result)
}

func greetWorkflow(ctx workflow.Context, name string) (result string, err error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	err = workflow.ExecuteActivity(ctx, greet, name).Get(ctx, &result)
	return result, err
}

func greet(_ context.Context, name string) (string, error) { return "hello " + name, nil }

func get(t *testing.T, url string) string {
	t.Helper()
	response, err := http.Get(url)
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	require.Equal(t, http.StatusOK, response.StatusCode, url)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(body)
}
