package workflows

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// RecoverLogicalCluster ends a move whose workflow is gone, from what its claims in both etcds tell. Without an action it
// only says where the move stands.
//
// It takes the destination's claim first and the origin's second, each from the very run that held it when it was looked
// at. The first keeps two recoveries apart, and from its landing on no commit of the old move can land. Only when both
// are held, and nothing but this workflow can write on either shard, is looked again and decided: by the destination's
// claim alone. From there on it is the story of any move, onward or back.
func RecoverLogicalCluster(ctx workflow.Context, input RecoverInput) (*Result, error) {
	r := newRecovery(ctx, input)
	if err := r.setup(ctx); err != nil {
		return nil, err
	}
	anew, err := r.run(ctx)
	if anew != nil {
		return nil, workflow.NewContinueAsNewError(ctx, MigrateLogicalClusterName, *anew)
	}
	return r.finish(ctx, err)
}

// recovery is a migration that begins somewhere in the middle.
type recovery struct {
	*migration
	recover RecoverInput
	shards  []string // where to look for claims
}

func newRecovery(ctx workflow.Context, input RecoverInput) *recovery {
	move := input.Move
	move.LogicalCluster, move.DestinationShard, move.DryRun = input.LogicalCluster, input.DestinationShard, input.Action == ""
	m := newMigration(ctx, move)
	m.stop = func() {}
	m.undoing = true // so that no order is taken: a recovery has had its own
	return &recovery{migration: m, recover: input}
}

// run gives the input of the move that is to begin anew, if one is.
func (r *recovery) run(ctx workflow.Context) (anew *Input, err error) {
	if err := r.accept(); err != nil {
		return nil, err
	}
	watching, watched := workflow.NewDisconnectedContext(ctx)
	defer watched()
	r.watchPatience(watching)
	if err := r.look(ctx); err != nil {
		return nil, err
	}
	if r.recover.Action == "" {
		return nil, nil
	}
	if err := r.takeClaims(ctx); err != nil {
		return nil, err
	}
	onward, _ := workflow.NewDisconnectedContext(ctx)
	if r.status.Standing.Committed {
		r.goOnwardFrom(onward)
		return nil, nil
	}
	r.undoFrom(onward)
	return r.undone(onward)
}

func (r *recovery) accept() error {
	if err := r.recover.Validate(); err != nil {
		return err
	}
	return r.acceptTimeouts()
}

// look finds out where the move stands, and refuses what must not be done there.
func (r *recovery) look(ctx workflow.Context) error {
	r.status.Step = "look for claims"
	r.show(ctx)
	found, err := call(anywhere(ctx, inspection, "Find the logical cluster and the shards"), fleet.FindShards, activities.FindInput{LogicalCluster: r.recover.LogicalCluster})
	if err != nil {
		return r.refusal(err, "")
	}
	r.status.LogicalCluster, r.location, r.shards = found.LogicalCluster, found.Location, found.Shards
	standing := &Standing{Route: found.Shard}
	if err := r.findShards(ctx); err != nil {
		return err
	}
	r.survey(ctx, standing, r.glance)
	if err := r.findWorkflows(ctx, standing); err != nil {
		return err
	}
	standing.Advice = standing.advise(r.recover.LogicalCluster, r.recover)
	r.status.Standing, r.status.Committed = standing, standing.Committed
	r.status.Path = cmp.Or(standing.path(), found.Path)
	r.enter(ctx, Preparing)
	if r.recover.Action == "" {
		return nil
	}
	return standing.allow(r.recover)
}

// findShards has the first claim tell, where nobody told, from which shard to which the move was. The shard that the
// front-proxies lead to is asked first.
func (r *recovery) findShards(ctx workflow.Context) error {
	r.status.OriginShard, r.status.DestinationShard = r.recover.OriginShard, r.recover.DestinationShard
	if r.status.OriginShard != "" {
		return nil
	}
	if routed := slices.Index(r.shards, r.location.Shard); routed > 0 {
		r.shards[0], r.shards[routed] = r.shards[routed], r.shards[0]
	}
	var silent []string
	for _, name := range r.shards {
		found := r.glance(ctx, name)
		if found.Unreachable != "" {
			silent = append(silent, found.Unreachable)
		}
		if found.Claim != nil {
			r.status.OriginShard, r.status.DestinationShard = found.Claim.OriginShard, found.Claim.DestinationShard
			return nil
		}
	}
	if len(silent) > 0 {
		return activities.Refuse(activities.Unreachable, "no shard that answers has a claim of it; not all do: %s", strings.Join(silent, "; "))
	}
	return activities.Refuse(activities.NothingToRecover, "no shard (%s) has a claim of %s: no move of it was left halfway; where a fence was left without one, name originShard and destinationShard", strings.Join(r.shards, ", "), r.status.LogicalCluster)
}

