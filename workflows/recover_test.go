package workflows_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

var (
	undoing  = workflows.RecoverInput{LogicalCluster: tenantPath, Action: workflows.TakeBack}
	resuming = workflows.RecoverInput{LogicalCluster: tenantPath, Action: workflows.Resume}
)

// remains is what a workflow that was terminated has left behind.
type remains struct {
	name string
	shards
}

// remainsOf terminates a workflow after each of its activities: it runs on, but nothing comes of it.
func remainsOf(w *world, what string, run func()) []remains {
	var all []remains
	w.acted = func(name string) {
		left := w.shards
		left.tokens = maps.Clone(w.tokens)
		all = append(all, remains{name: fmt.Sprintf("%s/%d after %s", what, len(all)+1, name), shards: left})
	}
	run()
	return all
}

// terminated are the remains of a move without a hitch and of one that was taken back at the last moment.
func terminated(t *testing.T) []remains {
	onward, back := newWorld(t), newWorld(t)
	back.faults["Commit"] = []func() error{broken}
	return append(
		remainsOf(onward, "move", func() { onward.move(usualInput) }),
		remainsOf(back, "undo", func() { back.move(usualInput) })...)
}

// recovering is a world where a workflow was terminated.
func recovering(t *testing.T, left remains) *world {
	w := newWorld(t)
	w.shards = left.shards
	w.tokens = maps.Clone(left.tokens)
	w.claimant.Name = "Terminated"
	w.answerRecovery()
	return w
}

func (w *world) answerRecovery() {
	on(w, "FindShards", func(activities.FindInput) activities.FindResult {
		return activities.FindResult{
			Location: activities.Location{LogicalCluster: tenant, Path: tenantPath, Shard: origin}, Shards: []string{destination, origin},
		}
	})
	on(w, "FindWorkflow", func(activities.WorkflowInput) activities.RunState { return w.claimant })
	w.mockActivity("Survey", surveyor(w))
	w.mockActivity("TakeClaim", taker(w))
	on(w, "ReadContents", func(activities.GuardInput) activities.Contents { return w.originReport.Contents })
}

// survey is what a shard would tell of itself.
func (w *world) survey(name string) activities.Standing {
	if w.sheets != nil && name == origin {
		return w.sheets.origin
	}
	if w.sheets != nil {
		return w.sheets.destination
	}
	standing := activities.Standing{Shard: name, TransferAddress: "127.0.0.1:7000"}
	if number := w.tokens[name]; number > 0 {
		standing.Claim = &activities.Claim{
			Token:     activities.Token(fmt.Sprintf("dead-run/%d", number)),
			ClaimInfo: activities.ClaimInfo{WorkflowID: "migrate-ws", RunID: "dead-run", Path: tenantPath, OriginShard: origin, DestinationShard: destination},
		}
	}
	if name == origin {
		w.surveyOrigin(&standing)
	} else {
		w.surveyDestination(&standing)
	}
	return standing
}

func (w *world) surveyOrigin(standing *activities.Standing) {
	standing.HasLogicalCluster, standing.Inactive = !w.originGone, w.fenced && !w.originGone
	if standing.Inactive {
		standing.Stamp = "dead-run/2"
	}
	if !w.originEmpty {
		standing.Keys = 5_011
	}
	if standing.Claim != nil && w.originGone {
		standing.Claim.DroppedAt = 9_200
	}
}

func (w *world) surveyDestination(standing *activities.Standing) {
	standing.HasLogicalCluster, standing.Inactive = w.enclosed || w.written > 0, w.written == 0 && w.enclosed
	if standing.Inactive {
		standing.Stamp, standing.Keys = "dead-run/1", 1
	}
	if w.copied {
		standing.Keys += 5_010
	}
	if standing.Claim != nil && w.written > 0 {
		standing.Claim.Committed = true
		standing.Claim.Landing = &activities.Landing{Token: standing.Claim.Token, Revision: w.written, VerifiedRevision: 9_150, Entries: 5_011}
	}
}

// surveyor answers for whichever shard is asked; "Survey@shard" has faults of its own.
func surveyor(w *world) func(context.Context, activities.SurveyInput) (*activities.Standing, error) {
	return func(ctx context.Context, input activities.SurveyInput) (*activities.Standing, error) {
		name := place(ctx)
		standing, err := attempt(ctx, w, "Survey@"+name, input, func(activities.SurveyInput) activities.Standing { return w.survey(name) })
		if err == nil && standing.Unreachable != "" {
			err = broken()
		}
		return &standing, err
	}
}

// taker hands a claim over.
func taker(w *world) func(context.Context, activities.TakeInput) (*activities.TakeResult, error) {
	return func(ctx context.Context, input activities.TakeInput) (*activities.TakeResult, error) {
		name := place(ctx)
		taken, err := attempt(ctx, w, "TakeClaim", input, func(activities.TakeInput) activities.TakeResult {
			w.must(name == destination || input.Committed == (w.written > 0), "the origin's LogicalCluster is left alone once the destination serves")
			w.tokens[name] = max(w.tokens[name], 1)
			token := activities.Token(fmt.Sprintf("%s/%d", input.Guard.Token.Run(), w.tokens[name]))
			return activities.TakeResult{Token: token, Committed: name == destination && w.written > 0}
		})
		return &taken, err
	}
}

