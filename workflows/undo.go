package workflows

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

var errStillFenced = errors.New("the origin is still fenced")

// undo takes the move back unless it finds the commit landed. ctx must be a disconnected one. A row that fails for good
// is noted and the next one taken, so that as much as possible is given back. In an etcd that is out of space no fence can
// be lifted: there it waits for a person to make room, as everybody else in that shard does.
func (m *migration) undo(ctx workflow.Context) (committed bool) {
	m.undoing = true
	m.stop()
	if m.seal(ctx) {
		return true
	}
	if m.stopWaking != nil { // not before: the seal may have to wait, and the origin's other tenants need the wake
		m.stopWaking()
	}
	for _, row := range m.wayBack() {
		if m.reached < row.since || m.destinationIsLost && row.on == m.status.DestinationShard {
			continue
		}
		m.status.Step = "undo: " + row.what
		m.show(ctx)
		if err := m.insistWhile(ctx, isOutOfSpace, row.what, row.take); err != nil {
			m.undoErr = errors.Join(m.undoErr, fmt.Errorf("%s: %s", row.what, message(err)))
			m.status.NotUndone = append(m.status.NotUndone, row.what+": "+message(err))
			workflow.GetLogger(ctx).Error("Undo step failed for good", "step", row.what, "error", err)
			m.destinationIsLeft = m.destinationIsLeft || row.on == m.status.DestinationShard
			continue
		}
		m.status.Undone = append(m.status.Undone, row.done)
	}
	return false
}

// seal makes sure that no commit can land any more, or finds that it has. Nothing may go past it: a fence lifted while
// a commit can still land would leave the tenant open on both shards.
func (m *migration) seal(ctx workflow.Context) (committed bool) {
	if m.destinationIsLost {
		return false // a person answers for it that no commit lands there
	}
	if m.reached <= claimDestination {
		return false // no write under the claim was ever asked for
	}
	m.status.Step = "undo: seal the destination"
	raise := m.raiseDestination()
	what := "Seal the destination against the commit (the tenant stays fenced until then; docs/operations.md says how a person decides)"
	sealed := insistOnResult(m.atDestination(ctx, edit, what), m, shard.Seal, raise)
	if sealed.Committed {
		m.destinationToken = raise.Guard.Token // the commit's: a seal that came too late has raised nothing
		return true
	}
	m.status.Undone = append(m.status.Undone, "sealed the destination: no commit can land")
	return false
}

// undoRow takes one thing back.
type undoRow struct {
	// since is the step that may have done it.
	since step
	// on is the shard that it is taken back on.
	on   string
	what string
	done string
	take func(workflow.Context) error
}

// wayBack is the undo in its order: late writers are locked out, the destination is emptied, and only then does the
// origin open. The LogicalCluster goes after the entries, because the destination's controllers leave these alone only
// while it stands fenced, and before the fence is lifted, so that every route index hears of the origin last. Controllers
// that missed an entry meanwhile make it anew as soon as nothing is fenced there, so there is a second look at the end.
// What is deleted at the destination may take the workspace's path out of a front-proxy: the undo is over once all have it.
func (m *migration) wayBack() []undoRow {
	origin, destination := m.status.OriginShard, m.status.DestinationShard
	back := func(since step, on string, options workflow.ActivityOptions, what, done string, activity func(context.Context, activities.GuardInput) error) undoRow {
		return undoRow{since, on, what, done, func(ctx workflow.Context) error {
			input := m.onOrigin()
			if on == destination {
				input = m.onDestination()
			}
			return do(beside(ctx, on, options, "Undo: "+what), activity, input)
		}}
	}
	touch := func(what, done string) undoRow {
		return undoRow{fenceDestination, origin, what, done, func(ctx workflow.Context) error {
			_, err := m.touchOrigin(ctx, what)
			return err
		}}
	}
	return []undoRow{
		{fenceOrigin, origin, "lock out late writers at the origin", "locked out late writers on shard " + origin, m.lockOutOrigin},
		back(copyEntries, destination, long, "delete the entries at the destination", "deleted the entries on shard "+destination, shard.DropDestinationEntries),
		touch("turn the route to the origin", "turned the route to shard "+origin),
		back(fenceDestination, destination, edit, "delete the LogicalCluster at the destination", "deleted the LogicalCluster on shard "+destination, shard.DropDestinationLogicalCluster),
		{fenceOrigin, origin, "lift the origin's fence", "lifted the fence on shard " + origin, m.liftFence},
		{fenceOrigin, origin, "wake the origin shard", "woke shard " + origin, m.wakeAfterUndo},
		back(fenceDestination, destination, long, "delete what kcp's controllers made at the destination", "deleted what kcp's controllers made on shard "+destination, shard.SweepDestination),
		touch("turn the route to the origin once more", "turned the route to shard "+origin+" once more"),
		{fenceDestination, origin, "await every front-proxy", "every front-proxy leads to shard " + origin, m.awaitRouteBack},
		back(claimDestination, destination, edit, "release the claim at the destination", "released the claim on shard "+destination, shard.Release),
		back(claimOrigin, origin, edit, "release the claim at the origin", "released the claim on shard "+origin, shard.Release),
	}
}

