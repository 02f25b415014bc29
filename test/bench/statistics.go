package main

import (
	"maps"
	"math"
	"slices"
	"time"
)

// distribution is what several repetitions gave.
type distribution struct {
	Median float64 `json:"median"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
	Count  int     `json:"count"`
}

// distributionOf is all zero for no samples.
func distributionOf(samples []float64) distribution {
	if len(samples) == 0 {
		return distribution{}
	}
	sorted := slices.Sorted(slices.Values(samples))
	middle := len(sorted) / 2
	median := sorted[middle]
	if len(sorted)%2 == 0 {
		median = (sorted[middle-1] + sorted[middle]) / 2
	}
	return distribution{Median: median, Least: sorted[0], Most: sorted[len(sorted)-1], Count: len(sorted)}
}

// percentile is the smallest sample that at least so many percent do not exceed; 0 for no samples.
func percentile(samples []time.Duration, percent float64) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	rank := int(math.Ceil(percent / 100 * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}

// summary is what one contender's repetitions on one shape gave.
type summary struct {
	Contender  string `json:"contender"`
	Shape      shape  `json:"shape"`
	Neighbours int    `json:"neighbours"`

	Copy    distribution `json:"copySeconds"`
	Verify  distribution `json:"verifySeconds"`
	Cleanup distribution `json:"cleanupSeconds"`
	Away    distribution `json:"awaySeconds"`

	EntriesPerSecond   distribution `json:"entriesPerSecond"`
	MegabytesPerSecond distribution `json:"megabytesPerSecond"`

	OriginRequests      distribution `json:"originRequests"`
	DestinationRequests distribution `json:"destinationRequests"`
	Pages               distribution `json:"pages"`
	// CopyCPU is all processes' while they copy.
	CopyCPU distribution `json:"copyCPUSeconds"`
	// The next four are by process, over the whole repetition.
	PeakBytes    map[string]distribution `json:"peakBytes"`
	PeakOwnBytes map[string]distribution `json:"peakOwnBytes"`
	GrownBytes   map[string]distribution `json:"grownBytes"`
	CPU          map[string]distribution `json:"cpuSeconds"`
}

// summarize keeps the order in which contenders and shapes first came.
func summarize(measured []measurement) []summary {
	type key struct {
		contender, shape string
		neighbours       int
	}
	var order []key
	groups := map[key][]measurement{}
	for _, one := range measured {
		of := key{one.Contender, one.Shape.Name, one.Neighbours}
		if groups[of] == nil {
			order = append(order, of)
		}
		groups[of] = append(groups[of], one)
	}
	summaries := make([]summary, len(order))
	for i, of := range order {
		summaries[i] = summarizeGroup(groups[of])
	}
	return summaries
}

func summarizeGroup(group []measurement) summary {
	of := func(value func(measurement) float64) distribution {
		samples := make([]float64, len(group))
		for i, one := range group {
			samples[i] = value(one)
		}
		return distributionOf(samples)
	}
	seconds := func(task task) distribution {
		return of(func(m measurement) float64 { return m.Phases[task].Seconds })
	}
	total := func(value func(phase) int) distribution {
		return of(func(m measurement) float64 {
			sum := 0
			for _, phase := range m.Phases {
				sum += value(phase)
			}
			return float64(sum)
		})
	}
	shape := group[0].Shape
	s := summary{
		Contender: group[0].Contender, Shape: shape, Neighbours: group[0].Neighbours,
		Copy: seconds(copying), Verify: seconds(verify), Cleanup: seconds(cleanup), Away: of(measurement.away),
		EntriesPerSecond:    of(func(m measurement) float64 { return float64(shape.Entries) / m.Phases[copying].Seconds }),
		MegabytesPerSecond:  of(func(m measurement) float64 { return float64(shape.bytes()) / 1e6 / m.Phases[copying].Seconds }),
		OriginRequests:      total(func(p phase) int { return p.OriginRequests }),
		DestinationRequests: total(func(p phase) int { return p.DestinationRequests }),
		Pages:               total(func(p phase) int { return p.Pages }),
		CopyCPU:             of(func(m measurement) float64 { return m.Phases[copying].CPUSeconds }),
		PeakBytes:           map[string]distribution{}, PeakOwnBytes: map[string]distribution{},
		GrownBytes: map[string]distribution{}, CPU: map[string]distribution{},
	}
	for _, process := range slices.Sorted(maps.Keys(group[0].Usage)) {
		s.PeakBytes[process] = of(func(m measurement) float64 { return float64(m.Usage[process].PeakBytes) })
		s.PeakOwnBytes[process] = of(func(m measurement) float64 { return float64(m.Usage[process].PeakOwnBytes) })
		s.GrownBytes[process] = of(func(m measurement) float64 { return float64(m.Usage[process].GrownBytes) })
		s.CPU[process] = of(func(m measurement) float64 { return m.Usage[process].CPUSeconds })
	}
	return s
}

// find gives what a contender made of a shape, without neighbours or with however many; false where that was not measured.
func find(summaries []summary, contender, shape string, neighbours int) (summary, bool) {
	for _, s := range summaries {
		if s.Contender == contender && s.Shape.Name == shape && (s.Neighbours > 0) == (neighbours > 0) {
			return s, true
		}
	}
	return summary{}, false
}
