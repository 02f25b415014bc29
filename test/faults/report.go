package main

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// report is how all cases went.
type report struct{ outcomes []*outcome }

// add also tells of the case at once: the whole takes long.
func (r *report) add(outcome *outcome) {
	r.outcomes = append(r.outcomes, outcome)
	say("case %d %s %s: %s (%s) in %s", outcome.schedule.number, outcome.leg, outcome.schedule, outcome.end(), strings.Join(outcome.hits, "; "), outcome.took.Round(time.Millisecond))
	for _, violation := range outcome.violations {
		say("  VIOLATION %s", violation)
	}
}

// end is in one word how a case ended.
func (o *outcome) end() string {
	switch {
	case o.stuck:
		return "stuck"
	case o.result.Phase == workflows.Completed:
		return "Completed"
	default:
		return "undone " + o.failure
	}
}

func (r *report) count(counts func(*outcome) bool) int {
	count := 0
	for _, outcome := range r.outcomes {
		if counts(outcome) {
			count++
		}
	}
	return count
}

func (r *report) violations() int {
	return r.count(func(o *outcome) bool { return len(o.violations) > 0 })
}

// print gives the table and, last, the line for machines.
func (r *report) print(seed int64) {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nCASE\tSTEP\tAT\tPART\tFAULT\tTENANT\tORDER\tEND\tAWAY\tTOOK\tVIOLATIONS")
	var longest time.Duration
	for _, outcome := range r.outcomes {
		blow := outcome.schedule.blows[0] // the others are in the line of the case
		away := time.Duration(outcome.result.TimeAway)
		longest = max(longest, away)
		fmt.Fprintf(table, "%d\t%s\t%s/%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\n", outcome.schedule.number, blow.step, blow.place.activity, blow.moment,
			blow.part, blow.fault, outcome.schedule.tenant, outcome.schedule.order, outcome.end(), away.Round(time.Millisecond),
			outcome.took.Round(time.Millisecond), len(outcome.violations))
	}
	_ = table.Flush() // to the standard output, as all else
	completed := r.count(func(o *outcome) bool { return o.result.Phase == workflows.Completed && !o.stuck })
	undone := r.count(func(o *outcome) bool { return o.failure != "" && !o.stuck })
	say("longest time away: %s", longest.Round(time.Millisecond))
	say("faults: cases=%d completed=%d undone=%d violations=%d seed=%d", len(r.outcomes), completed, undone, r.violations(), seed)
}
