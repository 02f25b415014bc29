package etcd

import (
	"context"
	"log/slog"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
)

const (
	// probeEvery is how often a probe asks while a move is at work, restEvery while none is.
	probeEvery = 10 * time.Millisecond
	restEvery  = time.Second
	// primeEvery is how often it asks at first, until it has primed answers, so that a first move is measured rightly.
	primeEvery = 50 * time.Millisecond
	primed     = 20
	// decideEvery is how often the speed is set anew.
	decideEvery = 50 * time.Millisecond
	// burst is the work that a move does at full speed before the brake holds it: some 5,000 entries, copied and verified. That is
	// over in less than half a second; to stretch it would keep the tenant away for longer and spare the others little.
	burst = 32 << 20
	// calm is how long after a move etcd may still be busy with what it left.
	calm = time.Second

	// probeKey is never there: its deletion takes the way of a write, through the log and its fsync, and changes nothing.
	probeKey = "/kcp-migrate/probe"
)

// kind is what a neighbour may wait for.
type kind int

const (
	reading kind = iota
	writing
	kinds
)

func (k kind) String() string {
	if k == reading {
		return "read"
	}
	return "write"
}

// brake slows moves down while they make others wait: it asks as a neighbour would, over a connection of its own.
type brake struct {
	client  *clientv3.Client
	limiter *rate.Limiter
	stop    context.CancelFunc
	probes  errgroup.Group

	mutex    sync.Mutex
	governor governor
	// atWork counts the reads, writes and deletions of moves under way.
	atWork int
	// began is closed when the first of them begins.
	began chan struct{}
	// calmAt is when what the latest has left is done with.
	calmAt time.Time
	// asked is when the question was asked that has no answer yet, zero where there is none.
	asked [kinds]time.Time
	// atRest is whether no move was at work then.
	atRest [kinds]bool
	// braking is what the log has been told of.
	braking bool
	// done is the work done since the last decision.
	done float64
}

// startBrake probes until it is closed.
func startBrake(client *clientv3.Client) *brake {
	ctx, stop := context.WithCancel(context.Background())
	b := &brake{client: client, stop: stop, governor: newGovernor(), began: make(chan struct{})}
	b.limiter = rate.NewLimiter(rate.Limit(b.governor.speed), burst)
	for kind := range kinds {
		b.probes.Go(func() error { b.probe(ctx, kind); return nil })
	}
	b.probes.Go(func() error { b.govern(ctx); return nil })
	return b
}

func (b *brake) close() error {
	b.stop()
	_ = b.probes.Wait() // none returns an error
	return b.client.Close()
}

// begin says that a move is at work until end is called.
func (b *brake) begin() (end func()) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.atWork++; b.atWork == 1 {
		close(b.began)
		b.limiter.SetLimit(rate.Limit(b.governor.speed))
	}
	return func() {
		b.mutex.Lock()
		defer b.mutex.Unlock()
		if b.atWork--; b.atWork == 0 {
			b.began = make(chan struct{})
			b.calmAt = time.Now().Add(calm)
			b.limiter.SetLimit(fastest) // the next one has its burst
		}
	}
}

// wait holds work back as long as it would be too much.
func (b *brake) wait(ctx context.Context, entries, bytes int) error {
	work := bytes + entries*entryWork
	if err := spend(ctx, b.limiter, work); err != nil {
		return err
	}
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.done += float64(work)
	return nil
}

// probe asks until ctx is done, one question at a time, and more often while a move is at work.
func (b *brake) probe(ctx context.Context, kind kind) {
	for answers := 0; ctx.Err() == nil; {
		started := time.Now()
		b.ask(kind, started)
		err := b.request(ctx, kind)
		b.answered(kind, started, err)
		pause := restEvery
		if err == nil {
			answers++
		}
		if answers < primed && err == nil {
			pause = primeEvery
		}
		b.pause(ctx, started, pause)
	}
}

func (b *brake) request(ctx context.Context, kind kind) error {
	if kind == reading {
		_, err := b.client.Get(ctx, probeKey)
		return err
	}
	_, err := b.client.Delete(ctx, probeKey)
	return err
}

func (b *brake) ask(kind kind, at time.Time) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.asked[kind] = at
	b.atRest[kind] = b.resting(at)
}

// answered heeds no error: what cannot be asked others cannot ask either, and a move learns it by itself.
func (b *brake) answered(kind kind, asked time.Time, err error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.asked[kind] = time.Time{}
	switch {
	case err != nil:
	case b.atRest[kind] && b.resting(time.Now()):
		b.governor.rest(kind, time.Since(asked))
	case b.atWork > 0:
		b.governor.hear(kind, time.Since(asked))
	}
}

func (b *brake) resting(at time.Time) bool { return b.atWork == 0 && at.After(b.calmAt) }

// pause waits for the next question's turn, which comes sooner when a move begins.
func (b *brake) pause(ctx context.Context, asked time.Time, pause time.Duration) {
	began := b.nextBeginning()
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return
	case <-timer.C:
		return
	case <-began:
	}
	timer.Reset(time.Until(asked.Add(probeEvery)))
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// nextBeginning is closed while a move is at work.
func (b *brake) nextBeginning() <-chan struct{} {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.began
}

// govern sets the speed while moves are at work.
func (b *brake) govern(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.nextBeginning():
		}
		b.decide(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-time.After(decideEvery):
		}
	}
}

func (b *brake) decide(now time.Time) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.atWork == 0 { // the move has ended since: the next one is to have its burst
		return
	}
	for kind := range kinds {
		asked := b.asked[kind]
		if !asked.IsZero() && !b.atRest[kind] { // who still waits has waited at least so long
			b.governor.hear(kind, now.Sub(asked))
		}
	}
	speed := b.governor.decide(b.done / decideEvery.Seconds())
	b.done = 0
	b.limiter.SetLimit(rate.Limit(speed))
	if braking := b.governor.reason() != ""; braking != b.braking {
		b.braking = braking
		slog.Info("brake", "braking", braking, "reason", b.governor.reason())
	}
}

// reason says why moves are slowed down, and is empty where they are not.
func (b *brake) reason() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.governor.reason()
}
