package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBreakDown_CountsWhatRanWhileTheTenantWasAway_AndWhenNothingDid(t *testing.T) {
	start := time.Now()
	at := func(milliseconds int) time.Time { return start.Add(time.Duration(milliseconds) * time.Millisecond) }
	parts := breakDown([]activityRun{
		{name: "Claim", scheduled: at(0), started: at(1), completed: at(90)},
		{name: firstAway, scheduled: at(100), started: at(105), completed: at(120)},
		{name: "WakeShard", scheduled: at(121), started: at(125), completed: at(150)},
		{name: "CopyEntries", scheduled: at(121), started: at(130), completed: at(180)},
		{name: lastAway, scheduled: at(181), started: at(190), completed: at(200)},
		{name: "DeleteOriginEntries", scheduled: at(201), started: at(202), completed: at(400)},
	})
	require.InDeltaMapValues(t, map[string]float64{
		firstAway: 0.015, "WakeShard": 0.025, "CopyEntries": 0.050, lastAway: 0.010, between: 0.020,
	}, parts, 1e-9)
}

func TestBreakDown_OfAMoveThatNeverFenced_IsEmpty(t *testing.T) {
	require.Empty(t, breakDown(nil))
}
