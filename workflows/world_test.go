package workflows_test

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

const (
	tenant      = "256hdo017n2m0br9"
	tenantPath  = "root:consumer"
	origin      = "root"
	destination = "shard-1"
)

var usualInput = workflows.Input{LogicalCluster: tenantPath, DestinationShard: destination}

// world is two shards as the activities see them, as little as it takes to tell whether the tenant is whole.
// It notes every activity in its order and complains about one that breaks the protocol.
type world struct {
	t   require.TestingT
	env *testsuite.TestWorkflowEnvironment

	originReport      activities.OriginReport
	destinationReport activities.DestinationReport
	owner             *activities.OwnerRef
	ownerGone         bool
	routesLost        int                  // answers of front-proxies that have lost the route; then they have it
	stuck             string               // API servers that do not drop a context
	cut               int64                // the latest of the origin's informers
	cutBefore         func(sweep int) bool // whether another move cuts them off right before a sweep
	sweeps            int
	othersSince       time.Time                 // when the first of the other moves out of the origin began
	pathsLost         bool                      // front-proxies know the name alone
	deleted           bool                      // the tenant was, while the move ran
	verifyRounds      []activities.VerifyResult // answers of the first rounds; then they match
	stragglers        [][]activities.Straggler  // found by the first sweeps
	backlog           *backlog                  // found by all sweeps
	gone              []activities.Straggler    // told by the first sweep
	moreGone          int
	compacted         bool                      // the origin's history since the verification
	delays            map[string]time.Duration  // of the first call of an activity
	faults            map[string][]func() error // what the calls of an activity meet before they act
	lostAnswers       map[string][]func() error // and after
	onCall            map[string]func()         // beside the first call of an activity starts
	attributes        []temporal.SearchAttributes

	acted    func(name string)   // after each call of an activity
	claimant activities.RunState // what Temporal says of the workflow that the claims name
	lost     bool                // a person said that the destination is
	left     bool                // what cannot be deleted at the destination
	sheets   *sheets             // what a recovery finds, where not what the world is

	mutex   sync.Mutex
	calls   []string // in line
	beside  []string // beside the copy, or what takes long
	lifting bool
	shards
	broken []string
}

// shards is what both hold of the tenant and of the move.
type shards struct {
	fencedOnce  bool
	fenced      bool
	blind       bool
	written     int64 // revision of the commit's landing, 0 before
	sealed      bool
	enclosed    bool // the destination has its LogicalCluster, fenced
	opened      bool // somebody has taken that fence away
	copied      bool
	originGone  bool      // its LogicalCluster
	emptiedAt   time.Time // when its entries went
	renewed     bool      // the copies in the cache server
	originEmpty bool
	tokens      map[string]int
}

// newWorld is a tenant that moves without a hitch: 5,010 entries, a lift and a CRD to make ready, an owner Workspace.
func newWorld(t require.TestingT) *world {
	suite := &testsuite.WorkflowTestSuite{}
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	version := activities.Version{Kcp: "v0.32.3", FencesByAnnotation: true}
	family := keyspace.Family{Group: "core", Resource: "configmaps"}
	bound := activities.BoundResource{Binding: "wild", Group: "wild.west", Resource: "cowboys", SchemaUID: "schema-1"}
	w := &world{
		t:   t,
		env: suite.NewTestWorkflowEnvironment(),
		originReport: activities.OriginReport{
			TransferAddress: "127.0.0.1:7000", Version: version, SigningKeys: "same",
			Health:   activities.StoreHealth{Revision: 9_000},
			Contents: activities.Contents{Bindings: []activities.BoundResource{bound}, ServiceAccounts: 1},
			Digest:   activities.Digest{Families: []activities.FamilyDigest{{Family: family, Entries: 5_000, Bytes: 5_000_000}}},
			Entries:  5_010, Bytes: 5_010_000, LeasedEntries: 10,
		},
		destinationReport: activities.DestinationReport{
			Version: version, SigningKeys: "same", Health: activities.StoreHealth{Revision: 4_000}, MissingCRDs: []string{"schema-1"},
		},
		owner:       &activities.OwnerRef{LogicalCluster: "root", Name: "consumer", UID: "uid"},
		cut:         9_050,
		cutBefore:   func(int) bool { return false },
		delays:      map[string]time.Duration{},
		faults:      map[string][]func() error{},
		lostAnswers: map[string][]func() error{},
		onCall:      map[string]func(){},
		acted:       func(string) {},
		shards:      shards{tokens: map[string]int{}},
	}
	w.env.SetTestTimeout(time.Minute) // three seconds are too short for a busy machine
	w.env.RegisterWorkflowWithOptions(workflows.MigrateLogicalCluster, workflow.RegisterOptions{Name: workflows.MigrateLogicalClusterName})
	w.env.RegisterWorkflowWithOptions(workflows.RecoverLogicalCluster, workflow.RegisterOptions{Name: workflows.RecoverLogicalClusterName})
	w.env.RegisterActivity(&activities.Fleet{})
	w.env.RegisterActivity(&activities.Shard{})
	w.env.OnUpsertTypedSearchAttributes(mock.Anything).Return(nil).Run(func(args mock.Arguments) {
		w.attributes = append(w.attributes, args.Get(0).(temporal.SearchAttributes))
	})
	w.env.SetOnActivityStartedListener(w.started)
	w.answerPreflight()
	w.answerClaims()
	w.answerOnOrigin()
	w.answerOnDestination()
	return w
}

