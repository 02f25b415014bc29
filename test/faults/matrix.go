package main

import (
	"math/rand/v2"
	"slices"

	"github.com/kcp-migrate/kcp-migrate/test/faults/point"
)

// site is where in a move a fault strikes.
type site struct {
	step   string
	place  place
	moment point.Moment
}

// variant is a shape of move.
type variant struct {
	tenant Tenant
	order  Order
}

var variants = []variant{{Consumer, NoOrder}, {Neighbour, NoOrder}, {Provider, NoOrder}, {Consumer, Abort}, {Consumer, Hurry}}

// hurriedSteps are those in which a move can run out of its time away.
var hurriedSteps = []string{"fence origin", "wake origin", "fence destination", "copy", "verify", "commit"}

// fits is whether such a move comes by the site.
func (s site) fits(variant variant) bool {
	switch {
	case s.place.needs == anExport && variant.tenant != Provider,
		s.place.needs == anUndo && variant.order != NoOrder,
		variant.order == Hurry && !slices.Contains(hurriedSteps, s.step):
		return false
	}
	return true
}

func sites() []site {
	var found []site
	for _, step := range steps {
		for _, place := range step.places {
			for _, moment := range place.moments {
				found = append(found, site{step.name, place, moment})
			}
		}
	}
	return found
}

func newSchedule(site site, part Part, fault Fault, variant variant) schedule {
	only := blow{step: site.step, place: site.place, moment: site.moment, part: part, fault: fault, hold: holds[fault]}
	return schedule{tenant: variant.tenant, order: variant.order, blows: []blow{only}}
}

// candidates are all schedules of one blow, by site, part and fault.
func candidates() [][]schedule {
	var found [][]schedule
	for _, site := range sites() {
		for _, part := range parts {
			for _, fault := range faults {
				if !fault.applies(part, site) {
					continue
				}
				var shapes []schedule
				for _, variant := range variants {
					if site.fits(variant) {
						shapes = append(shapes, newSchedule(site, part, fault, variant))
					}
				}
				found = append(found, shapes)
			}
		}
	}
	return found
}

// wholeMatrix is every fault of every part at every site; the shapes of moves take turns.
func wholeMatrix() []schedule {
	var chosen []schedule
	for i, shapes := range candidates() {
		chosen = append(chosen, shapes[i%len(shapes)])
	}
	return numbered(chosen)
}

// pairwise is a choice of the matrix in which every two of step, part, fault and shape meet, and that leaves out no site.
func pairwise(seed int64) []schedule {
	pool := slices.Concat(candidates()...)
	random := rand.New(rand.NewPCG(uint64(seed), 0)) //nolint:gosec // a seed has no sign and no secret
	random.Shuffle(len(pool), func(i, j int) { pool[i], pool[j] = pool[j], pool[i] })
	pairs := make([][]string, len(pool))
	missing := map[string]bool{}
	for i, schedule := range pool {
		pairs[i] = schedule.pairs()
		for _, pair := range pairs[i] {
			missing[pair] = true
		}
	}
	var chosen []schedule
	for len(missing) > 0 {
		best := richest(pairs, missing)
		for _, pair := range pairs[best] {
			delete(missing, pair)
		}
		chosen = append(chosen, pool[best])
	}
	random.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	return numbered(chosen)
}

// pairs names what meets in a schedule of one blow.
func (s schedule) pairs() []string {
	blow := s.blows[0]
	step, part, fault, shape := blow.step, string(blow.part), string(blow.fault), string(s.tenant)+" "+string(s.order)
	site := string(blow.place.role) + " " + blow.place.activity + " " + string(blow.moment)
	return []string{step + "|" + part, step + "|" + fault, part + "|" + fault, step + "|" + shape, part + "|" + shape, fault + "|" + shape, step + "|" + site}
}

// richest finds where most is that is missing.
func richest(pairs [][]string, missing map[string]bool) int {
	best, most := 0, 0
	for i, has := range pairs {
		gain := 0
		for _, pair := range has {
			if missing[pair] {
				gain++
			}
		}
		if gain > most {
			best, most = i, gain
		}
	}
	return best
}

func numbered(schedules []schedule) []schedule {
	for i := range schedules {
		schedules[i].number = i + 1
	}
	return schedules
}

// terminations have the move's workflow terminated once at every place, the moments and the tenants in turn. They are numbered
// behind the others.
func terminations(behind int) []schedule {
	var chosen []schedule
	for _, step := range steps {
		for _, place := range step.places {
			at := site{step.name, place, place.moments[len(chosen)%len(place.moments)]}
			shapes := slices.DeleteFunc(slices.Clone(variants), func(variant variant) bool { return variant.order != NoOrder || !at.fits(variant) })
			schedule := newSchedule(at, Workflow, Terminate, shapes[len(chosen)%len(shapes)])
			schedule.number = behind + len(chosen) + 1
			chosen = append(chosen, schedule)
		}
	}
	return chosen
}