func (w *world) recover(input workflows.RecoverInput) {
	w.env.ExecuteWorkflow(workflows.RecoverLogicalClusterName, input)
	require.True(w.t, w.env.IsWorkflowCompleted())
	w.mutex.Lock()
	defer w.mutex.Unlock()
	require.Empty(w.t, w.broken)
}

// untouched is that nothing was changed.
func (w *world) untouched(left remains) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	require.Equal(w.t, left.shards, w.shards)
}

// requireAnew expects a recovery to have ended in a move that begins from the start.
func (w *world) requireAnew() {
	var anew *workflow.ContinueAsNewError
	require.ErrorAs(w.t, w.env.GetWorkflowError(), &anew)
	require.Equal(w.t, workflows.MigrateLogicalClusterName, anew.WorkflowType.Name)
	var input workflows.Input
	require.NoError(w.t, converter.GetDefaultDataConverter().FromPayloads(anew.Input, &input))
	require.Equal(w.t, workflows.Input{LogicalCluster: tenant, DestinationShard: destination}, input)
}

func TestRecover_TerminatedAfterAnyStep_TakesBackOrRefuses(t *testing.T) {
	for _, left := range terminated(t) {
		t.Run(left.name, func(t *testing.T) {
			w := recovering(t, left)
			w.recover(undoing)
			switch {
			case len(left.tokens) == 0:
				w.requireRefused(activities.NothingToRecover)
				w.untouched(left)
			case left.written > 0:
				w.requireRefused(activities.AlreadyCommitted)
				w.untouched(left)
			default:
				require.Equal(t, workflows.Undone, w.result().Phase)
				w.givenBack()
				require.False(t, w.blind, "the origin is awake")
			}
		})
	}
}

func TestRecover_TerminatedAfterAnyStep_FinishesOrBeginsAnew(t *testing.T) {
	for _, left := range terminated(t) {
		t.Run(left.name, func(t *testing.T) {
			w := recovering(t, left)
			w.recover(resuming)
			switch {
			case len(left.tokens) == 0:
				w.requireRefused(activities.NothingToRecover)
			case left.written > 0:
				require.Equal(t, workflows.Completed, w.result().Phase)
				require.Equal(t, int64(5_011), w.result().Entries)
				w.arrived()
			default:
				w.requireAnew()
				w.givenBack()
			}
		})
	}
}

// What a recovery leaves is as good as what a move leaves.
func TestRecover_TerminatedItselfAfterAnyStep_IsRecovered(t *testing.T) {
	for _, input := range []workflows.RecoverInput{undoing, resuming} {
		for _, left := range terminated(t) {
			first := recovering(t, left)
			for _, again := range remainsOf(first, left.name+"/"+string(input.Action), func() { first.recover(input) }) {
				if len(again.tokens) == 0 || (again.written > 0) != (input.Action == workflows.Resume) {
					continue
				}
				t.Run(again.name, func(t *testing.T) {
					w := recovering(t, again)
					w.recover(input)
					if again.written > 0 {
						w.arrived()
						return
					}
					w.givenBack()
				})
			}
		}
	}
}

func TestRecover_WithoutAnAction_ChangesNothingAndAdvises(t *testing.T) {
	for _, left := range terminated(t) {
		t.Run(left.name, func(t *testing.T) {
			w := recovering(t, left)
			w.recover(workflows.RecoverInput{LogicalCluster: tenantPath})
			w.untouched(left)
			if len(left.tokens) == 0 {
				w.requireRefused(activities.NothingToRecover)
				return
			}
			standing := w.result().Standing
			require.Equal(t, left.written > 0, standing.Committed)
			advice := "`kcp-migrate recover root:consumer --undo` takes the move back"
			if left.written > 0 {
				advice = "`kcp-migrate recover root:consumer --resume` finishes the move"
			}
			require.Contains(t, standing.Advice, advice)
		})
	}
}

func (w *world) requireRefused(errorType string) {
	failure, _ := w.failure()
	require.Equal(w.t, errorType, failure.Type(), failure.Message())
}

// halfCopied is a move that was terminated in the copy.
func halfCopied(t *testing.T) remains {
	for _, left := range terminated(t) {
		if left.copied {
			return left
		}
	}
	t.Fatal("no move copies")
	return remains{}
}

func TestRecover_TakesTheDestinationFirst_AndDecidesOnlyThen(t *testing.T) {
	w := recovering(t, halfCopied(t))
	w.recover(undoing)
	require.Equal(t, []string{
		"FindShards@kcp-migrate", "Survey@root", "Survey@root", "Survey@shard-1", "FindWorkflow@kcp-migrate",
		"TakeClaim@shard-1/1", "TakeClaim@root/1", "Survey@root", "Survey@shard-1",
		"Seal@shard-1/1→2", "RaiseToken@root/2→3", "DropDestinationEntries@shard-1/2", "TouchOrigin@root/3", "DropDestinationLogicalCluster@shard-1/2",
		"LiftFence@root/3", "WakeShard@root/3", "SweepDestination@shard-1/2", "TouchOrigin@root/3", "AwaitRoute@kcp-migrate", "Release@shard-1/2", "Release@root/3",
	}, w.calls)
}

