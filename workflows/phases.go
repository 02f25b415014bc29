package workflows

import (
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

const (
	// repairRounds is how often verification may find a difference and mend it. A straggler or two is usual; entries
	// that still differ after three repairs are being written by something that ignores the fence.
	repairRounds = 3
	// freshFor is how long what preflight found is good enough to fence a tenant by.
	freshFor = 10 * time.Second
	// routePatience is how long a front-proxy may take to follow; they take milliseconds.
	routePatience = 2 * time.Second
	// routeHeldAfter is how long the origin may take to let go of the tenant before the route is held; it takes less.
	routeHeldAfter = time.Second
	// sweepRounds is how often the origin is emptied while late writes still turn up.
	sweepRounds = 3
)

// preflight finds out all that can be refused before the tenant notices anything.
func (m *migration) preflight(ctx workflow.Context) error {
	if err := m.resolve(ctx); err != nil {
		return err
	}
	return m.inspect(ctx)
}

// inspect makes the plan from what both shards are and hold now.
func (m *migration) inspect(ctx workflow.Context) error {
	inspect := activities.InspectInput{LogicalCluster: m.location.LogicalCluster, RunID: m.originToken.Run()}
	origin, err := call(m.inspecting(ctx, m.location.Shard), shard.InspectOrigin, inspect)
	if err != nil {
		return m.refusal(err, m.location.Shard)
	}
	inspect.SchemaUIDs, inspect.Families = origin.Contents.SchemaUIDs(), origin.Digest.Names()
	destination, err := call(m.inspecting(ctx, m.input.DestinationShard), shard.InspectDestination, inspect)
	if err != nil {
		return m.refusal(err, m.input.DestinationShard)
	}
	m.inspectedAt = workflow.Now(ctx)
	plan, err := NewPlan(Facts{Input: m.input, Location: m.location, Origin: *origin, Destination: *destination})
	if err != nil {
		return err
	}
	m.status.Plan = &plan
	m.transferAddress = origin.TransferAddress
	m.boundResources = origin.Contents.Bindings
	m.liftTo = destination.Health.Revision + plan.RevisionLift
	return nil
}

func (m *migration) resolve(ctx workflow.Context) error {
	resolved, err := call(anywhere(ctx, inspection, "Find the logical cluster and the shards"), fleet.Resolve, activities.ResolveInput{
		LogicalCluster:   m.input.LogicalCluster,
		DestinationShard: m.input.DestinationShard,
		ForceDestination: m.input.ForceDestination,
	})
	if err != nil {
		return m.refusal(err, "")
	}
	m.location = resolved.Location
	m.status.LogicalCluster = resolved.LogicalCluster
	m.status.Path = resolved.Path
	m.status.OriginShard = resolved.Shard
	m.enter(ctx, Preparing)
	return nil
}

func (m *migration) inspecting(ctx workflow.Context, shard string) workflow.Context {
	options := inspection
	options.StartToCloseTimeout = long.StartToCloseTimeout // a worker may read as slowly as its operator wants
	options.ScheduleToStartTimeout = workerMissingAfter
	return beside(ctx, shard, options, "Inspect shard "+shard)
}

// refusal gives what preflight could not find out a type. The shard is empty where none in particular was asked.
func (m *migration) refusal(err error, shard string) error {
	var timeout *temporal.TimeoutError
	switch {
	case errors.As(err, &timeout) && timeout.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START:
		return activities.Refuse(activities.ShardWorkerMissing,
			"no worker took a task from queue %s within %s; start one beside that shard: kcp-migrate worker --shard %s …",
			ShardTaskQueue(shard), workerMissingAfter, shard)
	case !passing(err):
		return err
	case shard == "":
		return activities.Refuse(activities.Unreachable, "kcp cannot be asked, tried %d times: %s", inspection.RetryPolicy.MaximumAttempts, message(err))
	}
	return activities.Refuse(activities.Unreachable, "shard %s cannot be inspected, tried several times: %s", shard, message(err))
}

func (m *migration) claimOrigin(ctx workflow.Context) error {
	return m.claim(ctx, m.status.OriginShard, m.originGuard())
}

func (m *migration) claimDestination(ctx workflow.Context) error {
	return m.claim(ctx, m.status.DestinationShard, m.destinationGuard())
}

func (m *migration) claim(ctx workflow.Context, on string, guard activities.Guard) error {
	err := do(beside(ctx, on, taking, "Claim the logical cluster on shard "+on), shard.Claim, activities.ClaimInput{
		Guard: guard,
		Info: activities.ClaimInfo{
			WorkflowID:       m.info.WorkflowExecution.ID,
			RunID:            guard.Token.Run(),
			Path:             m.status.Path,
			OriginShard:      m.status.OriginShard,
			DestinationShard: m.status.DestinationShard,
			ClaimedAt:        workflow.Now(ctx),
		},
	})
	if err == nil {
		return nil
	}
	if _, errorType := described(err); errorType == activities.AlreadyMigrating {
		m.reached-- // another move's claim: there is nothing of this one to release
	}
	return err
}

// readyDestination does what can be done before the tenant is away. None of it needs an undo.
func (m *migration) readyDestination(ctx workflow.Context) error {
	plan := m.status.Plan
	if len(plan.Leftovers) > 0 {
		if err := do(m.atDestination(ctx, long, "Discard leftovers"), shard.DiscardLeftovers, m.onDestination()); err != nil {
			return err
		}
	}
	if err := m.awaitResume(ctx); err != nil {
		return err
	}
	if len(plan.BoundCRDs) > 0 {
		input := activities.InstallInput{Guard: m.destinationGuard(), Origin: m.origin(), SchemaUIDs: plan.BoundCRDs}
		if _, err := call(m.atDestination(ctx, installing, "Install the CRDs of bound resources"), shard.InstallBoundCRDs, input); err != nil {
			return err
		}
	}
	if err := m.awaitResume(ctx); err != nil {
		return err
	}
	if plan.RevisionLift > 0 {
		input := activities.LiftInput{Guard: m.destinationGuard(), To: m.liftTo}
		if _, err := call(m.atDestination(ctx, long, fmt.Sprintf("Lift the revision by %d", plan.RevisionLift)), shard.LiftRevision, input); err != nil {
			return err
		}
	}
	return nil
}

// gate is the last place where the tenant has noticed nothing. What was found and readied before a long wait, or a
// long lift, is out of date: a binding may be new, kcp collects unused CRDs, revisions go on. So it is done again.
func (m *migration) gate(ctx workflow.Context) error {
	for {
		if err := m.awaitApproval(ctx); err != nil {
			return err
		}
		if err := m.awaitResume(ctx); err != nil {
			return err
		}
		if workflow.Now(ctx).Sub(m.inspectedAt) <= freshFor {
			return nil
		}
		approved := *m.status.Plan
		if err := m.inspect(ctx); err != nil {
			return err
		}
		if m.input.RequireApproval && m.status.Plan.asksMoreThan(approved) {
			m.approved = false
			m.warn("the plan was approved, then kept waiting, and has asked for more since: it had to be approved anew")
		}
		if err := m.awaitApproval(ctx); err != nil {
			return err
		}
		if err := m.readyDestination(ctx); err != nil {
			return err
		}
	}
}

func (m *migration) awaitApproval(ctx workflow.Context) error {
	if !m.input.RequireApproval || m.approved {
		return nil
	}
	m.waitsFor = ""
	m.status.WaitsForApproval = true
	m.show(ctx)
	err := workflow.Await(ctx, func() bool { return m.approved })
	m.status.WaitsForApproval = false
	m.show(ctx)
	return err
}

// fenceOrigin is where the tenant's time away begins.
func (m *migration) fenceOrigin(ctx workflow.Context) error {
	now := workflow.Now(ctx)
	m.status.FencedAt = &now
	m.status.Fenced = true
	m.limitTimeAway(ctx)
	fence, err := retried(ctx, func() (*activities.FenceResult, error) {
		return call(m.atOrigin(ctx, once, "Fence the tenant"), shard.FenceOrigin, m.raiseOrigin())
	})
	if err != nil {
		return err
	}
	m.fenceRevision, m.informers.since = fence.Revision, now
	m.wakeBeside(ctx)
	if hold := m.status.Plan.MinimumFence; hold > 0 {
		m.fenceHeld = timer(ctx, hold, "Hold the fence until watchers have reconnected")
	}
	return nil
}

// limitTimeAway gives the move up where no commit lands in time.
func (m *migration) limitTimeAway(ctx workflow.Context) {
	workflow.GoNamed(ctx, "limit time away", func(ctx workflow.Context) {
		if timer(ctx, m.input.MaxTimeAway, "Longest time away").Get(ctx, nil) != nil || m.status.Committed {
			return
		}
		m.giveUp(activities.Refuse(activities.AwayTooLong,
			"no commit landed within maxTimeAway %s of the fence; the move was at step %q. See that the workers, etcds and API servers of shards %s and %s can be reached; if they were only slow, raise maxTimeAway",
			m.input.MaxTimeAway, m.status.Step, m.status.OriginShard, m.status.DestinationShard))
	})
}

func (m *migration) fenceDestination(ctx workflow.Context) error {
	input := activities.FenceDestinationInput{Guard: m.destinationGuard(), Origin: m.origin()}
	return do(m.atDestination(ctx, long, "Write the LogicalCluster, fenced"), shard.FenceDestination, input)
}

func (m *migration) copyEntries(ctx workflow.Context) error {
	m.enter(ctx, Migrating)
	input := activities.CopyInput{Guard: m.destinationGuard(), Origin: m.origin(), Revision: m.fenceRevision}
	summary := fmt.Sprintf("Copy about %d entries", m.status.Plan.Entries)
	copied, err := call(m.atDestination(ctx, long, summary), shard.CopyEntries, input)
	if err != nil {
		return err
	}
	m.status.Entries, m.status.Bytes = copied.Entries, copied.Bytes
	m.show(ctx)
	return nil
}

// verifyEntries compares both sides and mends the destination until they are equal.
func (m *migration) verifyEntries(ctx workflow.Context) error {
	var round *activities.VerifyResult
	for repairs := 0; repairs <= repairRounds; repairs++ {
		var err error
		if round, err = m.verifyRound(ctx, repairs+1); err != nil {
			return err
		}
		if round.Match {
			m.verified = *round
			m.status.Entries, m.status.Bytes, m.status.SHA256 = round.Entries, round.Bytes, round.SHA256
			return nil
		}
	}
	return activities.Refuse(activities.DigestMismatch,
		"the shards still differ after %d repairs; find out what writes these entries in spite of the fence: %s", repairRounds, activities.Names(round.Differing))
}

// verifyRound makes every attempt under a token of its own: one that was given up for dead could otherwise go on
// repairing, from what it had read before, between the round that matched and the commit.
func (m *migration) verifyRound(ctx workflow.Context, number int) (*activities.VerifyResult, error) {
	return retried(ctx, func() (*activities.VerifyResult, error) {
		raise := m.raiseDestination()
		input := activities.VerifyInput{Guard: raise.Guard, RaiseTo: raise.To, Origin: m.origin()}
		return call(m.atDestination(ctx, once, fmt.Sprintf("Verify, round %d", number)), shard.VerifyEntries, input)
	})
}

// commit opens the destination. Its landing is the point of no return.
func (m *migration) commit(ctx workflow.Context) error {
	if m.fenceHeld != nil {
		if err := m.fenceHeld.Get(ctx, nil); err != nil {
			return err
		}
	}
	raise := m.raiseDestination()
	m.commitInput = activities.CommitInput{Guard: raise.Guard, RaiseTo: raise.To, Origin: m.origin(), TopUp: m.status.Plan.MinimumFence == 0, Landing: m.landing()}
	return m.land(ctx)
}

// landing is what the commit leaves in etcd, so that the move can be finished without this workflow.
func (m *migration) landing() activities.Landing {
	return activities.Landing{
		VerifiedRevision: m.verified.OriginRevision,
		Entries:          m.verified.Entries,
		Bytes:            m.verified.Bytes,
		SHA256:           m.verified.SHA256,
	}
}

func (m *migration) land(ctx workflow.Context) error {
	landing, err := call(m.atDestination(ctx, long, "Open the destination"), shard.Commit, m.commitInput)
	if err != nil {
		return err
	}
	m.commitRevision = landing.Revision
	return nil
}

// serve waits for the destination.
func (m *migration) serve(ctx workflow.Context) {
	m.awaitServing(ctx, nil)
	m.served(ctx)
}

// served is where the tenant's time away ends, at either shard. A recovery does not know when it began.
func (m *migration) served(ctx workflow.Context) {
	m.status.Fenced = false
	if m.status.FencedAt == nil {
		return
	}
	m.status.TimeAway = Duration(workflow.Now(ctx).Sub(*m.status.FencedAt))
	m.measureTimeAway(ctx)
}

func (m *migration) awaitServing(ctx workflow.Context, resources []activities.BoundResource) {
	input := activities.ServeInput{Guard: m.destinationGuard(), Resources: resources}
	insistOnResult(m.atDestination(ctx, long, "Await every API server of shard "+m.status.DestinationShard), m, shard.AwaitServing, input)
}

// cleanUpOrigin empties the origin. The LogicalCluster goes first, and soon: while the origin has one, any edit of it by
// the origin's controllers turns the route there. Touches before and after make every route index hear of the
// destination last. The entries go once the origin's informers can see it; until then nobody but kcp's own controllers is
// let in there, and what those write concerns nobody. Its context is released, so that they learn that all is gone: kcp's
// garbage collector would go on asking about a dependent, and delete it when the tenant comes back. Where any of that takes long, the
// route is held until the LogicalCluster is gone: a touch is never too much, for the destination's has to be the last word.
func (m *migration) cleanUpOrigin(ctx workflow.Context) {
	letGo := m.holdRoute(ctx)
	m.awaitWoken(ctx)
	m.releaseContext(ctx)
	m.touchDestination(ctx)
	dropped := insistOnResult(m.atOrigin(ctx, edit, "Delete the LogicalCluster at the origin"), m, shard.DropOriginLogicalCluster, m.onOrigin())
	m.droppedAt = dropped.Revision
	letGo()
	m.touchDestination(ctx)
	m.sweepOrigin(ctx)
	m.renewCachedCopies(ctx)
}

// holdRoute has the destination touched again and again if the origin has not let go of the tenant soon. The origin's last edit may
// have turned every front-proxy to its fence, and whoever was to go on from there may have died.
func (m *migration) holdRoute(ctx workflow.Context) (letGo func()) {
	held, letGo := workflow.WithCancel(ctx)
	workflow.GoNamed(held, "hold route", func(ctx workflow.Context) {
		for pause := routeHeldAfter; timer(ctx, Duration(pause), "See whether the origin takes long").Get(ctx, nil) == nil; pause = min(2*pause, longestPause) {
			held, err := call(m.atDestination(ctx, long, "Hold the route at the destination"), shard.HoldRoute, m.onDestination())
			switch {
			case err != nil:
				workflow.GetLogger(ctx).Info("Route is not held any more", "error", err)
			case held.Gone: // the tenant was deleted there
				return
			}
		}
	})
	return letGo
}

func (m *migration) releaseContext(ctx workflow.Context) {
	released := insistOnResult(m.atOrigin(ctx, long, "Release the context at the origin"), m, shard.ReleaseContext, m.onOrigin())
	if released.Stuck != "" {
		m.warn("API servers of shard %s hold on to the tenant's cancelled context: restart them before the tenant comes back to that shard (%s)",
			m.status.OriginShard, released.Stuck)
	}
}

// renewCachedCopies comes once the origin's shard has seen that all is gone: it would make its copies anew before.
func (m *migration) renewCachedCopies(ctx workflow.Context) {
	if !m.status.Plan.RenewsCachedCopies {
		return
	}
	input := activities.RenewInput{Guard: m.originGuard(), DestinationShard: m.status.DestinationShard}
	err := m.patiently(ctx, "Renew the copies in kcp's cache server", func(ctx workflow.Context) error {
		_, err := call(m.atOrigin(ctx, renewing, "Renew the copies in kcp's cache server"), shard.RenewCachedCopies, input)
		return err
	})
	if err != nil {
		m.warn("kcp's cache server could not be renewed within %s, consumers of its APIs on other shards may not hear of changes (docs/operations.md): %s",
			renewing.ScheduleToCloseTimeout, message(err))
	}
}

// touchDestination makes every route index hear of the destination last.
func (m *migration) touchDestination(ctx workflow.Context) {
	insistOnResult(m.touchingDestination(ctx), m, shard.TouchDestination, m.onDestination())
}

func (m *migration) touchingDestination(ctx workflow.Context) workflow.Context {
	return m.atDestination(ctx, edit, "Touch the LogicalCluster at the destination")
}

// sweepOrigin deletes the origin's entries. What was written there since they were verified is carried to the
// destination and then goes too; what cannot be carried stays, for a person to look at. A sweep tells some hundreds of stragglers
// at a time, the oldest first. A round is over once all have been looked after that were there as it began, so that there is an end
// to it however fast something writes.
func (m *migration) sweepOrigin(ctx workflow.Context) {
	var roundEnds int64
	for round := 0; ; {
		swept := m.sweep(ctx)
		late := m.unaccounted(swept.Stragglers)
		if len(late) == 0 && swept.More == 0 {
			return
		}
		if swept.Accounted >= roundEnds {
			round++
			roundEnds = swept.Revision
		}
		if round > sweepRounds {
			m.leave(late, swept)
			return
		}
		if len(late) > 0 {
			m.carry(ctx, late)
		}
	}
}

func (m *migration) sweep(ctx workflow.Context) *activities.DeleteResult {
	swept := m.deleteEntries(ctx)
	m.accounted = swept.Accounted
	m.accountForDeletions(swept)
	return swept
}

func (m *migration) carry(ctx workflow.Context, stragglers []activities.Straggler) {
	for i := range stragglers {
		stragglers[i].DestinationRevision = m.fates[stragglers[i].Ref].carriedAt
	}
	input := activities.CarryInput{
		Guard:            m.destinationGuard(),
		Origin:           m.origin(),
		CommitRevision:   m.commitRevision,
		VerifiedRevision: m.verified.OriginRevision,
		DroppedAt:        m.droppedAt,
		Stragglers:       stragglers,
	}
	summary := fmt.Sprintf("Look after %d late writes", len(stragglers))
	carried := insistOnResult(m.atDestination(ctx, long, summary), m, shard.CarryStragglers, input)
	drop := activities.DropCarriedInput{Guard: m.originGuard()}
	for _, straggler := range carried.Stragglers {
		m.account(straggler)
		if straggler.Carried || straggler.Discarded {
			straggler.Reason = "" // for the history's sake
			drop.Stragglers = append(drop.Stragglers, straggler)
		}
	}
	if len(drop.Stragglers) > 0 {
		insistOn(m.atOrigin(ctx, long, "Delete what was looked after"), m, shard.DropCarried, drop)
	}
}

// leave reports what something goes on writing at the origin, where it stays for a person to look at.
func (m *migration) leave(stragglers []activities.Straggler, swept *activities.DeleteResult) {
	for _, straggler := range stragglers {
		straggler.Reason = fmt.Sprintf("still written at the origin after %d sweeps; left there", sweepRounds)
		m.account(straggler)
	}
	m.status.StragglerCounts.NotCarried += swept.More
	m.accounted = swept.Revision
	m.warn("%d entries are still being written on shard %s and were left there", len(stragglers)+swept.More, m.status.OriginShard)
}

// finalizeDestination proves that the tenant is whole where it is now, and lets go.
func (m *migration) finalizeDestination(ctx workflow.Context) {
	m.enter(ctx, DestinationFinalize)
	if len(m.boundResources) > 0 {
		m.awaitServing(ctx, m.boundResources)
	}
	route := activities.RouteInput{LogicalCluster: m.status.LogicalCluster, Path: m.status.Path, Shard: m.status.DestinationShard}
	if gone := m.awaitOwner(ctx); gone {
		route.Path = ""
	}
	m.insist(ctx, "Await every front-proxy", func(ctx workflow.Context) error {
		return m.awaitRoute(ctx, route, func() (*activities.TouchResult, error) {
			return call(m.touchingDestination(ctx), shard.TouchDestination, m.onDestination())
		})
	})
	m.sweepOrigin(ctx)
	insistOn(m.atOrigin(ctx, edit, "Release the claim at the origin"), m, shard.Release, m.onOrigin())
	insistOn(m.atDestination(ctx, edit, "Release the claim at the destination"), m, shard.Release, m.onDestination())
}

// awaitRoute waits for every front-proxy. One that has lost the logical cluster, because it was restarted while both
// shards had it, hears of it again when it is touched; one that has lost its path, when its Workspace is. A tenant that
// was deleted meanwhile has no route to wait for.
func (m *migration) awaitRoute(ctx workflow.Context, route activities.RouteInput, touch func() (*activities.TouchResult, error)) error {
	for route.Patience = routePatience; ; route.Patience = min(2*route.Patience, longestPause) {
		result, err := call(anywhere(ctx, long, "Await every front-proxy"), fleet.AwaitRoute, route)
		if err != nil || result.Lost == "" {
			return err
		}
		workflow.GetLogger(ctx).Warn("Front-proxy has lost the route", "answers", result.Lost)
		touched, err := touch()
		if err != nil {
			return err
		}
		if touched.Gone {
			m.warn("the logical cluster was deleted on shard %s before the move was over; no front-proxy leads to it any more", route.Shard)
			return nil
		}
		if route.Path != "" && m.location.Owner != nil && m.touchOwner(ctx, *m.location.Owner) {
			route.Path = ""
		}
	}
}

// touchOwner has front-proxies hear of the path again, unless the Workspace that gives it is gone.
func (m *migration) touchOwner(ctx workflow.Context, owner activities.OwnerRef) (gone bool) {
	touched, err := call(anywhere(ctx, attempted, "Touch the owner Workspace"), fleet.TouchOwner, activities.OwnerInput{Owner: owner})
	if err != nil {
		m.advise(ctx, "a front-proxy does not know the path %s. Annotate Workspace %s in logical cluster %s with anything, so that it hears of it again; the workers could not: %s",
			m.status.Path, owner.Name, owner.LogicalCluster, message(err))
		return false
	}
	return touched.Gone
}

// awaitOwner waits until the owner Workspace names the new shard. One that is gone is worth a warning: the tenant is whole.
func (m *migration) awaitOwner(ctx workflow.Context) (gone bool) {
	owner := m.location.Owner
	if owner == nil {
		return false
	}
	input := activities.OwnerInput{Owner: *owner, Shard: m.status.DestinationShard}
	found := insistOnResult(anywhere(ctx, long, "Await the owner Workspace"), m, fleet.AwaitOwner, input)
	if found.Gone {
		m.warn("OwnerGone: Workspace %s in logical cluster %s is gone or has another UID; nothing names the moved logical cluster any more", owner.Name, owner.LogicalCluster)
	}
	return found.Gone
}
