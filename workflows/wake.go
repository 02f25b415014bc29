package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"
)

const (
	// informersBackWithin is after how long all informers that a fence cut off are surely connected again: client-go
	// waits 30 s at most, as much again by jitter, and lists.
	informersBackWithin = 65 * time.Second
	// backoffJitter is the longest wait over the shortest: client-go's informers each wait for a random time between
	// one and two times the same back-off (seen on kcp: after six cuts in two minutes the first were back after 36 s,
	// the last after 51 s).
	backoffJitter = 2
	// relistMargin is what a large resource's list takes longer than the ClusterRoles' that were seen.
	relistMargin = 2 * time.Second
)

// wakeBeside wakes the origin, which kcp's cutting of watches left blind, beside the copy. It outlives a cancellation
// of the workflow that comes after the commit.
func (m *migration) wakeBeside(ctx workflow.Context) {
	beside, stop := workflow.NewDisconnectedContext(ctx)
	woken, set := workflow.NewFuture(ctx)
	m.woken, m.stopWaking = woken, stop
	workflow.GoNamed(beside, "wake origin", func(ctx workflow.Context) {
		err := m.wakeOrigin(ctx)
		set.SetError(err)
		if err == nil {
			m.watchInformers(ctx)
		}
	})
}

func (m *migration) wakeOrigin(ctx workflow.Context) error {
	return do(m.atOrigin(ctx, long, "Wake the origin shard"), shard.WakeShard, m.onOrigin())
}

// watchInformers notes when the first of the origin's informers are connected again.
func (m *migration) watchInformers(ctx workflow.Context) {
	err := do(m.atOrigin(ctx, long, "Await the origin's informers"), shard.AwaitInformers, m.onOrigin())
	if err != nil {
		workflow.GetLogger(ctx).Info("Origin's informers were not seen to be back", "error", err)
		return
	}
	m.informersBack = workflow.Now(ctx)
}

// awaitWoken waits for the wake that runs since the fence; where that one failed, the origin is woken again, which
// cuts its informers off once more.
func (m *migration) awaitWoken(ctx workflow.Context) {
	if err := wait(ctx, m.woken); err == nil {
		return
	}
	m.insist(ctx, "Wake the origin shard", m.wakeOrigin)
	beside, stop := workflow.WithCancel(ctx)
	m.stopWaking, m.cutAt = stop, workflow.Now(ctx)
	workflow.GoNamed(beside, "watch informers", m.watchInformers)
}

// awaitInformers waits until all informers of the origin are connected: what is deleted before, they never notice.
func (m *migration) awaitInformers(ctx workflow.Context) {
	m.waitsFor = ""
	m.advise(ctx, "nothing: the tenant is served by shard %s; what shard %s has of it is deleted once kcp's informers there, which the fence cut off, are connected again, after %s at most",
		m.status.DestinationShard, m.status.OriginShard, informersBackWithin)
	surely := m.cutAt.Add(informersBackWithin)
	awaiting := workflow.AwaitOptions{
		Timeout:      surely.Sub(workflow.Now(ctx)),
		TimerOptions: workflow.TimerOptions{Summary: "Longest time without informers"},
	}
	seen, err := workflow.AwaitWithOptions(ctx, awaiting, func() bool { return !m.informersBack.IsZero() })
	if err == nil && seen {
		likely := m.cutAt.Add(backoffJitter*m.informersBack.Sub(m.cutAt) + relistMargin)
		rest := min(likely.Sub(workflow.Now(ctx)), surely.Sub(workflow.Now(ctx)))
		err = timer(ctx, Duration(rest), "Give the other informers time").Get(ctx, nil)
	}
	if err != nil {
		workflow.GetLogger(ctx).Error("Wait for the origin's informers was cut short", "error", err)
	}
	m.stopWaking()
	m.advise(ctx, "")
}
