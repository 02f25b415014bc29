package worker

import (
	"context"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"

	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// fakeTemporal is a Temporal that knows one namespace and its search attributes.
type fakeTemporal struct {
	client.Client
	namespaces map[string]bool
	attributes map[string]enumspb.IndexedValueType
	refusal    error
}

func newFakeTemporal(attributes ...string) *fakeTemporal {
	f := &fakeTemporal{namespaces: map[string]bool{"moves": true}, attributes: map[string]enumspb.IndexedValueType{}}
	for _, attribute := range attributes {
		f.attributes[attribute] = enumspb.INDEXED_VALUE_TYPE_KEYWORD
	}
	return f
}

type fakeWorkflowService struct {
	workflowservice.WorkflowServiceClient
	*fakeTemporal
}

type fakeOperatorService struct {
	operatorservice.OperatorServiceClient
	*fakeTemporal
}

func (f *fakeTemporal) WorkflowService() workflowservice.WorkflowServiceClient {
	return fakeWorkflowService{fakeTemporal: f}
}

func (f *fakeTemporal) OperatorService() operatorservice.OperatorServiceClient {
	return fakeOperatorService{fakeTemporal: f}
}

func (f fakeWorkflowService) DescribeNamespace(_ context.Context, request *workflowservice.DescribeNamespaceRequest, _ ...grpc.CallOption) (*workflowservice.DescribeNamespaceResponse, error) {
	if !f.namespaces[request.Namespace] {
		return nil, serviceerror.NewNamespaceNotFound(request.Namespace)
	}
	return &workflowservice.DescribeNamespaceResponse{}, nil
}

func (f fakeOperatorService) ListSearchAttributes(context.Context, *operatorservice.ListSearchAttributesRequest, ...grpc.CallOption) (*operatorservice.ListSearchAttributesResponse, error) {
	return &operatorservice.ListSearchAttributesResponse{CustomAttributes: f.attributes}, nil
}

func (f fakeOperatorService) AddSearchAttributes(_ context.Context, request *operatorservice.AddSearchAttributesRequest, _ ...grpc.CallOption) (*operatorservice.AddSearchAttributesResponse, error) {
	if f.refusal != nil {
		return nil, f.refusal
	}
	maps.Copy(f.attributes, request.SearchAttributes)
	return &operatorservice.AddSearchAttributesResponse{}, nil
}

func TestCheckNamespace_AddsOnlyMissingSearchAttributes(t *testing.T) {
	temporal := newFakeTemporal(workflows.PhaseAttribute, "SomebodyElses")

	require.NoError(t, checkNamespace(t.Context(), temporal, "moves"))

	require.Len(t, temporal.attributes, 5)
	require.Equal(t, enumspb.INDEXED_VALUE_TYPE_KEYWORD, temporal.attributes[workflows.LogicalClusterAttribute])
}

func TestCheckNamespace_WhenAnotherWorkerWasFirst_GoesOn(t *testing.T) {
	temporal := newFakeTemporal()
	temporal.refusal = serviceerror.NewAlreadyExists("search attribute KcpLogicalCluster already exists")

	require.NoError(t, checkNamespace(t.Context(), temporal, "moves"))
}

func TestCheckNamespace_WhenAddingIsRefused_GivesTheCommands(t *testing.T) {
	temporal := newFakeTemporal(workflows.PhaseAttribute, workflows.OriginShardAttribute, workflows.DestinationShardAttribute)
	temporal.refusal = serviceerror.NewPermissionDenied("not you", "")

	err := checkNamespace(t.Context(), temporal, "moves")

	require.ErrorContains(t, err, "not you")
	require.ErrorContains(t, err, "\n  temporal operator search-attribute create --namespace moves --name KcpLogicalCluster --type Keyword")
	require.NotContains(t, err.Error(), workflows.PhaseAttribute)
}

func TestCheckNamespace_WhenThereIsNone_GivesTheCommand(t *testing.T) {
	err := checkNamespace(t.Context(), newFakeTemporal(), "nowhere")

	require.ErrorContains(t, err, "temporal operator namespace create --namespace nowhere")
}

func TestTemporalConfig_TakesFlagsBeforeTemporalsOwnSettings(t *testing.T) {
	t.Setenv("TEMPORAL_CONFIG_FILE", writeConfig(t, `
[profile.default]
address = "profile:7233"
namespace = "from-profile"
`))
	t.Setenv("TEMPORAL_NAMESPACE", "from-environment")

	options, err := (&TemporalConfig{}).options()
	require.NoError(t, err)
	require.Equal(t, "profile:7233", options.HostPort)
	require.Equal(t, "from-environment", options.Namespace)

	options, err = (&TemporalConfig{Address: "flag:7233", Namespace: "from-flag"}).options()
	require.NoError(t, err)
	require.Equal(t, "flag:7233", options.HostPort)
	require.Equal(t, "from-flag", options.Namespace)
}

func TestTemporalConfig_WithoutSettings_MeansTheLocalDefaults(t *testing.T) {
	t.Setenv("TEMPORAL_CONFIG_FILE", writeConfig(t, ""))

	options, err := (&TemporalConfig{}).options()

	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:7233", options.HostPort)
	require.Equal(t, "default", options.Namespace)
}

func TestTemporalConfig_WhenTheProfileIsUnknown_IsInvalid(t *testing.T) {
	t.Setenv("TEMPORAL_CONFIG_FILE", writeConfig(t, ""))

	_, err := (&TemporalConfig{Profile: "nowhere"}).options()

	require.ErrorContains(t, err, "nowhere")
	requireType(t, "InvalidInput", err)
}