// liftFence is where the time away of a move that is taken back ends.
func (m *migration) liftFence(ctx workflow.Context) error {
	if m.destinationIsLeft && !m.originIsTaken {
		m.closeDestination(ctx)
		m.waitsFor, m.waitsSince = "Lift the origin's fence", workflow.Now(ctx)
	}
	if err := do(m.atOrigin(ctx, long, "Undo: lift the origin's fence"), shard.LiftFence, m.onOrigin()); err != nil {
		return err
	}
	m.served(ctx)
	return nil
}

// closeDestination comes before the lift where the destination could not be emptied in order: nothing but the tenant's fence there
// then keeps it from being served by both shards, and an admin of the tenant can take that away. The sweep asks no more than
// that no commit has landed. Where it fails too, the LogicalCluster is looked at: while it stands fenced, or there is none, the
// origin may open. Neither would be right else: open on both, the tenant would be two, and nobody could put it together again; a
// fence that ends nowhere would strand it. So the tenant stays away while the status tells a person how to end that, and the next
// look goes on. See docs/decisions/2026-12-01-no-lift-beside-an-open-destination.md.
func (m *migration) closeDestination(ctx workflow.Context) {
	what := "Undo: close the destination"
	m.insist(ctx, what, func(ctx workflow.Context) error {
		swept := do(m.atDestination(ctx, long, what), shard.SweepDestination, m.onDestination())
		if swept == nil {
			return nil
		}
		input := activities.SurveyInput{LogicalCluster: m.status.LogicalCluster}
		found, err := call(m.atDestination(ctx, long, what), shard.Survey, input)
		if err != nil {
			return err
		}
		if found.HasLogicalCluster && !found.Inactive {
			return fmt.Errorf("shard %s may serve the tenant, so the origin stays fenced: the LogicalCluster there is open, and can neither be deleted (%s) nor closed. "+
				"Close it at that shard's own URL, by the annotation core.kcp.io/inactive: \"true\"", m.status.DestinationShard, message(swept))
		}
		return nil
	})
}

func (m *migration) wakeAfterUndo(ctx workflow.Context) error {
	_, err := call(m.atOrigin(ctx, long, "Undo: wake the origin shard"), shard.WakeShard, m.onOrigin())
	return err
}

// touchOrigin makes every route index hear of the origin last.
func (m *migration) touchOrigin(ctx workflow.Context, what string) (*activities.TouchResult, error) {
	return call(m.atOrigin(ctx, edit, "Undo: "+what), shard.TouchOrigin, m.onOrigin())
}

// awaitRouteBack waits for every front-proxy to lead to the origin, which serves the tenant meanwhile, unless its fence
// could not be lifted.
func (m *migration) awaitRouteBack(ctx workflow.Context) error {
	if m.status.Fenced {
		return errStillFenced
	}
	route := activities.RouteInput{LogicalCluster: m.status.LogicalCluster, Path: m.status.Path, Shard: m.status.OriginShard}
	return m.awaitRoute(ctx, route, func() (*activities.TouchResult, error) {
		return m.touchOrigin(ctx, "turn the route to the origin, which a front-proxy has lost")
	})
}

// lockOutOrigin falls back to the token as it was where it cannot be raised: the rest of the undo must still be able to write.
func (m *migration) lockOutOrigin(ctx workflow.Context) error {
	raise := m.raiseOrigin()
	err := do(m.atOrigin(ctx, edit, "Undo: lock out late writers at the origin"), shard.RaiseToken, raise)
	if err != nil {
		m.originToken = raise.Guard.Token
		_, errorType := described(err)
		m.originIsTaken = errorType == activities.TokenLost
	}
	return err
}