// glance surveys a shard that may not answer, which is a finding too.
func (r *recovery) glance(ctx workflow.Context, name string) activities.Standing {
	found, err := call(beside(ctx, name, glancing, "Survey shard "+name), shard.Survey, activities.SurveyInput{LogicalCluster: r.status.LogicalCluster})
	if err != nil {
		return activities.Standing{Shard: name, Unreachable: message(r.refusal(err, name))}
	}
	return *found
}

// stare surveys a shard that has answered before, and has to again.
func (r *recovery) stare(ctx workflow.Context, name string) activities.Standing {
	input := activities.SurveyInput{LogicalCluster: r.status.LogicalCluster}
	return *insistOnResult(beside(ctx, name, long, "Survey shard "+name), r.migration, shard.Survey, input)
}

// survey looks at both shards. A destination that is lost is not waited for.
func (r *recovery) survey(ctx workflow.Context, standing *Standing, look func(workflow.Context, string) activities.Standing) {
	standing.Origin = look(ctx, r.status.OriginShard)
	if r.destinationIsLost {
		return
	}
	standing.Destination = look(ctx, r.status.DestinationShard)
	claim := standing.Destination.Claim
	standing.Committed = claim != nil && claim.Committed
}

// findWorkflows asks Temporal about the workflows that the claims name. One of this recovery's own ID cannot be running
// beside it.
func (r *recovery) findWorkflows(ctx workflow.Context, standing *Standing) error {
	for _, claim := range standing.claims() {
		found := WorkflowStanding{WorkflowID: claim.WorkflowID, RunID: claim.RunID}
		if slices.ContainsFunc(standing.Workflows, func(known WorkflowStanding) bool { return known.WorkflowID == found.WorkflowID }) {
			continue
		}
		if found.WorkflowID == r.info.WorkflowExecution.ID {
			found.Name = "replaced by this one"
		} else {
			state, err := call(anywhere(ctx, inspection, "Ask for workflow "+found.WorkflowID), fleet.FindWorkflow, activities.WorkflowInput{WorkflowID: found.WorkflowID})
			if err != nil {
				return r.refusal(err, "")
			}
			found.RunState = *state
		}
		standing.Workflows = append(standing.Workflows, found)
	}
	return nil
}

// takeClaims takes the destination's, then the origin's, and looks again. A cancellation is heeded until the first is
// taken; where the second cannot be, whoever recovers next finds what this one holds.
func (r *recovery) takeClaims(ctx workflow.Context) (err error) {
	r.status.Step = "take over the claims"
	r.show(ctx)
	r.destinationIsLost = r.recover.DestinationIsLost
	standing := *r.status.Standing
	taken := activities.TakeResult{}
	if !r.destinationIsLost {
		if taken, err = r.takeClaim(ctx, standing.Destination, taken); err != nil {
			return err
		}
		r.destinationToken = taken.Token
	}
	onward, _ := workflow.NewDisconnectedContext(ctx)
	if taken, err = r.takeClaim(onward, standing.Origin, taken); err != nil {
		return err
	}
	r.originToken = taken.Token
	r.survey(onward, &standing, r.stare)
	standing.Workflows, standing.Advice = nil, "" // of what was found before; the claims name this workflow now
	r.status.Standing, r.status.Committed = &standing, standing.Committed
	return standing.allow(r.recover)
}

// takeClaim takes one shard's; what the destination's said of the commit is told to the origin's.
func (r *recovery) takeClaim(ctx workflow.Context, from activities.Standing, before activities.TakeResult) (activities.TakeResult, error) {
	token := activities.NewToken(r.info.OriginalRunID)
	input := activities.TakeInput{
		Guard: activities.Guard{LogicalCluster: r.status.LogicalCluster, Token: token},
		Info: activities.ClaimInfo{
			WorkflowID: r.info.WorkflowExecution.ID, RunID: token.Run(), Path: r.status.Path,
			OriginShard: r.status.OriginShard, DestinationShard: r.status.DestinationShard,
			ClaimedAt: workflow.Now(ctx), Recovers: r.moveOf(from),
		},
		Committed: before.Committed,
	}
	if from.Claim != nil {
		input.From = from.Claim.Claimant()
	}
	taken, err := call(beside(ctx, from.Shard, taking, "Take over the claim on shard "+from.Shard), shard.TakeClaim, input)
	if err != nil {
		return activities.TakeResult{}, err
	}
	return *taken, nil
}

// moveOf is the move that is recovered. Where one shard has no claim the other's tells.
func (r *recovery) moveOf(from activities.Standing) string {
	if from.Claim != nil {
		return from.Claim.Move()
	}
	for _, claim := range r.status.Standing.claims() {
		return claim.Move()
	}
	return ""
}

