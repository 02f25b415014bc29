package main

import (
	"fmt"
	"io"
	"strings"
)

// bar is one thing that a run must show.
type bar struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Limit float64 `json:"limit"`
	// AtMost is that the value must not be above the limit; else it must not be below.
	AtMost bool `json:"atMost"`
}

func (b bar) ok() bool {
	if b.AtMost {
		return b.Value <= b.Limit
	}
	return b.Value >= b.Limit
}

func (b bar) String() string {
	verdict, relation := "no", ">="
	if b.ok() {
		verdict = "yes"
	}
	if b.AtMost {
		relation = "<="
	}
	return fmt.Sprintf("bench: bar=%s value=%.4g limit=%s%.4g ok=%s", b.Name, b.Value, relation, b.Limit, verdict)
}

// The bars.
const (
	ceilingPerSecond = "ceiling-entries-per-second"
	copyOfCeiling    = "copy-of-ceiling"
	copyOfBaseline   = "copy-over-baseline"
	copyInCrowd      = "copy-among-neighbours"
	awaySmaller      = "away-seconds-at-1000"
	awaySmall        = "away-seconds-at-5000"
	awayMedium       = "away-seconds-at-50000"
	awayOver         = "away-over-baseline-at-5000"
	awayOverInCrowd  = "away-over-baseline-at-50000-among-neighbours"
	memoryGrowth     = "worker-memory-1GB-over-100MB"
	memoryMiB        = "worker-memory-MiB"
)

// allBars are the names of those that a whole run measures, the neighbour's aside.
var allBars = []string{
	ceilingPerSecond, copyOfCeiling, copyOfBaseline, copyInCrowd, awaySmaller, awaySmall, awayMedium, awayOver, awayOverInCrowd,
	memoryGrowth, memoryMiB,
}

// judge gives the bars that the results have something to say about.
func judge(results results) []bar {
	var bars []bar
	bars = append(bars, copyBars(results.Summaries)...)
	bars = append(bars, memoryBars(results.Summaries)...)
	bars = append(bars, awayBars(results)...)
	return append(bars, neighbourBars(results.Neighbour)...)
}

func copyBars(summaries []summary) []bar {
	var bars []bar
	top, haveTop := find(summaries, ceiling, medium, nobody)
	ours, haveOurs := find(summaries, streamed, medium, nobody)
	native, haveNative := find(summaries, baseline, medium, nobody)
	inCrowd, haveCrowd := find(summaries, streamed, medium, crowded)
	if haveTop {
		bars = append(bars, bar{Name: ceilingPerSecond, Value: top.EntriesPerSecond.Median, Limit: 40_000})
	}
	if haveTop && haveOurs {
		bars = append(bars, bar{Name: copyOfCeiling, Value: top.Copy.Median / ours.Copy.Median, Limit: 0.6})
	}
	if haveNative && haveOurs {
		bars = append(bars, bar{Name: copyOfBaseline, Value: native.Copy.Median / ours.Copy.Median, Limit: 9})
	}
	if haveOurs && haveCrowd {
		bars = append(bars, bar{Name: copyInCrowd, Value: inCrowd.Copy.Median / ours.Copy.Median, Limit: 1.15, AtMost: true})
	}
	return bars
}

func memoryBars(summaries []summary) []bar {
	lighter, haveLighter := find(summaries, streamed, light, nobody)
	heavier, haveHeavier := find(summaries, streamed, heavy, nobody)
	if !haveLighter || !haveHeavier {
		return nil
	}
	growth, most := 0.0, 0.0
	for _, role := range []role{originRole, destinationRole} {
		process := string(role) + " worker"
		growth = max(growth, heavier.PeakBytes[process].Median/lighter.PeakBytes[process].Median)
		most = max(most, heavier.PeakBytes[process].Median)
	}
	return []bar{
		{Name: memoryGrowth, Value: growth, Limit: 1.3, AtMost: true},
		{Name: memoryMiB, Value: most / (1 << 20), Limit: 200, AtMost: true},
	}
}

// awayBars hold what a client saw of moves through the workflow against fixed limits, and against the baseline's copy and
// clean-up, which leaves out all else that kcp's migration takes.
func awayBars(results results) []bar {
	var bars []bar
	for _, limit := range []struct {
		name    string
		entries int
		seconds float64
	}{{awaySmaller, 1000, 0.35}, {awaySmall, 5000, 0.6}, {awayMedium, 50_000, 3}} {
		if away, have := results.away(limit.entries, nobody); have {
			bars = append(bars, bar{Name: limit.name, Value: away, Limit: limit.seconds, AtMost: true})
		}
	}
	for _, limit := range []struct {
		name       string
		shape      string
		entries    int
		neighbours int
		times      float64
	}{{awayOver, small, 5000, nobody, 5}, {awayOverInCrowd, medium, 50_000, crowded, 10}} {
		away, have := results.away(limit.entries, limit.neighbours)
		native, haveNative := find(results.Summaries, baseline, limit.shape, limit.neighbours)
		if have && haveNative {
			bars = append(bars, bar{Name: limit.name, Value: native.Away.Median / away, Limit: limit.times})
		}
	}
	return bars
}

// neighbourBars hold what a neighbour waits during a move, with the product as it is by default, against what it waits anyway.
func neighbourBars(heard []latencies) []bar {
	const slack, enoughMilliseconds = 2, 20
	bars := make([]bar, 0, len(heard))
	for _, one := range heard {
		bars = append(bars, bar{
			Name:  fmt.Sprintf("neighbour-p99-%s-ms-at-%s", one.Request, one.Etcd),
			Value: one.Moving.P99, Limit: max(slack*one.Idle.P99, enoughMilliseconds), AtMost: true,
		})
	}
	return bars
}

// writeBars gives one line for each bar, says which were not measured, and whether none is missed.
func writeBars(out io.Writer, bars []bar) (ok bool) {
	missing := map[string]bool{}
	for _, name := range allBars {
		missing[name] = true
	}
	ok = true
	for _, bar := range bars {
		delete(missing, bar.Name)
		ok = ok && bar.ok()
		fmt.Fprintln(out, bar)
	}
	var names []string
	for _, name := range allBars {
		if missing[name] {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		fmt.Fprintln(out, "bench: not measured in this run:", strings.Join(names, ", "))
	}
	return ok
}
