package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// tenantEntries is how many ConfigMaps fatten the consumer: a copy takes long enough to be struck.
const tenantEntries = 2000

func run(ctx context.Context, options options) error {
	if options.seed == 0 {
		options.seed = time.Now().UnixNano() % 1_000_000
	}
	if options.bug != "" {
		return testBench(ctx, options)
	}
	schedules := options.schedules()
	say("faults: %d cases, seed %d", len(schedules), options.seed)
	report, err := playAll(ctx, options, schedules)
	report.print(options.seed)
	if err != nil {
		return err
	}
	if report.violations() > 0 {
		return errViolations
	}
	return nil
}

func (o options) schedules() []schedule {
	var chosen []schedule
	switch {
	case o.all:
		chosen = wholeMatrix()
		chosen = append(chosen, terminations(len(chosen))...)
	case o.random > 0:
		chosen = randomSchedules(o.seed, o.random)
	default:
		chosen = pairwise(o.seed)
		chosen = append(chosen, terminations(len(chosen))...)
	}
	if len(o.only) == 0 {
		return chosen
	}
	return slices.DeleteFunc(chosen, func(schedule schedule) bool { return !slices.Contains(o.only, schedule.number) })
}

// playAll plays the schedules on one bench, or on a new one after a move that got stuck.
func playAll(ctx context.Context, options options, schedules []schedule) (report, error) {
	var report report
	for len(schedules) > 0 {
		played, err := playSome(ctx, options, schedules, &report)
		if err != nil {
			return report, err
		}
		schedules = schedules[played:]
	}
	return report, nil
}

// playSome starts a bench and plays on it as long as it is good for.
func playSome(ctx context.Context, options options, schedules []schedule, report *report) (played int, failure error) {
	folder, err := makeFolder()
	if err != nil {
		return 0, err
	}
	bad := report.violations()
	defer func() {
		if failure == nil && report.violations() == bad {
			failure = os.RemoveAll(folder)
			return
		}
		say("logs are in %s", folder)
	}()
	bench, err := startBench(ctx, benchOptions{binDir: options.binDir, folder: folder, bug: options.bug, entries: tenantEntries})
	if err != nil {
		return 0, err
	}
	defer func() { failure = errors.Join(failure, bench.Stop()) }()
	for i, schedule := range schedules {
		outcome, err := bench.play(ctx, schedule)
		if err != nil {
			return i, fmt.Errorf("case %d (%s): %w", schedule.number, schedule, err)
		}
		report.add(outcome)
		if outcome.stuck {
			return i + 1, nil
		}
	}
	return len(schedules), nil
}
