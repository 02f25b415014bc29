package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// probeEvery is how often a neighbour reads, and writes, at each etcd.
	probeEvery = 5 * time.Millisecond
	// idleFor is how long a neighbour is listened to while nothing else happens.
	idleFor = 10 * time.Second
	// probeKeys is how many keys the neighbour reads and writes in turn.
	probeKeys = 100
)

// latencies are what a neighbour waited for one kind of request at one etcd.
type latencies struct {
	Etcd    string `json:"etcd"`
	Request string `json:"request"`
	// Idle is while nothing else happens, Moving while the tenant beside it is copied, verified and cleaned up.
	Idle   percentiles `json:"idle"`
	Moving percentiles `json:"moving"`
}

// percentiles are in milliseconds.
type percentiles struct {
	P50   float64 `json:"p50"`
	P99   float64 `json:"p99"`
	Most  float64 `json:"most"`
	Count int     `json:"count"`
}

func percentilesOf(samples []time.Duration) percentiles {
	milliseconds := func(percent float64) float64 { return percentile(samples, percent).Seconds() * 1000 }
	return percentiles{P50: milliseconds(50), P99: milliseconds(99), Most: milliseconds(100), Count: len(samples)}
}

// measureNeighbour listens to a neighbour at both etcds, idle and while a tenant is moved so many times.
func (a *arena) measureNeighbour(ctx context.Context, shape shape, repetitions int) ([]latencies, error) {
	idle, moving := map[probe][]time.Duration{}, map[probe][]time.Duration{}
	for range repetitions {
		if err := a.prepare(ctx, shape); err != nil {
			return nil, fmt.Errorf("prepare etcds: %w", err)
		}
		if err := a.listen(ctx, idle, func() error { return pause(ctx, idleFor) }); err != nil {
			return nil, err
		}
		assigned := a.assignment(streamed, shape)
		assigned.Braked = true
		duel, err := startDuel(ctx, a.folder, assigned)
		if err != nil {
			return nil, err
		}
		err = a.listen(ctx, moving, func() error {
			for _, task := range tasksOf(streamed) {
				if _, err := duel.do(task); err != nil {
					return err
				}
			}
			return nil
		})
		if err := errors.Join(err, duel.stop()); err != nil {
			return nil, err
		}
	}
	found := make([]latencies, 0, len(idle))
	for _, probe := range probes {
		found = append(found, latencies{
			Etcd: probe.etcd, Request: probe.request, Idle: percentilesOf(idle[probe]), Moving: percentilesOf(moving[probe]),
		})
	}
	fmt.Fprintf(os.Stderr, "%s  neighbour heard\n", time.Now().Format(time.TimeOnly))
	return found, nil
}

// probe is one kind of request at one etcd.
type probe struct{ etcd, request string }

const reads, writes = "read", "write"

var probes = []probe{{"origin", reads}, {"origin", writes}, {"destination", reads}, {"destination", writes}}

// listen probes while something runs, each probe by itself, and adds what it heard.
func (a *arena) listen(ctx context.Context, heard map[probe][]time.Duration, run func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mutex sync.Mutex
	var group sync.WaitGroup
	failures := make([]error, len(probes))
	for i, probe := range probes {
		group.Go(func() {
			samples, err := a.probe(ctx, probe)
			mutex.Lock()
			defer mutex.Unlock()
			heard[probe], failures[i] = append(heard[probe], samples...), err
		})
	}
	err := run()
	cancel()
	group.Wait()
	return errors.Join(append(failures, err)...)
}

// probe asks at a steady pace until ctx is done. A request that takes longer than the pace delays the next: nobody's clients queue without end.
func (a *arena) probe(ctx context.Context, probe probe) (samples []time.Duration, err error) {
	server := a.servers.origin
	if probe.etcd == a.servers.destination.name {
		server = a.servers.destination
	}
	etcd, err := dial(context.WithoutCancel(ctx), server.endpoint)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, etcd.Close()) }()
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	values := newValues(neighbourBytes)
	for number := 0; ; number++ {
		select {
		case <-ctx.Done():
			return samples, nil
		case <-ticker.C:
		}
		start := time.Now()
		if err := ask(context.WithoutCancel(ctx), etcd, probe, number, values.next()); err != nil {
			return nil, fmt.Errorf("%s as a neighbour at the %s: %w", probe.request, probe.etcd, err)
		}
		samples = append(samples, time.Since(start))
	}
}

func ask(ctx context.Context, etcd *clientv3.Client, probe probe, number int, value string) (err error) {
	key := entryKey(configMaps, "probing-neighbour", number%probeKeys)
	if probe.request == writes {
		_, err = etcd.Put(ctx, key, value)
	} else {
		_, err = etcd.Get(ctx, key)
	}
	return err
}

func pause(ctx context.Context, length time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(length):
		return nil
	}
}