// on answers calls of one activity: it applies the faults, and lets effect change the world.
func on[In, Out any](w *world, name string, effect func(In) Out) {
	answer := func(ctx context.Context, input In) (*Out, error) {
		result, err := attempt(ctx, w, name, input, effect)
		return &result, err
	}
	w.mockActivity(name, answer)
}

// onDo is on for activities that have no result.
func onDo[In any](w *world, name string, effect func(In)) {
	answer := func(ctx context.Context, input In) error {
		_, err := attempt(ctx, w, name, input, func(input In) struct{} { effect(input); return struct{}{} })
		return err
	}
	w.mockActivity(name, answer)
}

// onShard is onDo for activities that either shard is asked for.
func onShard[In any](w *world, name string, effect func(shard string, input In)) {
	w.mockActivity(name, func(ctx context.Context, input In) error {
		_, err := attempt(ctx, w, name, input, func(input In) struct{} { effect(place(ctx), input); return struct{}{} })
		return err
	})
}

func (w *world) mockActivity(name string, answer any) {
	w.env.OnActivity(name, mock.Anything, mock.Anything).Return(answer).AfterFn(func() time.Duration {
		w.mutex.Lock()
		defer w.mutex.Unlock()
		delay := w.delays[name]
		delete(w.delays, name)
		return delay
	})
}

func attempt[In, Out any](ctx context.Context, w *world, name string, input In, effect func(In) Out) (Out, error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	var none Out
	if err := next(w.faults, name); err != nil {
		return none, err
	}
	if w.lockedOut(name, place(ctx), input) {
		return none, activities.Refuse(activities.TokenLost, "this attempt was replaced")
	}
	result := effect(input)
	w.acted(name)
	if err := next(w.lostAnswers, name); err != nil {
		return none, err
	}
	return result, nil
}

// lockedOut reports whether the claim holds a newer token than this attempt's: it was given up for dead and woke up.
func (w *world) lockedOut(name, shard string, input any) bool {
	present := w.tokens[shard]
	if to, raises := tokenIn(input, "To"); raises { // RaiseToken and Seal go from whatever lower token there is
		return to < present && w.written == 0
	}
	guard, guarded := tokenIn(input, "Guard")
	if !guarded || name == "Claim" || name == "TakeClaim" || name == "Release" {
		return false
	}
	raised, raises := tokenIn(input, "RaiseTo")
	return guard != present && (!raises || raised != present)
}

// tokenIn finds the number of a token in an activity's input.
func tokenIn(input any, field string) (number int, found bool) {
	value := reflect.ValueOf(input).FieldByName(field)
	if !value.IsValid() {
		return 0, false
	}
	switch token := value.Interface().(type) {
	case activities.Guard:
		return token.Token.Number(), true
	case activities.Token:
		return token.Number(), true
	}
	return 0, false
}

// place is the shard or queue that an activity runs on.
func place(ctx context.Context) string {
	return strings.TrimPrefix(activity.GetInfo(ctx).TaskQueue, workflows.ShardTaskQueue(""))
}

func next(faults map[string][]func() error, name string) error {
	if len(faults[name]) == 0 {
		return nil
	}
	fault := faults[name][0]
	faults[name] = faults[name][1:]
	return fault()
}

// started notes a call as it starts and does what a test wants done beside it. It runs in the test environment's own
// loop, so that the order of the calls, cancellations and Updates is never left to chance.
func (w *world) started(info *activity.Info, _ context.Context, args converter.EncodedValues) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.note(called(w.t, info, args))
	if beside := w.onCall[info.ActivityType.Name]; beside != nil {
		delete(w.onCall, info.ActivityType.Name)
		beside()
	}
}

