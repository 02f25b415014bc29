package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// looks are a move from its beginning to its end, a second apart.
func looks() []look {
	planned := &workflows.Plan{Entries: 10_000}
	fencedAt := startedAt.Add(time.Second)
	at := func(second int, status workflows.Status, copied *activities.CopyProgress) look {
		return look{Status: status, At: startedAt.Add(time.Duration(second) * time.Second), Copied: copied}
	}
	copying := workflows.Status{
		Result: workflows.Result{Phase: workflows.Migrating, Plan: planned}, Step: "copy", Fenced: true, FencedAt: &fencedAt,
	}
	copied := func(entries int64) *activities.CopyProgress {
		return &activities.CopyProgress{Written: activities.Written{Entries: entries}}
	}
	gate := workflows.Status{Result: workflows.Result{Phase: workflows.Preparing, Plan: planned}, Step: "gate", WaitsForApproval: true}
	retrying := at(7, copying, copied(6000))
	retrying.WaitsFor = []string{"CopyEntries, attempt 2 after: connection reset"}
	return []look{
		at(0, workflows.Status{
			Result: workflows.Result{Phase: workflows.Preparing}, Step: "preflight", Advice: "`kcp-migrate pause ws`, or `kcp-migrate abort ws`",
		}, nil),
		at(1, gate, nil),
		at(2, gate, nil),
		at(3, copying, nil),
		at(4, copying, copied(1000)),
		at(5, copying, copied(3000)),
		at(6, copying, copied(6000)),
		retrying,
		at(8, workflows.Status{Result: workflows.Result{Phase: workflows.Completed, Plan: planned, Entries: 10_000}, Paused: true}, nil),
	}
}

func TestProgress_InALog_SpeaksOfChanges(t *testing.T) {
	var out bytes.Buffer
	progress := newProgress(&out, outputTable)
	for _, look := range looks() {
		progress.show(look)
	}
	progress.end()

	requireGolden(t, "progress.plain.golden", out.String())
}

func TestProgress_ForPrograms_IsJSONLines(t *testing.T) {
	var out bytes.Buffer
	progress := newProgress(&out, outputJSON)
	for _, look := range looks() {
		progress.show(look)
	}
	progress.warn("no worker answers")
	progress.end()

	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, len(looks())+1)
	for _, line := range lines {
		require.True(t, json.Valid([]byte(line)), line)
	}
	copying := readJSON[standing](t, lines[6])
	require.EqualValues(t, 6000, copying.Entries)
	require.EqualValues(t, 2500, copying.EntriesPerSecond)
	require.EqualValues(t, 2, copying.SecondsLeft)
	require.InDelta(t, 5, copying.SecondsAway, 0.01)
}

func TestPace_StartsAnewWithEachCopy(t *testing.T) {
	var p pace
	var last standing
	for _, look := range looks() {
		last = p.reckon(look)
	}

	require.Zero(t, last.EntriesPerSecond)
	require.Equal(t, pace{}, p)
}

func TestPace_WhenTemporalsClockIsAhead_CountsTheTimeAwayFromZero(t *testing.T) {
	fencedAt := startedAt.Add(time.Second)
	var p pace

	require.Zero(t, p.reckon(look{Status: workflows.Status{Fenced: true, FencedAt: &fencedAt}, At: startedAt}).SecondsAway)
}

func TestBar_NeverOverflows(t *testing.T) {
	for _, entries := range []int64{0, 1, 50, 100, 300} {
		bar := standing{Entries: entries, TotalEntries: 100}.bar()
		require.Len(t, bar, barWidth+2, "a tenant may grow after it was counted")
	}
	require.Empty(t, standing{Entries: 5}.bar())
}