// undoFrom enters the undo as if every step had been attempted that may have been. The seal finds no commit: the claims
// are held, and a recovery makes none.
func (r *recovery) undoFrom(ctx workflow.Context) {
	standing := r.status.Standing
	r.reached = readyDestination
	r.location.Owner = standing.Origin.Owner
	if standing.moved() {
		r.reached = commit
		r.status.Fenced = standing.Origin.Inactive
	}
	r.enter(ctx, Preparing)
	r.undo(ctx)
}

// undone ends a recovery that took the move back. Where the tenant is to move all the same, that is a move like any other,
// with a preflight and a fence of its own: what the old one had found and proven is long out of date.
func (r *recovery) undone(ctx workflow.Context) (anew *Input, err error) {
	if r.destinationIsLost {
		r.warn("shard %s was given up for lost: should it ever come back, keep it away from the front-proxies, and take back there what is left with another recovery", r.status.DestinationShard)
	}
	if r.undoErr != nil {
		return nil, activities.Refuse(activities.UndoIncomplete, "the move of %s could not be taken back as a whole", r.status.LogicalCluster)
	}
	if r.recover.Action == Resume {
		move := r.recover.Move
		move.LogicalCluster, move.DestinationShard = r.status.LogicalCluster, r.status.DestinationShard
		return &move, nil
	}
	r.enter(ctx, Undone)
	return nil, nil
}

// goOnwardFrom enters the story right after the commit, with what the dead workflow knew read anew: from the landing in
// the claim, from the objects, and from the tenant where it is served.
func (r *recovery) goOnwardFrom(ctx workflow.Context) {
	standing := r.status.Standing
	landing := standing.Destination.Claim.Landing
	r.commitRevision = landing.Revision
	r.verified.OriginRevision = landing.VerifiedRevision
	r.status.Entries, r.status.Bytes, r.status.SHA256 = landing.Entries, landing.Bytes, landing.SHA256
	r.transferAddress = standing.Origin.TransferAddress
	r.location.Owner = standing.Destination.Owner
	r.status.Plan = &Plan{
		LogicalCluster: r.status.LogicalCluster, Path: r.status.Path,
		OriginShard: r.status.OriginShard, DestinationShard: r.status.DestinationShard,
		Entries: landing.Entries, Bytes: landing.Bytes, RenewsCachedCopies: standing.Origin.ReachesCache,
	}
	r.landed(ctx)
	r.informers.since = workflow.Now(ctx) // by the wake, which is made anew: whether the old one came to an end is not known
	r.wakeBeside(ctx)
	r.awaitServing(ctx, nil)
	r.readContents(ctx)
	r.goOnward(ctx)
}

// readContents finds out what preflight had. Where the tenant cannot be asked, say because it was deleted at the
// destination since, no resource is waited for.
func (r *recovery) readContents(ctx workflow.Context) {
	contents, err := call(r.atDestination(ctx, inspection, "Read what the tenant has"), shard.ReadContents, r.onDestination())
	if err != nil {
		r.warn("what the tenant has could not be read, and its bound resources were not waited for: %s", message(err))
		return
	}
	r.boundResources = contents.Bindings
}

// UnmarshalJSON never fails, like Input's.
func (i *RecoverInput) UnmarshalJSON(data []byte) error {
	type plain RecoverInput
	var fields plain
	problem := decodeStrictly(data, &fields)
	*i = RecoverInput(fields)
	i.problem = problem
	return nil
}

// Validate refuses, with InvalidInput, what no recovery can start with. It needs no server.
func (i RecoverInput) Validate() error {
	var problems []string
	for _, decoded := range []struct {
		problem error
		input   reflect.Type
	}{{i.problem, reflect.TypeFor[RecoverInput]()}, {i.Move.problem, reflect.TypeFor[Input]()}} {
		if decoded.problem != nil {
			problems = append(problems, explain(decoded.problem, decoded.input))
		}
	}
	if i.LogicalCluster == "" {
		problems = append(problems, "logicalCluster is missing: give a workspace path like root:org:ws or a logical cluster's name")
	}
	if i.Action != "" && i.Action != Resume && i.Action != TakeBack {
		problems = append(problems, fmt.Sprintf("action is %q; give %q, %q or nothing", i.Action, Resume, TakeBack))
	}
	if (i.OriginShard == "") != (i.DestinationShard == "") || i.OriginShard != "" && i.OriginShard == i.DestinationShard {
		problems = append(problems, "originShard and destinationShard are two shards, given both or neither")
	}
	if i.DestinationIsLost && i.Action == Resume {
		problems = append(problems, "a move to a destination that is lost cannot be resumed, only undone")
	}
	if len(problems) == 0 {
		return nil
	}
	return activities.Refuse(activities.InvalidInput, "invalid input: %s", strings.Join(problems, "; "))
}