// note keeps apart what runs beside what is in line, because its place among the calls in line is left to chance.
func (w *world) note(call string) {
	name, _, _ := strings.Cut(call, "@")
	waking := (name == "WakeShard" || name == "AwaitInformers") && w.fencedOnce && !w.lifting
	if waking || name == "HoldRoute" {
		w.beside = append(w.beside, call)
		return
	}
	w.lifting = w.lifting || strings.HasPrefix(call, "LiftFence@")
	w.calls = append(w.calls, call)
}

// called spells a call: the activity, the shard or queue it ran on, the number of its token, and what it raised that to.
func called(t require.TestingT, info *activity.Info, args converter.EncodedValues) string {
	var input struct {
		Guard   *activities.Guard `json:"guard"`
		To      any               `json:"to"` // a token, or the revision of a lift
		RaiseTo activities.Token  `json:"raiseTo"`
	}
	require.NoError(t, args.Get(&input))
	text := info.ActivityType.Name + "@" + strings.TrimPrefix(info.TaskQueue, workflows.ShardTaskQueue(""))
	if input.Guard != nil {
		text += fmt.Sprintf("/%d", input.Guard.Token.Number())
	}
	if to, isToken := input.To.(string); isToken {
		input.RaiseTo = activities.Token(to)
	}
	if input.RaiseTo != "" {
		text += fmt.Sprintf("→%d", input.RaiseTo.Number())
	}
	return text
}

// must notes a broken promise. The workflow cannot see it, the test does.
func (w *world) must(kept bool, promise string) {
	if !kept {
		w.broken = append(w.broken, promise+" after "+strings.Join(w.calls, ", "))
	}
}

// raise raises a token as etcd would: a repeat finds it raised, and a claim that is gone is left alone.
func (w *world) raise(shard string, to activities.Token) {
	if w.tokens[shard] > 0 {
		w.tokens[shard] = max(w.tokens[shard], to.Number())
	}
}

func (w *world) answerPreflight() {
	on(w, "Resolve", func(input activities.ResolveInput) activities.ResolveResult {
		return activities.ResolveResult{Location: activities.Location{LogicalCluster: tenant, Path: tenantPath, Shard: origin, Owner: w.owner}}
	})
	on(w, "InspectOrigin", func(activities.InspectInput) activities.OriginReport { return w.originReport })
	on(w, "InspectDestination", func(activities.InspectInput) activities.DestinationReport { return w.destinationReport })
}

func (w *world) answerClaims() {
	onShard(w, "Claim", func(shard string, input activities.ClaimInput) {
		w.tokens[shard] = max(w.tokens[shard], input.Guard.Token.Number())
	})
	onShard(w, "Release", func(shard string, _ activities.GuardInput) {
		w.must(!w.fenced || w.originGone, "the origin's fence never outlives a claim")
		w.must(w.lost || w.left || w.written > 0 || !w.enclosed && !w.copied, "no half-filled destination outlives a claim")
		delete(w.tokens, shard)
	})
	onDo(w, "RaiseToken", func(input activities.RaiseInput) { w.raise(origin, input.To) })
	on(w, "Seal", func(input activities.RaiseInput) activities.SealResult {
		if w.written > 0 {
			return activities.SealResult{Committed: true}
		}
		w.raise(destination, input.To)
		w.sealed = true
		return activities.SealResult{}
	})
}

