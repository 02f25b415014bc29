package main

import (
	"time"

	"pgregory.net/rapid"
)

const (
	// mostBlows is how many faults a random schedule has at most.
	mostBlows   = 3
	longestHold = 6 * time.Second
)

// schedules draws what is to happen in one case.
var schedules = rapid.Custom(func(t *rapid.T) schedule {
	variant := rapid.SampledFrom(variants).Draw(t, "variant")
	drawn := schedule{tenant: variant.tenant, order: variant.order}
	if rapid.Bool().Draw(t, "gap") {
		drawn.gap = rapid.Int64Range(1, 5_000).Draw(t, "gap size")
	}
	for i := range rapid.IntRange(1, mostBlows).Draw(t, "blows") {
		drawn.blows = append(drawn.blows, drawBlow(t, variant, i))
	}
	return drawn
})

// drawBlow draws one fault. The first comes where a move comes by unless another one strikes before it; each may find the move
// elsewhere, and one must hit.
func drawBlow(t *rapid.T, variant variant, number int) blow {
	possible := func(site site) bool {
		return site.fits(variant) && (number > 0 || site.place.needs == nothing && certain(site))
	}
	at := rapid.SampledFrom(sites()).Filter(possible).Draw(t, "site")
	part := rapid.SampledFrom(parts).Draw(t, "part")
	fault := rapid.SampledFrom(faults).Filter(func(fault Fault) bool { return fault.applies(part, at) }).Draw(t, "fault")
	hold := holds[fault]
	if hold > 0 {
		hold = time.Duration(rapid.Int64Range(int64(hold)/2, int64(longestHold)).Draw(t, "hold"))
	}
	return blow{
		step: at.step, place: at.place, moment: at.moment, part: part, fault: fault, hold: hold,
		optional: true,
	}
}

// certain is whether a move comes by whatever an order makes of it.
func certain(at site) bool { return at.step != "undo" }

// randomSchedules draws some; the same seed draws the same.
func randomSchedules(seed int64, count int) []schedule {
	drawn := make([]schedule, count)
	for i := range drawn {
		drawn[i] = schedules.Example(int(seed)*count + i)
	}
	return numbered(drawn)
}
