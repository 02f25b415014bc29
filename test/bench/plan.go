package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// plan is what a run measures.
type plan struct {
	quick       bool
	repetitions int
	// alone and amongst are the shapes without and with neighbours.
	alone, amongst []shape
	// weights are played by weighed alone.
	weights     []shape
	weighed     []string
	crowd       int
	neighbour   *shape
	trips       []trip
	crowdedTrip *trip
	profiles    string
}

const (
	usualRepetitions = 5
	quickRepetitions = 2
)

func newPlan(options options) (plan, error) {
	p := plan{quick: options.quick, repetitions: options.repetitions, crowd: crowded, profiles: options.profiles}
	if p.repetitions <= 0 {
		p.repetitions = usualRepetitions
		if p.quick {
			p.repetitions = quickRepetitions
		}
	}
	for _, part := range options.parts {
		switch part {
		case copiesPart:
			p.addCopies()
		case memoryPart:
			p.weights, p.weighed = slices.Clone(weights), []string{paged, streamed}
		case neighbourPart:
			p.neighbour = &shape{Name: medium, Entries: 50_000, ValueBytes: 1000, Families: 1}
		case journeysPart:
			p.addJourneys()
		default:
			return plan{}, fmt.Errorf("unknown part %q", part)
		}
	}
	if p.quick {
		p.hurry()
	}
	if options.shrink > 1 {
		p.shrink(options.shrink)
	}
	return p, nil
}

func (p *plan) addCopies() {
	p.alone, p.amongst = slices.Clone(contest), slices.Clone(contest)
}

func (p *plan) addJourneys() {
	for _, entries := range []int{10, 1000, 5000, 50_000} {
		p.trips = append(p.trips, trip{entries: entries, atOnce: 1, repetitions: p.repetitions})
	}
	for _, atOnce := range []int{4, 16} {
		p.trips = append(p.trips, trip{entries: 1000, atOnce: atOnce, repetitions: p.repetitions})
	}
	p.crowdedTrip = &trip{entries: 50_000, atOnce: 1, repetitions: p.repetitions}
}

// hurry leaves out what no bar asks for, and repeats only what differs most.
func (p *plan) hurry() {
	p.alone = slices.DeleteFunc(p.alone, func(s shape) bool { return s.Name != small && s.Name != medium })
	p.amongst = slices.DeleteFunc(p.amongst, func(s shape) bool { return s.Name != medium })
	for _, shapes := range [][]shape{p.alone, p.amongst} {
		for i := range shapes {
			shapes[i].BaselineRepetitions = 1
		}
	}
	p.weighed = []string{streamed}
	for i := range p.trips {
		if p.trips[i].atOnce > 1 {
			p.trips[i].repetitions = 1
		}
	}
}

// shrink keeps the names, so that every bar is tried too.
func (p *plan) shrink(by int) {
	for _, shapes := range [][]shape{p.alone, p.amongst, p.weights} {
		for i := range shapes {
			shapes[i].Entries = max(shapes[i].Entries/by, shapes[i].Families)
		}
	}
	if p.neighbour != nil {
		p.neighbour.Entries /= by
	}
	p.crowd /= by
}

// measure does it all: alone first, then among neighbours, then through the workflow.
func (p plan) measure(ctx context.Context, binDir, folder string) (results, error) {
	found := results{Machine: thisMachine(), Quick: p.quick, Repetitions: p.repetitions}
	if len(p.alone)+len(p.weights) > 0 || p.neighbour != nil {
		if err := p.measureContest(ctx, binDir, folder, &found); err != nil {
			return results{}, err
		}
	}
	if len(p.trips) == 0 {
		return found, nil
	}
	var err error
	found.Journeys, err = measureJourneys(ctx, binDir, folder, p.trips, p.crowdedTrip, p.crowd)
	return found, err
}

func (p plan) measureContest(ctx context.Context, binDir, folder string, found *results) (err error) {
	arena, err := newArena(ctx, binDir, folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, arena.close()) }()
	arena.profiles = p.profiles
	play := func(shapes []shape, contenders ...string) error {
		measured, err := arena.measureAll(ctx, shapes, contenders, p.repetitions)
		found.Measurements = append(found.Measurements, measured...)
		return err
	}
	if err := play(p.alone, contenders...); err != nil {
		return err
	}
	if err := play(p.weights, p.weighed...); err != nil {
		return err
	}
	if len(p.amongst) == 0 && p.neighbour == nil {
		return nil
	}
	arena.neighbours = p.crowd
	if err := play(p.amongst, contenders...); err != nil {
		return err
	}
	if p.neighbour != nil {
		found.Neighbour, err = arena.measureNeighbour(ctx, *p.neighbour, p.repetitions)
	}
	return err
}
