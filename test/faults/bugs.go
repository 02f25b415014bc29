package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kcp-migrate/kcp-migrate/test/faults/point"
)

// allBugs is what --break takes for one bug after the other.
const allBugs = "all"

// trial is a bug, the invariant of README.md that it breaks, and what brings it to light. Sound workers stand the same.
type trial struct {
	bug       point.Bug
	invariant int
	schedule  schedule
}

// longOutage is longer than a hurried move may be away, with all tolerance.
const longOutage = hurried + tolerance + 6*time.Second

func trials() []trial {
	quiet := func(activity string) schedule { return trialOf(activity, point.After, FrontDoor, HalfClose, 0) }
	slow := trialOf("CopyEntries", point.Before, DestinationEtcd, Hang, longOutage)
	slow.order = Hurry
	zombie := trialOf("CopyEntries", point.During, DestinationWorker, Linger, 0)
	zombie.order = Abort
	low := trialOf("LiftRevision", point.Before, FrontDoor, HalfClose, 0)
	low.gap = 30_000
	return []trial{
		{point.DeletesEarly, 1, quiet("CopyEntries")},
		{point.LosesAnEntry, 2, quiet("CopyEntries")},
		{point.TouchesANeighbour, 3, quiet("DeleteOriginEntries")},
		{point.RetakesTheClaim, 4, zombie},
		{point.ClaimsOnce, 5, trialOf("Claim", point.After, OriginWorker, Kill, holds[Kill])},
		{point.LeavesItBlind, 6, quiet("FenceOrigin")},
		{point.TellsASecret, 7, trialOf("CopyEntries", point.Before, FrontDoor, HalfClose, 0)},
		{point.ForgetsTheTime, 8, slow},
		{point.LeavesWatchesDeaf, 9, low},
	}
}

// trialOf lets one fault strike the first place of an activity.
func trialOf(activity string, moment point.Moment, part Part, fault Fault, hold time.Duration) schedule {
	for _, step := range steps {
		for _, place := range step.places {
			if place.activity == activity {
				only := blow{step: step.name, place: place, moment: moment, part: part, fault: fault, hold: hold}
				return schedule{tenant: Neighbour, blows: []blow{only}}
			}
		}
	}
	panic("no step has activity " + activity)
}

// testBench sees that sound workers pass every trial and that each bug is caught.
func testBench(ctx context.Context, options options) error {
	chosen := trials()
	if options.bug != allBugs {
		chosen = slices.DeleteFunc(chosen, func(trial trial) bool { return string(trial.bug) != options.bug })
		if len(chosen) == 0 {
			return fmt.Errorf("unknown bug %q", options.bug)
		}
	}
	var sound []schedule
	for _, trial := range chosen {
		sound = append(sound, trial.schedule)
	}
	say("Sound workers:")
	options.bug = ""
	passed, err := playAll(ctx, options, numbered(sound))
	if err != nil {
		return err
	}
	caught := 0
	for _, trial := range chosen {
		options.bug = string(trial.bug)
		report, err := playAll(ctx, options, numbered([]schedule{trial.schedule}))
		if err != nil {
			return fmt.Errorf("work with bug %s: %w", trial.bug, err)
		}
		found := strings.Join(report.outcomes[0].violations, "; ")
		say("break=%s invariant=%d caught=%t by: %s", trial.bug, trial.invariant, found != "", found)
		if found != "" {
			caught++
		}
	}
	say("faults: bugs=%d caught=%d violations_without_bug=%d", len(chosen), caught, passed.violations())
	if caught < len(chosen) || passed.violations() > 0 {
		return errBlind
	}
	return nil
}
