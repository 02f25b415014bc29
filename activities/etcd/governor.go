package etcd

import (
	"fmt"
	"slices"
	"time"
)

const (
	// Beside a move others are to wait at most 20 ms in 99 of 100 cases, or twice as long as in 99 of 100 cases without.
	// The brake acts well before that, for what is under way then still lands, and goes by what 90 of 100 do not exceed,
	// for one of a hundred says more of the machine than of etcd.
	tolerance       = 10 * time.Millisecond
	toleranceFactor = 1.5

	// entryWork is what one entry is worth beside its bytes: what the plan's estimate reckons with, 20,000 entries or
	// 40 MB a second, makes one entry as dear as 2,000 bytes.
	entryWork = 2000
	// slowest is a quarter of what the plan's estimate reckons with: the tenant is away meanwhile.
	slowest = 10e6
	// firstSpeed is what a first move begins with. Later ones begin where the last one was.
	firstSpeed = 80e6
	// fastest is more than an etcd does.
	fastest = 1e9

	brakeFactor   = 0.7
	releaseFactor = 1.15
	// smoothing is the weight of what was done since the last decision.
	smoothing = 0.2

	idleWaits = 100
)

// waits are what others wait for one kind of request while no move is at work, the latest idleWaits of them.
type waits struct {
	latest []time.Duration
	next   int
}

func (w *waits) add(wait time.Duration) {
	if len(w.latest) < idleWaits {
		w.latest = append(w.latest, wait)
		return
	}
	w.latest[w.next] = wait
	w.next = (w.next + 1) % idleWaits
}

// p90 is what 90 of 100 do not exceed, 0 where none is known.
func (w *waits) p90() time.Duration {
	if len(w.latest) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(w.latest))
	return sorted[len(sorted)*90/100]
}

// governor decides how much work a second moves may do, in bytes and what entries are worth in bytes. It is pure: what
// was measured is told to it.
type governor struct {
	idle  [kinds]waits
	speed float64
	// done is how much work a second has been done lately.
	done float64
	// worst is what others have waited longest for since the last decision, by the share of what is tolerated.
	worst wait
	// braked is the wait for which the brake acted last, until it has let go.
	braked wait
}

// wait is how long others waited, or have been waiting, for one request.
type wait struct {
	kind      kind
	took      time.Duration
	tolerated time.Duration
}

func newGovernor() governor { return governor{speed: firstSpeed} }

// rest learns what others wait while no move is at work.
func (g *governor) rest(kind kind, took time.Duration) { g.idle[kind].add(took) }

// hear learns what others wait beside a move.
func (g *governor) hear(kind kind, took time.Duration) {
	heard := wait{kind: kind, took: took, tolerated: g.tolerated(kind)}
	if heard.share() > g.worst.share() {
		g.worst = heard
	}
}

func (g *governor) tolerated(kind kind) time.Duration {
	return max(tolerance, time.Duration(toleranceFactor*float64(g.idle[kind].p90())))
}

func (w wait) share() float64 {
	if w.tolerated == 0 {
		return 0
	}
	return float64(w.took) / float64(w.tolerated)
}

// decide gives the speed from now on. Done is how much work a second has been done since the last decision.
func (g *governor) decide(done float64) float64 {
	g.done += smoothing * (done - g.done)
	switch {
	case g.worst.share() > 1:
		// From what is really done: a speed that nobody reaches does not brake.
		g.speed = max(min(g.speed, g.done)*brakeFactor, slowest)
		g.braked = g.worst
	case done > g.speed/2: // else it is not the brake that holds the move up
		g.speed = min(g.speed*releaseFactor, fastest)
	}
	if g.speed > g.done*2 && g.worst.share() <= 1 {
		g.braked = wait{}
	}
	g.worst = wait{}
	return g.speed
}

// reason says why moves are slowed down, and is empty where they are not.
func (g *governor) reason() string {
	if g.braked == (wait{}) {
		return ""
	}
	return fmt.Sprintf("others waited %s for a %s where %s is tolerated; slowed down to %.1f MB a second, each entry counted with %d bytes more",
		g.braked.took.Round(time.Millisecond), g.braked.kind, g.braked.tolerated.Round(time.Millisecond), g.speed/1e6, entryWork)
}
