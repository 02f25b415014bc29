package etcd

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
)

// play has a move do as much as it may, up to what etcd does, while others wait so long, so many decisions long.
func play(g *governor, decisions int, etcdDoes float64, wait time.Duration) {
	for range decisions {
		g.hear(writing, wait)
		g.decide(min(g.speed, etcdDoes))
	}
}

func TestGovernor_WhileNobodyWaits_LetsMovesGoAsFastAsEtcdDoes(t *testing.T) {
	g := newGovernor()
	play(&g, 50, 200e6, time.Millisecond)
	require.Greater(t, g.speed, 200e6)
	require.Empty(t, g.reason())
}

func TestGovernor_WhileOthersWait_SlowsDownToTheSlowestAndNoFurther(t *testing.T) {
	g := newGovernor()
	play(&g, 50, 200e6, time.Millisecond)
	play(&g, 10, 200e6, 30*time.Millisecond)
	require.Less(t, g.speed, 200e6)
	require.Contains(t, g.reason(), "others waited 30ms for a write where 10ms is tolerated")
	play(&g, 1000, 200e6, time.Second)
	require.InDelta(t, slowest, g.speed, 1)
}

func TestGovernor_WhenOthersWaitNoLonger_LetsGo(t *testing.T) {
	g := newGovernor()
	play(&g, 100, 200e6, time.Second)
	play(&g, 100, 200e6, time.Millisecond)
	require.Greater(t, g.speed, 200e6)
	require.Empty(t, g.reason())
}

func TestGovernor_WhereOthersWaitLongAnyway_ToleratesHalfAsMuchMore(t *testing.T) {
	g := newGovernor()
	for range idleWaits {
		g.rest(writing, 110*time.Millisecond) // a slow disk
	}
	play(&g, 50, 200e6, 105*time.Millisecond)
	require.Empty(t, g.reason())
	play(&g, 5, 200e6, 230*time.Millisecond)
	require.Contains(t, g.reason(), "where 165ms is tolerated")
	g.hear(reading, 15*time.Millisecond)
	require.InDelta(t, 1.5, g.worst.share(), 0.01, "reads wait for no disk, and are held against their own")
}

func TestGovernor_WhileTheMoveItselfIsSlower_DoesNotRaiseTheSpeed(t *testing.T) {
	g := newGovernor()
	play(&g, 1000, 1e6, time.Millisecond)
	require.InDelta(t, firstSpeed, g.speed, 1)
}

func TestGovernor_BrakesFromWhatIsReallyDone(t *testing.T) {
	g := newGovernor()
	play(&g, 100, 30e6, time.Millisecond)
	play(&g, 1, 30e6, time.Second)
	require.Less(t, g.speed, 30e6)
}

func TestWaits_ForgetTheOldest(t *testing.T) {
	var w waits
	require.Zero(t, w.p90())
	for range idleWaits {
		w.add(time.Second)
	}
	require.Equal(t, time.Second, w.p90())
	for range idleWaits {
		w.add(time.Millisecond)
	}
	require.Equal(t, time.Millisecond, w.p90())
	for range 9 {
		w.add(time.Minute)
	}
	require.Equal(t, time.Millisecond, w.p90(), "nine of a hundred")
}

func TestSpend_TakesAtLeastAsLongAsTheLimitSays(t *testing.T) {
	limiter := rate.NewLimiter(1000, 10)
	started := time.Now()
	require.NoError(t, spend(t.Context(), limiter, 200)) // many times what it gives at once
	require.GreaterOrEqual(t, time.Since(started), 190*time.Millisecond)
}

func TestSpend_WhenGivenUp_Ends(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, spend(ctx, rate.NewLimiter(1, 1), 1000), context.Canceled)
}
