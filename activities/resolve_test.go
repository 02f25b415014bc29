package activities_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// scriptedDirectory is a kcp of two shards with one tenant.
type scriptedDirectory struct {
	touchErr             error
	locateErr, shardsErr error
	name                 string
	notReady             string
	// owners are the shards that the owner Workspace names, one answer after the other; "" is gone.
	owners []string
	// routed is how many probes fail first.
	unrouted int
}

func (d *scriptedDirectory) Locate(context.Context, string) (activities.Location, error) {
	return activities.Location{LogicalCluster: d.name, Path: "root:consumer", Shard: "root"}, d.locateErr
}

func (d *scriptedDirectory) Shards(context.Context) ([]activities.ShardInfo, error) {
	return []activities.ShardInfo{{Name: "root"}, {Name: "shard-1", NotReady: d.notReady}}, d.shardsErr
}

func (d *scriptedDirectory) OwnerShard(context.Context, activities.OwnerRef) (string, error) {
	shard := d.owners[0]
	if len(d.owners) > 1 {
		d.owners = d.owners[1:]
	}
	if shard == "" {
		return "", fmt.Errorf("workspace: %w", activities.ErrNotFound)
	}
	return shard, nil
}

func (d *scriptedDirectory) TouchOwner(context.Context, activities.OwnerRef) error { return d.touchErr }

func (d *scriptedDirectory) ProbeFrontProxies(context.Context, string, string) []activities.Probe {
	d.unrouted--
	return []activities.Probe{{Server: "https://proxy", OK: d.unrouted < 0, Detail: "shard root"}}
}

func fleet(directory *scriptedDirectory) (*activities.Fleet, *testsuite.TestActivityEnvironment) {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestActivityEnvironment()
	fleet := &activities.Fleet{Directory: directory}
	env.RegisterActivity(fleet)
	return fleet, env
}

func TestResolve_RefusesWhatCannotBeMoved(t *testing.T) {
	for name, test := range map[string]struct {
		directory scriptedDirectory
		input     activities.ResolveInput
		want      string
		says      string
	}{
		"root":                   {scriptedDirectory{}, activities.ResolveInput{LogicalCluster: "root", DestinationShard: "shard-1"}, activities.SystemCluster, "root"},
		"system cluster":         {scriptedDirectory{}, activities.ResolveInput{LogicalCluster: "system:admin", DestinationShard: "shard-1"}, activities.SystemCluster, "system:admin"},
		"a path that is root's":  {scriptedDirectory{name: "root"}, activities.ResolveInput{LogicalCluster: "alias", DestinationShard: "shard-1"}, activities.SystemCluster, "root"},
		"unknown workspace":      {scriptedDirectory{locateErr: activities.ErrNotFound}, activities.ResolveInput{LogicalCluster: "root:nobody", DestinationShard: "shard-1"}, activities.LogicalClusterNotFound, "root:nobody"},
		"unknown shard":          {scriptedDirectory{name: tenant}, activities.ResolveInput{LogicalCluster: tenant, DestinationShard: "shard-9"}, activities.ShardNotFound, "root, shard-1"},
		"destination is origin":  {scriptedDirectory{name: tenant}, activities.ResolveInput{LogicalCluster: tenant, DestinationShard: "root"}, activities.SameShard, "root already"},
		"shard not ready":        {scriptedDirectory{name: tenant, notReady: "disk full"}, activities.ResolveInput{LogicalCluster: tenant, DestinationShard: "shard-1"}, activities.ShardNotReady, "disk full"},
		"no right to see shards": {scriptedDirectory{name: tenant, shardsErr: activities.ErrForbidden}, activities.ResolveInput{LogicalCluster: tenant, DestinationShard: "shard-1"}, activities.Forbidden, "rights"},
	} {
		t.Run(name, func(t *testing.T) {
			fleet, env := fleet(&test.directory)
			_, err := env.ExecuteActivity(fleet.Resolve, test.input)
			requireRefused(t, test.want, err)
			require.ErrorContains(t, err, test.says)
		})
	}
}

func TestResolve_ShardNotReadyButForced_GoesOn(t *testing.T) {
	fleet, env := fleet(&scriptedDirectory{name: tenant, notReady: "disk full"})
	_, err := env.ExecuteActivity(fleet.Resolve, activities.ResolveInput{LogicalCluster: tenant, DestinationShard: "shard-1", ForceDestination: true})
	require.NoError(t, err)
}

func TestResolve_WhenKcpCannotBeReached_IsRetried(t *testing.T) {
	fleet, env := fleet(&scriptedDirectory{shardsErr: errors.New("connection refused")})
	_, err := env.ExecuteActivity(fleet.Resolve, activities.ResolveInput{LogicalCluster: tenant, DestinationShard: "shard-1"})
	require.ErrorContains(t, err, "connection refused")
	require.NotContains(t, err.Error(), "retryable: false")
}

func TestAwaitOwner_WaitsUntilTheWorkspaceNamesTheShard(t *testing.T) {
	fleet, env := fleet(&scriptedDirectory{owners: []string{"root", "root", "shard-1"}})
	value, err := env.ExecuteActivity(fleet.AwaitOwner, activities.OwnerInput{Shard: "shard-1"})
	require.NoError(t, err)
	var result activities.OwnerResult
	require.NoError(t, value.Get(&result))
	require.False(t, result.Gone)
}

func TestAwaitOwner_WorkspaceGone_IsToldAndNotWaitedFor(t *testing.T) {
	fleet, env := fleet(&scriptedDirectory{owners: []string{""}})
	value, err := env.ExecuteActivity(fleet.AwaitOwner, activities.OwnerInput{Shard: "shard-1"})
	require.NoError(t, err)
	var result activities.OwnerResult
	require.NoError(t, value.Get(&result))
	require.True(t, result.Gone)
}

func TestAwaitRoute_WaitsForEveryFrontProxy(t *testing.T) {
	directory := &scriptedDirectory{unrouted: 3}
	fleet, env := fleet(directory)
	value, err := env.ExecuteActivity(fleet.AwaitRoute, activities.RouteInput{LogicalCluster: tenant, Shard: "shard-1", Patience: time.Minute})
	require.NoError(t, err)
	var result activities.RouteResult
	require.NoError(t, value.Get(&result))
	require.Empty(t, result.Lost)
	require.Equal(t, -1, directory.unrouted)
}

func TestAwaitRoute_FrontProxyThatHasLostIt_IsToldAfterThePatience(t *testing.T) {
	fleet, env := fleet(&scriptedDirectory{unrouted: 1 << 30})
	value, err := env.ExecuteActivity(fleet.AwaitRoute, activities.RouteInput{LogicalCluster: tenant, Shard: "shard-1", Patience: time.Millisecond})
	require.NoError(t, err)
	var result activities.RouteResult
	require.NoError(t, value.Get(&result))
	require.NotEmpty(t, result.Lost)
}

func TestTouchOwner_WorkspaceGone_IsTold_AndWithoutTheRightIsRefused(t *testing.T) {
	fleet, env := fleet(&scriptedDirectory{touchErr: activities.ErrNotFound})
	value, err := env.ExecuteActivity(fleet.TouchOwner, activities.OwnerInput{})
	require.NoError(t, err)
	var result activities.OwnerResult
	require.NoError(t, value.Get(&result))
	require.True(t, result.Gone)

	fleet.Directory.(*scriptedDirectory).touchErr = activities.ErrForbidden
	_, err = env.ExecuteActivity(fleet.TouchOwner, activities.OwnerInput{})
	requireRefused(t, activities.Forbidden, err)
}
