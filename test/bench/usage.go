package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/kcp-migrate/kcp-migrate/test/installation"
)

// sampleEvery is how often memory is looked at that no kernel counter keeps the peak of.
const sampleEvery = 20 * time.Millisecond

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
			now.PeakOwnBytes, err = installation.Memory(pid, installation.OwnMemory)
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
			if own, err := installation.Memory(pid, installation.OwnMemory); err == nil { // a last look may come when it has ended
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
		peak, err := installation.Memory(pid, installation.PeakMemory)
		seconds, cpuErr := cpuSeconds(pid)
		failures = append(failures, err, cpuErr)
		used[name] = usage{
			PeakBytes: peak, PeakOwnBytes: m.peaks[name], GrownBytes: max(0, m.peaks[name]-m.started[name].PeakOwnBytes),
			CPUSeconds: seconds - m.started[name].CPUSeconds,
		}
	}
	return used, errors.Join(failures...)
}

func cpuSeconds(pid int) (float64, error) {
	used, err := installation.ProcessorTime(pid)
	return used.Seconds(), err
}