// The commit of a move that was thought dead lands between the look and the take.
func TestRecover_CommitLandsBeforeTheTake_IsNotUndone(t *testing.T) {
	w := recovering(t, halfCopied(t))
	w.onCall["TakeClaim"] = func() { w.written, w.enclosed = 4_500, false }
	w.recover(undoing)
	w.requireRefused(activities.AlreadyCommitted)
	require.True(t, w.fenced, "the origin stays closed")
	require.True(t, w.copied)
}

func TestRecover_WhileAWorkflowRuns_IsRefused(t *testing.T) {
	for name, state := range map[string]activities.RunState{
		activities.AlreadyMigrating: {Name: "Running", Running: true},
		activities.WorkflowUnknown:  {},
	} {
		for _, input := range []workflows.RecoverInput{undoing, resuming} {
			t.Run(name, func(t *testing.T) {
				left := halfCopied(t)
				w := recovering(t, left)
				w.claimant = state
				w.recover(input)
				w.requireRefused(name)
				w.untouched(left)
			})
		}
	}
}

func TestRecover_WorkflowIsLost_GoesOnOnAPersonsWord(t *testing.T) {
	w := recovering(t, halfCopied(t))
	w.claimant = activities.RunState{}
	input := undoing
	input.WorkflowIsLost = true
	w.recover(input)
	w.givenBack()
}

func TestRecover_DestinationIsLost_OpensTheOriginWithoutIt(t *testing.T) {
	left := halfCopied(t)
	w := recovering(t, left)
	w.faults["Survey@"+destination] = []func() error{broken}
	w.lost = true
	input := undoing
	input.DestinationIsLost = true
	w.recover(input)

	require.Equal(t, workflows.Undone, w.result().Phase)
	require.Contains(t, fmt.Sprint(w.result().Warnings), "given up for lost")
	require.False(t, w.fenced)
	require.Equal(t, map[string]int{destination: left.tokens[destination]}, w.tokens, "nothing is asked of the destination")
}

func TestRecover_DestinationIsLost_IsRefused(t *testing.T) {
	input := undoing
	input.DestinationIsLost = true
	for name, provoke := range map[string]func(*world){
		activities.DestinationAnswers: func(*world) {},
		activities.AlreadyCommitted: func(w *world) { // entries go at the origin after the commit alone
			w.faults["Survey@"+destination] = []func() error{broken}
			w.originGone = true
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := recovering(t, halfCopied(t))
			provoke(w)
			w.recover(input)
			w.requireRefused(name)
			require.True(t, w.fenced)
		})
	}
}

func TestRecover_DestinationDoesNotAnswer_IsRefusedWithoutAPersonsWord(t *testing.T) {
	w := recovering(t, halfCopied(t))
	w.faults["Survey@"+destination] = slices.Repeat([]func() error{flaky}, 6)
	w.recover(undoing)
	w.requireRefused(activities.Unreachable)
	require.True(t, w.fenced)
}

func TestRecover_CancelledBeforeTheTake_ChangesNothing(t *testing.T) {
	left := halfCopied(t)
	w := recovering(t, left)
	w.onCall["FindWorkflow"] = w.env.CancelWorkflow
	w.recover(undoing)
	require.Error(t, w.env.GetWorkflowError())
	w.untouched(left)
}

func TestRecover_CancelledAfterTheTake_ChangesNothing(t *testing.T) {
	w := recovering(t, halfCopied(t))
	w.onCall["Seal"] = w.env.CancelWorkflow
	w.recover(undoing)
	require.Equal(t, workflows.Undone, w.result().Phase)
	w.givenBack()
}

func TestRecover_UndoThatCannotTakeAllBack_Fails(t *testing.T) {
	w := recovering(t, halfCopied(t))
	w.faults["LiftFence"] = []func() error{broken}
	w.env.ExecuteWorkflow(workflows.RecoverLogicalClusterName, resuming)
	failure, result := w.failure()
	require.Equal(t, activities.UndoIncomplete, failure.Type())
	require.Len(t, result.NotUndone, 2)
	require.Contains(t, result.NotUndone[1], "the origin is still fenced")
}

func TestRecover_InvalidInput_IsRefusedWithEveryProblem(t *testing.T) {
	for says, input := range map[string]workflows.RecoverInput{
		"logicalCluster is missing": {},
		"action is":                 {LogicalCluster: "a", Action: "finish"},
		"given both or neither":     {LogicalCluster: "a", OriginShard: "root"},
		"only undone":               {LogicalCluster: "a", Action: workflows.Resume, DestinationIsLost: true},
	} {
		require.ErrorContains(t, input.Validate(), says)
	}
	require.NoError(t, undoing.Validate())
}
