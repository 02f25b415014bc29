package main

import (
	"fmt"
	"io"
	"slices"
)

// printTable writes medians as Markdown.
func printTable(w io.Writer, found []measurement) {
	fmt.Fprintf(w, "\n### etcd %s: %s\n\n", found[0].Etcd, found[0].Shape)
	fmt.Fprintln(w, "| reading | first entry ms | all ms | smallest–largest | requests | messages | keys received | server CPU ms | server grew by MiB | client MiB |")
	fmt.Fprintln(w, "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, m := range found {
		if m.Refusal != "" {
			fmt.Fprintf(w, "| %s | refused: %s | | | | | | | | |\n", m.Contender, m.Refusal)
			continue
		}
		one := m.Readings[0]
		times := column(m, func(r reading) float64 { return r.Milliseconds })
		fmt.Fprintf(w, "| %s | %.0f | %.0f | %.0f–%.0f | %d | %d | %d | %.0f | %.0f | %.0f |\n", m.Contender,
			median(column(m, func(r reading) float64 { return r.FirstMilliseconds })), median(times), slices.Min(times), slices.Max(times),
			one.Requests, one.Messages, one.Keys,
			median(column(m, func(r reading) float64 { return r.ServerMilliseconds })),
			median(column(m, func(r reading) float64 { return float64(r.ServerBytes) / (1 << 20) })),
			median(column(m, func(r reading) float64 { return float64(r.ClientBytes) / (1 << 20) })))
	}
}

func column(m measurement, of func(reading) float64) []float64 {
	values := make([]float64, len(m.Readings))
	for i, one := range m.Readings {
		values[i] = of(one)
	}
	return values
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
