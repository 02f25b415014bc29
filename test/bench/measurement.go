package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kcp-migrate/kcp-migrate/activities/transfer"
)

// measurement is one repetition of one contender on one shape.
type measurement struct {
	Contender  string         `json:"contender"`
	Shape      shape          `json:"shape"`
	Neighbours int            `json:"neighbours"`
	Phases     map[task]phase `json:"phases"`
	// Usage is of both etcds and the workers, over all phases.
	Usage map[string]usage `json:"usage"`
}

// phase is one of a repetition's.
type phase struct {
	Seconds float64 `json:"seconds"`
	// OriginRequests and DestinationRequests are what the etcds were asked.
	OriginRequests      int `json:"originRequests"`
	DestinationRequests int `json:"destinationRequests"`
	// Pages are the requests between the baseline's workers.
	Pages int `json:"pages,omitempty"`
	// CPUSeconds are all processes' together.
	CPUSeconds float64 `json:"cpuSeconds"`
}

// away is for how long the tenant could not be served: the product cleans up while the destination serves it, kcp before.
func (m measurement) away() float64 {
	away := m.Phases[copying].Seconds + m.Phases[verify].Seconds
	if m.Contender == baseline {
		away += m.Phases[cleanup].Seconds
	}
	return away
}

// arena is where contenders meet: two etcds, how many keys of neighbours are in them, and the workers' certificate.
type arena struct {
	folder     string
	servers    *pair
	files      transfer.Config
	neighbours int
	// profiles is the folder for the workers' CPU profiles, if there are to be any.
	profiles string
}

func newArena(ctx context.Context, binDir, folder string) (*arena, error) {
	files, err := makeCertificate(folder)
	if err != nil {
		return nil, fmt.Errorf("make the workers' certificate: %w", err)
	}
	servers, err := newPair(ctx, binDir, folder)
	if err != nil {
		return nil, err
	}
	return &arena{folder: folder, servers: servers, files: files}, nil
}

// measureAll plays shapes in their order, and has all contenders take turns in each repetition.
func (a *arena) measureAll(ctx context.Context, shapes []shape, contenders []string, repetitions int) ([]measurement, error) {
	var measured []measurement
	for _, shape := range shapes {
		for repetition := range repetitions {
			for _, contender := range contenders {
				if contender == baseline && shape.BaselineRepetitions > 0 && repetition >= shape.BaselineRepetitions {
					continue
				}
				one, err := a.measure(ctx, contender, shape)
				if err != nil {
					return nil, fmt.Errorf("measure %s at %s: %w", contender, shape.Name, err)
				}
				announce(one)
				measured = append(measured, one)
			}
		}
	}
	return measured, nil
}

func announce(m measurement) {
	fmt.Fprintf(os.Stderr, "%s  %-14s %-30s %7d neighbours: copy %.2f s", time.Now().Format(time.TimeOnly),
		m.Contender, m.Shape.Name, m.Neighbours, m.Phases[copying].Seconds)
	for _, task := range tasksOf(m.Contender)[1:] {
		fmt.Fprintf(os.Stderr, ", %s %.2f s", task, m.Phases[task].Seconds)
	}
	fmt.Fprintln(os.Stderr)
}

func (a *arena) measure(ctx context.Context, contender string, shape shape) (_ measurement, err error) {
	if err := a.prepare(ctx, shape); err != nil {
		return measurement{}, fmt.Errorf("prepare etcds: %w", err)
	}
	duel, err := a.duel(ctx, contender, shape)
	if err != nil {
		return measurement{}, err
	}
	defer func() { err = errors.Join(err, duel.stop()) }()
	processes := a.processes(duel)
	meter, err := startMeter(ctx, processes)
	if err != nil {
		return measurement{}, err
	}
	measured := measurement{Contender: contender, Shape: shape, Neighbours: a.neighbours, Phases: map[task]phase{}}
	for _, task := range tasksOf(contender) {
		measured.Phases[task], err = a.measurePhase(ctx, duel, task, shape, processes)
		if err != nil {
			break
		}
	}
	var meterErr error
	measured.Usage, meterErr = meter.stop()
	return measured, errors.Join(err, meterErr)
}

func (a *arena) duel(ctx context.Context, contender string, shape shape) (*duel, error) {
	return startDuel(ctx, a.folder, a.assignment(contender, shape))
}

func (a *arena) assignment(contender string, shape shape) assignment {
	return assignment{
		Contender: contender, Shape: shape, Files: a.files, Profile: a.profiles,
		Origin: a.servers.origin.endpoint, Target: a.servers.destination.endpoint,
	}
}

func (a *arena) processes(duel *duel) map[string]int {
	processes := duel.processes()
	processes["origin etcd"] = a.servers.origin.process.PID()
	processes["destination etcd"] = a.servers.destination.process.PID()
	return processes
}

// prepare has both etcds filled anew, with neighbours where there are to be any, with the tenant at the origin, and with its
// fenced LogicalCluster at the destination: none remembers a repetition before.
func (a *arena) prepare(ctx context.Context, shape shape) error {
	logicalCluster, err := fencedLogicalCluster()
	if err != nil {
		return err
	}
	if err := a.servers.renew(ctx); err != nil {
		return err
	}
	err = a.servers.each(ctx, func(s *server, ctx context.Context) error {
		return s.with(ctx, func(ctx context.Context, etcd *clientv3.Client) error {
			if err := fill(ctx, etcd, neighbours(a.neighbours)); err != nil {
				return err
			}
			if _, err := etcd.Put(ctx, layout.LogicalClusterKey(tenant), logicalCluster); err != nil || s == a.servers.destination {
				return err
			}
			return fill(ctx, etcd, shape.content())
		})
	})
	if err != nil {
		return err
	}
	return a.servers.restart(ctx)
}

func (a *arena) measurePhase(ctx context.Context, duel *duel, task task, shape shape, processes map[string]int) (phase, error) {
	before, err := a.counters(ctx, processes)
	if err != nil {
		return phase{}, err
	}
	done, err := duel.do(task)
	if err != nil {
		return phase{}, err
	}
	after, err := a.counters(ctx, processes)
	if err != nil {
		return phase{}, err
	}
	if done.Entries < int64(shape.Entries) {
		return phase{}, fmt.Errorf("%s saw %d of %d entries", task, done.Entries, shape.Entries)
	}
	return phase{
		Seconds: done.Took.Seconds(), Pages: done.Pages,
		OriginRequests:      after.originRequests - before.originRequests,
		DestinationRequests: after.destinationRequests - before.destinationRequests,
		CPUSeconds:          after.cpuSeconds - before.cpuSeconds,
	}, nil
}

type counters struct {
	originRequests, destinationRequests int
	cpuSeconds                          float64
}

func (a *arena) counters(ctx context.Context, processes map[string]int) (counters, error) {
	var now counters
	for _, pid := range processes {
		seconds, err := cpuSeconds(pid)
		if err != nil {
			return counters{}, err
		}
		now.cpuSeconds += seconds
	}
	var err, destinationErr error
	now.originRequests, err = a.servers.origin.requests(ctx)
	now.destinationRequests, destinationErr = a.servers.destination.requests(ctx)
	return now, errors.Join(err, destinationErr)
}

func (a *arena) close() error { return a.servers.stop() }
