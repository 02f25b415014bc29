package etcd

import (
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

const (
	// liftsInFlight reaches about 15,000 revisions a second on two cores with one etcd.
	liftsInFlight = 64
	// liftProgress is how often progress is told at most.
	liftProgress = time.Second
)

// LiftRevision raises the store's revision to at least the given one by tiny writes to one key outside kcp's
// prefix, at most perSecond of them (0: as fast as it goes), and gives the revision reached.
func (s *Store) LiftRevision(
	ctx context.Context, guard activities.Guard, revision int64, perSecond int, progress func(revision int64),
) (int64, error) {
	if err := s.checkToken(ctx, guard); err != nil {
		return 0, fmt.Errorf("lift revision: %w", err)
	}
	present, err := s.Revision(ctx)
	if err != nil {
		return 0, err
	}
	lift := &lift{store: s, guard: guard, pace: newPace(perSecond), progress: progress, reached: present}
	group, groupCtx := errgroup.WithContext(ctx)
	for range min(liftsInFlight, revision-present) {
		group.Go(func() error { return lift.until(groupCtx, revision) })
	}
	if err := group.Wait(); err != nil {
		return lift.reached, fmt.Errorf("lift revision to %d: %w", revision, err)
	}
	return lift.reached, nil
}

func newPace(perSecond int) *rate.Limiter {
	if perSecond <= 0 {
		return rate.NewLimiter(rate.Inf, 0)
	}
	return rate.NewLimiter(rate.Limit(perSecond), liftsInFlight)
}

// lift is one LiftRevision under way.
type lift struct {
	store    *Store
	guard    activities.Guard
	pace     *rate.Limiter
	progress func(revision int64)

	mutex   sync.Mutex
	reached int64
	told    time.Time
}

// until writes, each time raising the revision by one, until the wanted one is reached.
func (l *lift) until(ctx context.Context, revision int64) error {
	for l.revision() < revision {
		if err := l.pace.Wait(ctx); err != nil {
			return err
		}
		response, err := l.store.guarded(ctx, l.guard, nil, clientv3.OpPut(revisionKey, ""))
		if err != nil {
			return err
		}
		l.reach(response.Header.Revision)
	}
	return nil
}

func (l *lift) revision() int64 {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.reached
}

func (l *lift) reach(revision int64) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.reached = max(l.reached, revision)
	if time.Since(l.told) >= liftProgress {
		l.told = time.Now()
		l.progress(l.reached)
	}
}
