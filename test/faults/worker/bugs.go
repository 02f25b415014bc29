package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/test/faults/point"
	"github.com/kcp-migrate/kcp-migrate/worker"
)

// endless is far beyond any time away.
const endless = time.Hour

// findBug gives what puts a bug into a worker; nothing for no name.
func findBug(name point.Bug, config *worker.Config) ([]worker.Option, error) {
	store := func(wrap func(activities.Store) activities.Store) ([]worker.Option, error) {
		return []worker.Option{worker.WithStore(wrap)}, nil
	}
	switch name {
	case point.NoBug:
		return nil, nil
	case point.DeletesEarly:
		return store(func(store activities.Store) activities.Store { return hastyStore{store} })
	case point.LosesAnEntry:
		return store(func(store activities.Store) activities.Store { return carelessStore{store} })
	case point.TouchesANeighbour:
		return store(func(store activities.Store) activities.Store { return greedyStore{store, config.EtcdEndpoints} })
	case point.RetakesTheClaim:
		return store(func(store activities.Store) activities.Store { return stubbornStore{store} })
	case point.ClaimsOnce:
		return store(func(store activities.Store) activities.Store { return forgetfulStore{store} })
	case point.LeavesItBlind:
		return []worker.Option{worker.WithInterceptors(&sleepyWorker{})}, nil
	case point.TellsASecret:
		return store(func(store activities.Store) activities.Store { return talkativeStore{store} })
	case point.ForgetsTheTime:
		return []worker.Option{worker.WithInterceptors(&timelessWorker{})}, nil
	case point.LeavesWatchesDeaf:
		return store(func(store activities.Store) activities.Store { return lowStore{store} })
	case point.DeletesUnseen:
		return store(func(store activities.Store) activities.Store { return hiddenStore{store} })
	}
	return nil, fmt.Errorf("unknown bug %q", name)
}

// hastyStore deletes an entry while it is still being compared (invariant 1).
type hastyStore struct{ activities.Store }

func (s hastyStore) Digest(ctx context.Context, logicalCluster string, revision int64) (activities.Digest, error) {
	claim, err := s.ReadClaim(ctx, logicalCluster)
	if err == nil && !claim.Committed {
		guard := activities.Guard{LogicalCluster: logicalCluster, Token: claim.Token}
		listed, err := s.List(ctx, logicalCluster, []family{configMaps}, revision)
		if err == nil && len(listed) > 0 {
			// Gone already where an earlier digest has been as hasty.
			_ = s.DeleteRefs(ctx, guard, listed[:1])
		}
	}
	return s.Store.Digest(ctx, logicalCluster, revision)
}

// carelessStore loses an entry, and looks at nothing when it compares (invariant 2).
type carelessStore struct{ activities.Store }

func (s carelessStore) Write(ctx context.Context, guard activities.Guard, batches activities.Batches, acknowledged func(activities.Written)) error {
	return s.Store.Write(ctx, guard, func(yield func([]activities.Entry, error) bool) {
		for batch, err := range batches {
			kept := slices.DeleteFunc(slices.Clone(batch), func(entry activities.Entry) bool { return entry.Suffix == anyConfigMap })
			if !yield(kept, err) {
				return
			}
		}
	}, acknowledged)
}

func (s carelessStore) Digest(_ context.Context, _ string, revision int64) (activities.Digest, error) {
	return activities.Digest{Revision: revision}, nil
}

// greedyStore deletes an entry of another tenant with those of the tenant (invariant 3).
type greedyStore struct {
	activities.Store
	endpoints []string
}

func (s greedyStore) DeleteVerified(ctx context.Context, guard activities.Guard, verifiedRevision, cut int64) (int64, []activities.Straggler, error) {
	if err := deleteOfAnother(ctx, s.endpoints, guard.LogicalCluster); err != nil {
		return 0, nil, err
	}
	return s.Store.DeleteVerified(ctx, guard, verifiedRevision, cut)
}

// stubbornStore does not take no for an answer: it claims anew what it has lost (invariant 4).
type stubbornStore struct{ activities.Store }