func (w *world) answerOnOrigin() {
	on(w, "FenceOrigin", func(input activities.RaiseInput) activities.FenceResult {
		w.raise(origin, input.To)
		w.fenced, w.fencedOnce, w.blind = true, true, true
		return activities.FenceResult{Revision: 9_100}
	})
	onDo(w, "LiftFence", func(activities.GuardInput) {
		w.must(w.lost || w.written == 0 && (w.sealed || w.tokens[destination] == 0), "the fence is lifted only after the seal")
		w.must(w.lost || w.left || !w.enclosed && !w.copied, "the fence is lifted only once the destination is empty")
		w.must(w.lost || !w.opened, "the fence is never lifted beside an open destination")
		w.fenced = false
	})
	on(w, "WakeShard", func(activities.GuardInput) activities.WakeResult {
		w.blind = false
		return activities.WakeResult{Cut: w.cut}
	})
	on(w, "AwaitInformers", func(activities.GuardInput) activities.InformersResult {
		w.must(!w.blind, "informers can come back only to a shard that is awake")
		return activities.InformersResult{Cut: w.cut, OthersSince: w.othersSince}
	})
	on(w, "ReleaseContext", func(activities.GuardInput) activities.ReleaseResult {
		w.must(w.originGone || !w.originEmpty, "the context is released before anything is deleted") // without the object it is a repeat
		return activities.ReleaseResult{Stuck: w.stuck}
	})
	on(w, "DropOriginLogicalCluster", func(activities.GuardInput) activities.DropResult {
		w.must(w.written > 0, "nothing is deleted at the origin before the commit landed")
		w.must(!w.blind, "the origin is awake before its LogicalCluster goes")
		w.originGone = true
		return activities.DropResult{Revision: 9_200}
	})
	on(w, "DeleteOriginEntries", func(input activities.DeleteInput) activities.DeleteResult {
		w.must(w.written > 0 && w.originGone, "entries go after the commit and after the LogicalCluster")
		w.sweeps++
		if w.cutBefore(w.sweeps) {
			w.cut++
		}
		if input.Cut != activities.WhicheverCut && input.Cut != w.cut {
			return activities.DeleteResult{CutOff: w.cut}
		}
		if !w.originEmpty {
			w.originEmpty, w.emptiedAt = true, w.env.Now()
		}
		result := activities.DeleteResult{Deleted: 5_010, Revision: 9_300, Accounted: 9_300}
		if input.Accounted == 0 {
			result.Gone, result.MoreGone, result.DeletionsUnknown = w.gone, w.moreGone, w.compacted
		}
		if w.backlog != nil {
			w.backlog.tell(&result, input.Accounted)
		}
		if len(w.stragglers) > 0 {
			result.Stragglers, w.stragglers = w.stragglers[0], w.stragglers[1:]
		}
		return result
	})
	on(w, "RenewCachedCopies", func(input activities.RenewInput) activities.RenewResult {
		w.must(w.originEmpty, "the copies are renewed once the origin is empty")
		w.renewed = input.DestinationShard == destination
		return activities.RenewResult{Deleted: 7, Touched: 8}
	})
	onDo(w, "DropCarried", func(input activities.DropCarriedInput) {
		w.must(len(input.Stragglers) > 0, "what was carried is dropped")
		if w.backlog != nil {
			w.backlog.drop(input.Stragglers)
		}
	})
	on(w, "AwaitRoute", func(input activities.RouteInput) activities.RouteResult {
		w.must(input.Shard == origin && !w.fenced && w.written == 0 || input.Shard == destination && w.written > 0, "the route leads to where the tenant is served")
		if w.routesLost == 0 && (!w.pathsLost || input.Path == "") {
			return activities.RouteResult{}
		}
		w.routesLost = max(0, w.routesLost-1)
		return activities.RouteResult{Lost: "403 unknown to the front-proxy"}
	})
	on(w, "TouchOwner", func(activities.OwnerInput) activities.OwnerResult {
		return activities.OwnerResult{Gone: w.ownerGone}
	})
	on(w, "AwaitOwner", func(activities.OwnerInput) activities.OwnerResult {
		return activities.OwnerResult{Gone: w.ownerGone}
	})
}

