package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
)

func (d distribution) format(verb string, unit float64) string {
	if d.Most == 0 {
		return "–"
	}
	if d.Count == 1 {
		return fmt.Sprintf(verb, d.Median/unit)
	}
	return fmt.Sprintf(verb+" ("+verb+"–"+verb+")", d.Median/unit, d.Least/unit, d.Most/unit)
}

func (r results) timeRows(out io.Writer) {
	fmt.Fprintln(out, "shape\tneighbours\tcontender\tcopy s\tverify s\tcleanup s\taway s\tentries/s\tMB/s\t")
	for _, s := range r.Summaries {
		fmt.Fprintf(out, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", s.Shape.Name, s.Neighbours, s.Contender,
			s.Copy.format("%.2f", 1), s.Verify.format("%.2f", 1), s.Cleanup.format("%.2f", 1), s.Away.format("%.2f", 1),
			s.EntriesPerSecond.format("%.0f", 1), s.MegabytesPerSecond.format("%.1f", 1))
	}
}

func (r results) costRows(out io.Writer) {
	processes := []string{"origin etcd", "destination etcd", "origin worker", "destination worker"}
	fmt.Fprint(out, "shape\tneighbours\tcontender\trequests origin\tdestination\tpages\tCPU s\t")
	for _, process := range processes {
		fmt.Fprintf(out, "%s MiB\t", process)
	}
	fmt.Fprintln(out)
	for _, s := range r.Summaries {
		cpu := 0.0
		for _, process := range s.CPU {
			cpu += process.Median
		}
		fmt.Fprintf(out, "%s\t%d\t%s\t%.0f\t%.0f\t%.0f\t%.1f\t", s.Shape.Name, s.Neighbours, s.Contender,
			s.OriginRequests.Median, s.DestinationRequests.Median, s.Pages.Median, cpu)
		for _, process := range processes {
			if s.PeakBytes[process].Median == 0 {
				fmt.Fprint(out, "–\t")
				continue
			}
			fmt.Fprintf(out, "%.0f [%.0f, +%.0f]\t", s.PeakBytes[process].Median/(1<<20),
				s.PeakOwnBytes[process].Median/(1<<20), s.GrownBytes[process].Median/(1<<20))
		}
		fmt.Fprintln(out)
	}
}

func (r results) neighbourRows(out io.Writer) {
	fmt.Fprintln(out, "etcd\trequest\tidle p50\tp99\tmost\tmoving p50\tp99\tmost\t")
	for _, one := range r.Neighbour {
		fmt.Fprintf(out, "%s\t%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t\n", one.Etcd, one.Request,
			one.Idle.P50, one.Idle.P99, one.Idle.Most, one.Moving.P50, one.Moving.P99, one.Moving.Most)
	}
}

// journeyGroup is journeys that differ in their number and direction alone.
type journeyGroup struct {
	entries, atOnce, neighbours int
	journeys                    []journey
}

// grouped keeps the order in which they were made.
func (r results) grouped() []journeyGroup {
	var groups []journeyGroup
	for _, one := range r.Journeys {
		at := slices.IndexFunc(groups, func(g journeyGroup) bool {
			return g.entries == one.Entries && g.atOnce == one.AtOnce && g.neighbours == one.Neighbours
		})
		if at < 0 {
			at = len(groups)
			groups = append(groups, journeyGroup{entries: one.Entries, atOnce: one.AtOnce, neighbours: one.Neighbours})
		}
		groups[at].journeys = append(groups[at].journeys, one)
	}
	return groups
}

func (g journeyGroup) of(value func(journey) float64) distribution {
	samples := make([]float64, len(g.journeys))
	for i, one := range g.journeys {
		samples[i] = value(one)
	}
	return distributionOf(samples)
}

// parts are the names of all parts of the time away, and their medians in seconds.
func (g journeyGroup) parts() map[string]float64 {
	names := map[string]bool{}
	for _, one := range g.journeys {
		for name := range one.Away {
			names[name] = true
		}
	}
	parts := map[string]float64{}
	for name := range names {
		parts[name] = g.of(func(one journey) float64 { return one.Away[name] }).Median
	}
	return parts
}

func (r results) journeyRows(out io.Writer) {
	const milliseconds = 1e-3
	fmt.Fprintln(out, "entries\tneighbours\tmoves at once\tmoves\tclient\tworkflow\twhole move\t")
	for _, g := range r.grouped() {
		whole := g.of(func(one journey) float64 {
			total := 0.0
			for _, seconds := range one.Steps {
				total += seconds
			}
			return total
		})
		fmt.Fprintf(out, "%d\t%d\t%d\t%d\t%s\t%s\t%s\t\n", g.entries, g.neighbours, g.atOnce, len(g.journeys),
			g.of(func(one journey) float64 { return one.ClientSeconds }).format("%.0f", milliseconds),
			g.of(func(one journey) float64 { return one.WorkflowSeconds }).format("%.0f", milliseconds),
			whole.format("%.0f", milliseconds))
	}
}

func (r results) breakdownRows(out io.Writer) {
	var groups []journeyGroup
	names := map[string]bool{}
	for _, g := range r.grouped() {
		if g.atOnce == 1 {
			groups = append(groups, g)
			for name := range g.parts() {
				names[name] = true
			}
		}
	}
	fmt.Fprint(out, "entries\t")
	for _, g := range groups {
		fmt.Fprintf(out, "%d", g.entries)
		if g.neighbours > 0 {
			fmt.Fprint(out, " among neighbours")
		}
		fmt.Fprint(out, "\t")
	}
	fmt.Fprintln(out)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprintf(out, "%s\t", name)
		for _, g := range groups {
			fmt.Fprintf(out, "%.0f\t", g.parts()[name]*1000)
		}
		fmt.Fprintln(out)
	}
}
