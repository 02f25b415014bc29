package main

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/kcp-migrate/kcp-migrate/test/installation"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// sightDeadline is how soon a client's watch must show an object created after the move, on however busy a machine.
const sightDeadline = 30 * time.Second

// report is one finished move as seen from outside.
type report struct {
	leg          leg
	result       workflows.Result
	availability installation.Availability
	delays       installation.Delays
	falseDeletes []string
	comparison   comparison
}

// conclude prints the summary and the machine-readable lines, and says what was not as it must be.
func conclude(reports []report, acknowledged int, lost []string) error {
	var problems []string
	say("")
	for _, report := range reports {
		report.print()
		for _, problem := range report.problems() {
			problems = append(problems, report.leg.String()+": "+problem)
		}
	}
	if len(lost) > 0 {
		problems = append(problems, lost...)
	}
	say("The tenant's writer had writes to %d ConfigMaps acknowledged; lost or come back: %d\n", acknowledged, len(lost))
	for _, report := range reports {
		say("%s", report.line())
	}
	if len(problems) > 0 {
		return fmt.Errorf("%d problems:\n  %s", len(problems), strings.Join(problems, "\n  "))
	}
	return nil
}

// line is for machines: one a move, always the same fields.
func (r report) line() string {
	return fmt.Sprintf("demo: move=%s/%s phase=%s entries=%d bytes=%d digest=%s origin_left=%d neighbours=%s unavailable_ms=%d",
		tenant, r.leg, r.result.Phase, r.result.Entries, r.result.Bytes,
		either(r.digestMatches(), "match", "mismatch"), len(r.comparison.originLeft),
		either(len(r.comparison.touched) == 0, "untouched", "touched"), r.availability.Total.Milliseconds())
}

func (r report) print() {
	say("%s (%s) moved from shard %s to shard %s", tenant, r.result.LogicalCluster, r.leg.origin, r.leg.destination)
	say("  verified     %d entries, %d bytes, equal on both shards: sha256 %s", r.result.Entries, r.result.Bytes, r.result.SHA256)
	say("  exports      %d keys compared before and after: %d differ; left at the origin: %d (not compared: its LogicalCluster, CA certificates, quota, what its clients write)",
		r.comparison.compared, len(r.comparison.changed), len(r.comparison.originLeft))
	say("  neighbours   %d keys of other tenants on both shards: %d differ (not compared: root, system:*, keys with a lease)", r.comparison.neighbours, len(r.comparison.touched))
	say("  unavailable  %s in all, %s at a stretch, to a client asking every 10 ms (answers by status: %v)",
		r.availability.Total.Round(time.Millisecond), r.availability.Longest.Round(time.Millisecond), r.availability.Answers)
	say("  watches      a new object was seen by an informer after %s, by a bare watch after %s; false deletes: %d",
		r.delays.Informer.Round(time.Millisecond), r.delays.Raw.Round(time.Millisecond), len(r.falseDeletes))
	say("")
}

// digestMatches is whether the move says that both shards' digests were equal and the exports bear it out.
func (r report) digestMatches() bool {
	return r.result.SHA256 != "" && len(r.comparison.changed) == 0
}

func (r report) problems() []string {
	var problems []string
	expect := func(holds bool, format string, arguments ...any) {
		if !holds {
			problems = append(problems, fmt.Sprintf(format, arguments...))
		}
	}
	expect(r.result.Phase == workflows.Completed, "phase is %s", r.result.Phase)
	expect(r.result.SHA256 != "", "the result has no digest")
	expect(r.comparison.compared > 0, "nothing was compared")
	expect(len(r.comparison.changed) == 0, "entries differ: %v", r.comparison.changed)
	expect(len(r.comparison.originLeft) == 0, "the origin still has %v", r.comparison.originLeft)
	expect(len(r.comparison.claims) == 0, "claims were left: %v", r.comparison.claims)
	expect(len(r.comparison.touched) == 0, "other tenants' keys differ: %v", r.comparison.touched)
	expect(len(r.falseDeletes) == 0, "watches reported false deletes: %v", r.falseDeletes)
	expect(max(r.delays.Informer, r.delays.Raw) <= sightDeadline, "watches took %v to see a new object", r.delays)
	expect(r.availability.Answers[http.StatusOK] > 0, "the tenant was never served")
	return problems
}

func either(condition bool, yes, no string) string {
	if condition {
		return yes
	}
	return no
}
