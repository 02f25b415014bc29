package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

func (m *migration) atOrigin(ctx workflow.Context, options workflow.ActivityOptions, summary string) workflow.Context {
	return beside(ctx, m.status.OriginShard, options, summary)
}

func (m *migration) atDestination(ctx workflow.Context, options workflow.ActivityOptions, summary string) workflow.Context {
	return beside(ctx, m.status.DestinationShard, options, summary)
}

func (m *migration) originGuard() activities.Guard {
	return activities.Guard{LogicalCluster: m.status.LogicalCluster, Token: m.originToken}
}

func (m *migration) destinationGuard() activities.Guard {
	return activities.Guard{LogicalCluster: m.status.LogicalCluster, Token: m.destinationToken}
}

func (m *migration) onOrigin() activities.GuardInput {
	return activities.GuardInput{Guard: m.originGuard()}
}

func (m *migration) onDestination() activities.GuardInput {
	return activities.GuardInput{Guard: m.destinationGuard()}
}

// origin is how the destination's workers reach the origin's.
func (m *migration) origin() activities.OriginRef {
	return activities.OriginRef{Address: m.transferAddress, Guard: m.originGuard()}
}

// raiseOrigin raises the origin's token here before any activity raises it there.
func (m *migration) raiseOrigin() activities.RaiseInput {
	raise := activities.RaiseInput{Guard: m.originGuard(), To: m.originToken.Next()}
	m.originToken = raise.To
	return raise
}

// raiseDestination raises the destination's token here before any activity raises it there.
func (m *migration) raiseDestination() activities.RaiseInput {
	raise := activities.RaiseInput{Guard: m.destinationGuard(), To: m.destinationToken.Next()}
	m.destinationToken = raise.To
	return raise
}
