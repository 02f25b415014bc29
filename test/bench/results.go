package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"text/tabwriter"
	"time"
)

// results is all that a run has found, as it is saved.
type results struct {
	Machine     machine `json:"machine"`
	Quick       bool    `json:"quick,omitempty"`
	Repetitions int     `json:"repetitions"`

	Bars      []bar       `json:"bars"`
	Summaries []summary   `json:"summaries"`
	Neighbour []latencies `json:"neighbour,omitempty"`
	Journeys  []journey   `json:"journeys,omitempty"`
	// Measurements are every single repetition.
	Measurements []measurement `json:"measurements"`
}

// machine is where and with what it was measured.
type machine struct {
	At       time.Time `json:"at"`
	CPU      string    `json:"cpu"`
	CPUs     int       `json:"cpus"`
	Go       string    `json:"go"`
	Etcd     string    `json:"etcd"`
	Revision string    `json:"revision,omitempty"`
}

func thisMachine() machine {
	here := machine{At: time.Now().UTC().Truncate(time.Second), CPU: cpuModel(), CPUs: runtime.NumCPU(), Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return here
	}
	for _, module := range info.Deps {
		if module.Path == "go.etcd.io/etcd/client/v3" {
			here.Etcd = module.Version // the server's is the same
		}
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			here.Revision = setting.Value
		}
	}
	return here
}

func cpuModel() string {
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if name, model, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(model)
		}
	}
	return "unknown"
}

// away is the median of what clients saw of single tenants of a size; false where that was not measured.
func (r results) away(entries, neighbours int) (seconds float64, have bool) {
	var samples []float64
	for _, one := range r.Journeys {
		if one.Entries == entries && one.AtOnce == 1 && (one.Neighbours > 0) == (neighbours > 0) {
			samples = append(samples, one.ClientSeconds)
		}
	}
	return distributionOf(samples).Median, len(samples) > 0
}

// save writes the results and the plots into a folder.
func (r results) save(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	encoded, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "results.json"), append(encoded, '\n'), 0o644); err != nil {
		return err
	}
	if err := r.plot(folder); err != nil {
		return fmt.Errorf("draw plots: %w", err)
	}
	return nil
}

// print writes everything as tables.
func (r results) print(out io.Writer) error {
	fmt.Fprintf(out, "%s, %d × %s, etcd %s, %s; medians of up to %d repetitions, least and most in parentheses\n",
		r.Machine.At.Format(time.DateTime), r.Machine.CPUs, r.Machine.CPU, r.Machine.Etcd, r.Machine.Go, r.Repetitions)
	for _, table := range []struct {
		title string
		rows  func(io.Writer)
		empty bool
	}{
		{"Time and throughput. The time away is copy and verify; the baseline's is copy and cleanup", r.timeRows, len(r.Summaries) == 0},
		{"Requests, CPU and peak memory: all that is resident, in brackets what of it maps no file, and by how much that grew", r.costRows, len(r.Summaries) == 0},
		{"What a neighbour waits, in milliseconds, idle and beside a move of 50,000 × 1 kB", r.neighbourRows, len(r.Neighbour) == 0},
		{"Time away through the workflow, in milliseconds, as a client sees it and as the workflow does", r.journeyRows, len(r.Journeys) == 0},
		{"Where the time away goes, in milliseconds (medians of single moves). What runs beside others counts in full", r.breakdownRows, len(r.Journeys) == 0},
	} {
		if table.empty {
			continue
		}
		fmt.Fprintf(out, "\n%s\n", table.title)
		rows := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
		table.rows(rows)
		if err := rows.Flush(); err != nil {
			return err
		}
	}
	fmt.Fprintln(out)
	return nil
}
