package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

const (
	// informersBackWithin is after how long all informers that were cut off are surely connected again: client-go
	// waits 30 s at most, as much again by jitter, and lists.
	informersBackWithin = 65 * time.Second
	// backoffJitter is the longest wait over the shortest: client-go's informers each wait for a random time between
	// one and two times the same back-off (seen on kcp: after six cuts in two minutes the first were back after 36 s,
	// the last after 51 s).
	backoffJitter = 2
	// relistMargin is what a large resource's list takes longer than the ClusterRoles' that were seen.
	relistMargin = 2 * time.Second
	// quietPatience is how long a move waits for a time in which no other one cuts the origin's informers off. It holds its
	// claims meanwhile: the tenant could neither move on nor come back.
	quietPatience = 10 * time.Minute
)

// informers is what is known of the origin's own informers.
type informers struct {
	// cut is the revision of the latest cut that they are to come back from, or WhicheverCut.
	cut int64
	// since and until are between which times they were cut off.
	since, until time.Time
	// back is when the first of them were seen connected again.
	back time.Time
	// awaited is that all of them are.
	awaited bool
	// wanted is since when they are waited for, through however many cuts.
	wanted time.Time
}

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

// wakeOrigin cuts the informers off itself: their back-off may begin as late as its end.
func (m *migration) wakeOrigin(ctx workflow.Context) error {
	woken, err := call(m.atOrigin(ctx, long, "Wake the origin shard"), shard.WakeShard, m.onOrigin())
	if err == nil {
		m.informers.cut, m.informers.until = woken.Cut, workflow.Now(ctx)
	}
	return err
}

// watchInformers notes when the first of the origin's informers are connected again.
func (m *migration) watchInformers(ctx workflow.Context) {
	seen, err := call(m.atOrigin(ctx, long, "Await the origin's informers"), shard.AwaitInformers, m.onOrigin())
	if err != nil {
		workflow.GetLogger(ctx).Info("Origin's informers were not seen to be back", "error", err)
		return
	}
	m.informers.back = workflow.Now(ctx)
	if others := seen.OthersSince; !others.IsZero() && others.Before(m.informers.since) {
		m.informers.since = others // its fence may have cut off already who comes back last
	}
	if seen.Cut != m.informers.cut { // another move's
		m.informers.cut, m.informers.until = seen.Cut, m.informers.back
	}
}

// watchAgain is watchInformers beside what ctx is for.
func (m *migration) watchAgain(ctx workflow.Context) {
	beside, stop := workflow.WithCancel(ctx)
	m.stopWaking = stop
	workflow.GoNamed(beside, "watch informers", m.watchInformers)
}

// awaitWoken waits for the wake that runs since the fence; where that one failed, the origin is woken again, which
// cuts its informers off once more.
func (m *migration) awaitWoken(ctx workflow.Context) {
	if err := wait(ctx, m.woken); err == nil {
		return
	}
	m.insist(ctx, "Wake the origin shard", m.wakeOrigin)
	m.watchAgain(ctx)
}

// awaitInformers waits until all informers of the origin are connected: what is deleted before, they never notice. How long
// that takes is told by the first of them, counted from when they may have been cut off first; it begins when they may have
// been cut off last.
func (m *migration) awaitInformers(ctx workflow.Context) {
	if m.informers.awaited {
		return
	}
	m.waitsFor = ""
	if m.informers.wanted.IsZero() {
		m.informers.wanted = workflow.Now(ctx)
	}
	m.advise(ctx, "nothing: the tenant is served by shard %s; what shard %s has of it is deleted once kcp's informers there, which every fence on that shard cuts off, are connected again: after %s at most, or as long after the last fence of another move, and after %s in any case",
		m.status.DestinationShard, m.status.OriginShard, informersBackWithin, quietPatience+informersBackWithin)
	if err := m.awaitBack(ctx); err != nil {
		workflow.GetLogger(ctx).Error("Wait for the origin's informers was cut short", "error", err)
	}
	m.informers.awaited = true
	m.stopWaking()
	m.advise(ctx, "")
}

func (m *migration) awaitBack(ctx workflow.Context) error {
	awaiting := workflow.AwaitOptions{
		Timeout:      m.informers.until.Add(informersBackWithin).Sub(workflow.Now(ctx)),
		TimerOptions: workflow.TimerOptions{Summary: "Longest time without informers"},
	}
	seen, err := workflow.AwaitWithOptions(ctx, awaiting, func() bool { return !m.informers.back.IsZero() })
	if err != nil || !seen {
		return err
	}
	likely := m.informers.until.Add(backoffJitter*m.informers.back.Sub(m.informers.since) + relistMargin)
	surely := m.informers.until.Add(informersBackWithin)
	rest := min(likely.Sub(workflow.Now(ctx)), surely.Sub(workflow.Now(ctx)))
	return timer(ctx, Duration(rest), "Give the other informers time").Get(ctx, nil)
}

// deleteEntries deletes at the origin what its informers can see go. Where another move on that shard has cut them off since
// they were waited for, it waits anew.
func (m *migration) deleteEntries(ctx workflow.Context) *activities.DeleteResult {
	for {
		m.awaitInformers(ctx)
		input := activities.DeleteInput{Guard: m.originGuard(), Revision: m.verified.OriginRevision, Accounted: m.accounted, Cut: m.informers.cut}
		swept := insistOnResult(m.atOrigin(ctx, long, "Delete the entries at the origin"), m, shard.DeleteOriginEntries, input)
		if swept.CutOff == 0 {
			return swept
		}
		m.cutOff(ctx, swept.CutOff)
	}
}

// cutOff begins to wait anew. The cut came at some time since the one before was told of. After quietPatience what is left goes
// all the same: on a shard that is never quiet, claims would otherwise be held without end.
func (m *migration) cutOff(ctx workflow.Context, cut int64) {
	workflow.GetLogger(ctx).Info("Another move cut the origin's informers off", "revision", cut)
	if workflow.Now(ctx).Sub(m.informers.wanted) >= quietPatience {
		m.informers.cut = activities.WhicheverCut
		m.warn("other moves went on cutting off kcp's informers on shard %s for %s: kcp may not have seen that the tenant's entries were deleted there. Restart the API servers of that shard before the tenant comes back to it: else rights that were revoked meanwhile may be in effect there again",
			m.status.OriginShard, quietPatience)
		return
	}
	m.informers = informers{cut: cut, since: m.informers.until, until: workflow.Now(ctx), wanted: m.informers.wanted}
	m.watchAgain(ctx)
}