func (w *world) answerOnDestination() {
	onDo(w, "DiscardLeftovers", func(activities.GuardInput) {})
	on(w, "InstallBoundCRDs", func(input activities.InstallInput) activities.InstallResult {
		return activities.InstallResult{Created: input.SchemaUIDs}
	})
	on(w, "LiftRevision", func(input activities.LiftInput) activities.LiftResult {
		return activities.LiftResult{Revision: input.To}
	})
	onDo(w, "FenceDestination", func(activities.FenceDestinationInput) {
		w.must(w.fenced, "the destination is fenced after the origin")
		w.enclosed = true
	})
	on(w, "CopyEntries", func(input activities.CopyInput) activities.CopyResult {
		w.must(w.enclosed, "entries are copied into a fenced destination")
		w.copied = true
		return activities.CopyResult{Revision: input.Revision, Entries: 5_010, Bytes: 5_010_000}
	})
	on(w, "VerifyEntries", func(input activities.VerifyInput) activities.VerifyResult {
		w.raise(destination, input.RaiseTo)
		if len(w.verifyRounds) > 0 {
			round := w.verifyRounds[0]
			w.verifyRounds = w.verifyRounds[1:]
			return round
		}
		return activities.VerifyResult{Match: true, OriginRevision: 9_150, Entries: 5_011, Bytes: 5_011_000, SHA256: "digest"}
	})
	on(w, "Commit", func(input activities.CommitInput) activities.CommitResult {
		w.must(w.fenced && w.copied && !w.sealed, "a commit needs the fence and must not follow a seal")
		if w.written == 0 {
			w.raise(destination, input.RaiseTo)
			w.written = 4_500
		}
		return activities.CommitResult{Revision: w.written}
	})
	on(w, "AwaitServing", func(activities.ServeInput) activities.ServeResult { return activities.ServeResult{} })
	on(w, "TouchDestination", func(activities.GuardInput) activities.TouchResult {
		w.must(w.written > 0, "the destination is touched after the commit")
		return activities.TouchResult{Gone: w.deleted}
	})
	on(w, "HoldRoute", func(activities.GuardInput) activities.TouchResult {
		w.must(w.written > 0, "the route is held after the commit")
		return activities.TouchResult{Gone: w.deleted}
	})
	on(w, "CarryStragglers", func(input activities.CarryInput) activities.CarryResult {
		carried := slices.Clone(input.Stragglers)
		for i := range carried {
			carried[i].Carried = w.backlog == nil || w.backlog.carry(carried[i])
		}
		return activities.CarryResult{Stragglers: carried}
	})
	on(w, "TouchOrigin", func(activities.GuardInput) activities.TouchResult {
		w.must(w.written == 0, "the route is turned back only where no commit landed")
		return activities.TouchResult{Gone: w.deleted}
	})
	onDo(w, "DropDestinationLogicalCluster", func(activities.GuardInput) {
		w.must(w.sealed && w.written == 0, "the destination is emptied only after the seal")
		w.enclosed, w.opened = false, false
	})
	onDo(w, "SweepDestination", func(activities.GuardInput) {
		w.must(w.sealed && w.written == 0, "the destination is swept only after the seal")
		w.enclosed, w.opened, w.copied = false, false, false
	})
	onDo(w, "DropDestinationEntries", func(activities.GuardInput) {
		w.must(w.sealed && w.written == 0, "the destination is emptied only after the seal")
		w.copied = false
	})
}

// move runs the workflow to its end.
func (w *world) move(input workflows.Input) {
	w.env.ExecuteWorkflow(workflows.MigrateLogicalClusterName, input)
	require.True(w.t, w.env.IsWorkflowCompleted())
	w.mutex.Lock()
	defer w.mutex.Unlock()
	require.Empty(w.t, w.broken)
}

func (w *world) result() workflows.Result {
	var result workflows.Result
	require.NoError(w.t, w.env.GetWorkflowError())
	require.NoError(w.t, w.env.GetWorkflowResult(&result))
	return result
}

// failure is how a move failed: the type, the words, and the result in the failure's details.
func (w *world) failure() (*temporal.ApplicationError, workflows.Result) {
	var failure *temporal.ApplicationError
	var result workflows.Result
	require.ErrorAs(w.t, w.env.GetWorkflowError(), &failure)
	require.NoError(w.t, failure.Details(&result))
	return failure, result
}

func (w *world) status() workflows.Status {
	var status workflows.Status
	answer, err := w.env.QueryWorkflow(workflows.StatusQuery)
	require.NoError(w.t, err)
	require.NoError(w.t, answer.Get(&status))
	return status
}

// order is the outcome of an Update.
type order struct {
	rejected error
	err      error
	done     bool
}

// send sends an Update and follows it.
func (w *world) send(name string, args ...any) *order {
	sent := &order{}
	w.env.UpdateWorkflow(name, "", &testsuite.TestUpdateCallback{
		OnAccept:   func() {},
		OnReject:   func(err error) { sent.rejected = err },
		OnComplete: func(_ any, err error) { sent.done, sent.err = true, err },
	}, args...)
	return sent
}

// givenBack is that the tenant is back at the origin and nothing is left of the move.
func (w *world) givenBack() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	require.False(w.t, w.fenced, "the fence is lifted")
	require.False(w.t, w.enclosed || w.copied, "the destination is empty")
	require.Empty(w.t, w.tokens, "the claims are gone")
	require.Zero(w.t, w.written, "no commit landed")
}

// arrived is that the tenant is at the destination and nothing is left of the move.
func (w *world) arrived() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	require.NotZero(w.t, w.written, "the commit landed")
	require.True(w.t, w.originGone && w.originEmpty, "nothing is left at the origin")
	require.Empty(w.t, w.tokens, "the claims are gone")
	require.False(w.t, w.blind, "the origin is awake")
}

func broken() error { return activities.Refuse("Broken", "this cannot be mended by another try") }

func flaky() error { return fmt.Errorf("connection refused") }

var _ require.TestingT = (*testing.T)(nil)
