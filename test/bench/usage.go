package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	// sampleEvery is how often memory is looked at that no kernel counter keeps the peak of.
	sampleEvery = 20 * time.Millisecond
	// clockTicks is Linux's USER_HZ, the unit of a process's times.
	clockTicks = 100
)

// usage is what one process has used.
type usage struct {
	// PeakBytes is the most memory resident at a time (Linux: VmHWM), PeakOwnBytes the most of it that maps no file,
	// sampled: an etcd's database is mapped.
	PeakBytes    int64 `json:"peakBytes"`
	PeakOwnBytes int64 `json:"peakOwnBytes"`
	// GrownBytes is by how much the latter is above what it was at the start: an etcd that has just started holds all that it
	// has read back from its log.
	GrownBytes int64   `json:"grownBytes"`
	CPUSeconds float64 `json:"cpuSeconds"`
}

// meter measures processes while something runs.
type meter struct {
	processes map[string]int // PIDs by the processes' names
	started   map[string]usage
	peaks     map[string]int64
	cancel    context.CancelFunc
	done      chan struct{}
}

func startMeter(ctx context.Context, processes map[string]int) (*meter, error) {
	ctx, cancel := context.WithCancel(ctx)
	m := &meter{processes: processes, started: map[string]usage{}, peaks: map[string]int64{}, cancel: cancel, done: make(chan struct{})}
	for name, pid := range processes {
		// 5 resets VmHWM, see proc(5).
		err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
		var now usage
		if err == nil {
			now.CPUSeconds, err = cpuSeconds(pid)
		}
		if err == nil {
			now.PeakOwnBytes, err = memory(pid, "RssAnon:")
		}
		m.started[name] = now
		if err != nil {
			cancel()
			return nil, fmt.Errorf("measure process of the %s: %w", name, err)
		}
	}
	go m.sample(ctx)
	return m, nil
}

func (m *meter) sample(ctx context.Context) {
	defer close(m.done)
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	for {
		for name, pid := range m.processes {
			if own, err := memory(pid, "RssAnon:"); err == nil { // a last look may come when it has ended
				m.peaks[name] = max(m.peaks[name], own)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// stop gives what each process has used.
func (m *meter) stop() (map[string]usage, error) {
	m.cancel()
	<-m.done
	used := map[string]usage{}
	var failures []error
	for name, pid := range m.processes {
		peak, err := memory(pid, "VmHWM:")
		seconds, cpuErr := cpuSeconds(pid)
		failures = append(failures, err, cpuErr)
		used[name] = usage{
			PeakBytes: peak, PeakOwnBytes: m.peaks[name], GrownBytes: max(0, m.peaks[name]-m.started[name].PeakOwnBytes),
			CPUSeconds: seconds - m.started[name].CPUSeconds,
		}
	}
	return used, errors.Join(failures...)
}

// memory reads a line of /proc/<pid>/status.
func memory(pid int, line string) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	return parseMemory(string(status), line)
}

func parseMemory(status, line string) (int64, error) {
	_, rest, _ := strings.Cut(status, line)
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0, fmt.Errorf("no %s in a process's status: %w", line, fs.ErrNotExist)
	}
	kilobytes, err := strconv.ParseInt(fields[0], 10, 64)
	return kilobytes << 10, err
}

func cpuSeconds(pid int) (float64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseCPU(string(stat))
}

// parseCPU adds up the user's and the system's time. The name of the program, in parentheses, may hold anything.
func parseCPU(stat string) (float64, error) {
	const userTime, systemTime = 11, 12 // counted from behind the name, see proc(5)
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	if len(fields) <= systemTime {
		return 0, fmt.Errorf("a process's stat has %d fields", len(fields))
	}
	user, err := strconv.ParseInt(fields[userTime], 10, 64)
	system, systemErr := strconv.ParseInt(fields[systemTime], 10, 64)
	return float64(user+system) / clockTicks, errors.Join(err, systemErr)
}