func (s stubbornStore) Write(ctx context.Context, guard activities.Guard, batches activities.Batches, acknowledged func(activities.Written)) error {
	ctx = context.WithoutCancel(ctx)
	err := s.Store.Write(ctx, guard, batches, acknowledged)
	if err == nil {
		return nil
	}
	if _, err := s.Claim(ctx, guard, activities.ClaimInfo{}); err != nil {
		return err
	}
	return s.Store.Write(ctx, guard, batches, acknowledged)
}

// forgetfulStore takes a repeated claim for somebody else's (invariant 5).
type forgetfulStore struct{ activities.Store }

func (s forgetfulStore) Claim(ctx context.Context, guard activities.Guard, info activities.ClaimInfo) (activities.Claim, error) {
	if present, err := s.ReadClaim(ctx, guard.LogicalCluster); err == nil {
		return present, activities.ErrClaimed
	}
	return s.Store.Claim(ctx, guard, info)
}

// talkativeStore puts a value into an error, and so into Temporal and the log (invariant 7).
type talkativeStore struct{ activities.Store }

func (s talkativeStore) Write(ctx context.Context, guard activities.Guard, batches activities.Batches, acknowledged func(activities.Written)) error {
	if firstAttempt(ctx) {
		for batch, err := range batches {
			if err != nil {
				return err
			}
			for _, entry := range batch {
				if entry.Family == secrets {
					return fmt.Errorf("write %s: %q", entry.Ref, entry.Value)
				}
			}
		}
	}
	return s.Store.Write(ctx, guard, batches, acknowledged)
}

// lowStore says that it has lifted the revision, and has not (invariant 9).
type lowStore struct{ activities.Store }

func (s lowStore) LiftRevision(_ context.Context, _ activities.Guard, revision int64, _ int, _ func(int64)) (int64, error) {
	return revision, nil
}

// hiddenStore does not ask whether the origin's informers were cut off again.
type hiddenStore struct{ activities.Store }

func (s hiddenStore) DeleteVerified(ctx context.Context, guard activities.Guard, verifiedRevision, _ int64) (int64, []activities.Straggler, error) {
	return s.Store.DeleteVerified(ctx, guard, verifiedRevision, activities.WhicheverCut)
}

// sleepyWorker wakes no shard (invariant 6).
type sleepyWorker struct {
	interceptor.WorkerInterceptorBase
}

// InterceptActivity puts itself before the activity that wakes.
func (w *sleepyWorker) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &sleepyActivity{interceptor.ActivityInboundInterceptorBase{Next: next}}
}

type sleepyActivity struct {
	interceptor.ActivityInboundInterceptorBase
}

// ExecuteActivity leaves out the waking.
func (a *sleepyActivity) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	if activityName(ctx) == "WakeShard" {
		return nil, nil
	}
	return a.Next.ExecuteActivity(ctx, in)
}

// timelessWorker never finds that a tenant has been away too long (invariant 8).
type timelessWorker struct {
	interceptor.WorkerInterceptorBase
}

// InterceptWorkflow puts itself between the workflow and its timers.
func (w *timelessWorker) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &timelessWorkflow{interceptor.WorkflowInboundInterceptorBase{Next: next}}
}

type timelessWorkflow struct {
	interceptor.WorkflowInboundInterceptorBase
}

// Init hands the workflow slower timers.
func (w *timelessWorkflow) Init(outbound interceptor.WorkflowOutboundInterceptor) error {
	return w.Next.Init(&timelessTimers{interceptor.WorkflowOutboundInterceptorBase{Next: outbound}})
}

type timelessTimers struct {
	interceptor.WorkflowOutboundInterceptorBase
}

// NewTimerWithOptions makes the timer of the longest time away endless.
func (t *timelessTimers) NewTimerWithOptions(ctx workflow.Context, after time.Duration, options workflow.TimerOptions) workflow.Future {
	if options.Summary == "Longest time away" {
		after = endless
	}
	return t.Next.NewTimerWithOptions(ctx, after, options)
}
