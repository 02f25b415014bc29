package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/kcp-migrate/kcp-migrate/test/faults/point"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// Tenant is a shape of what is moved.
type Tenant string

// Tenants of the fixtures.
const (
	// Consumer is fattened.
	Consumer Tenant = "root:consumer"
	// Neighbour has a namespace named like the consumer's logical cluster.
	Neighbour Tenant = "root:neighbour"
	// Provider holds an APIExport.
	Provider Tenant = "root:provider"
)

// Order is what a person does while the fault lasts.
type Order string

// The orders.
const (
	NoOrder Order = ""
	// Abort asks to take the move back as the fault strikes.
	Abort Order = "abort"
	// Hurry gives the move little time away, so that faults make it too long.
	Hurry Order = "hurry"
)

// blow is one fault of a schedule.
type blow struct {
	step   string
	place  place
	moment point.Moment
	part   Part
	fault  Fault
	hold   time.Duration
	// meddle is what somebody does while the move waits there, in place of a fault.
	meddle func(context.Context) error
	// optional is of blows that need not hit where another one has: it may have led the move elsewhere.
	optional bool
}

func (b blow) String() string {
	return fmt.Sprintf("%s %s at %s/%s/%s", b.fault, b.part, b.place.role, b.place.activity, b.moment)
}

// is tells whether the move is where the blow is to fall.
func (b blow) is(at point.Point, leg leg) bool {
	shard := leg.shard(b.place.role)
	return at.Activity == b.place.activity && at.Moment == b.moment && (shard == "" || shard == at.Shard)
}

// schedule is all that is to happen in one case.
type schedule struct {
	number int
	tenant Tenant
	order  Order
	blows  []blow
	// gap is how far above the destination's revision the origin's is to be where the move must lift; a little unless given.
	gap int64
	// input is of the move, where more is to be said than who moves where.
	input workflows.Input
}

func (s schedule) needs(what need) bool {
	for _, blow := range s.blows {
		if blow.place.needs == what {
			return true
		}
	}
	return false
}

func (s schedule) String() string {
	words := make([]string, len(s.blows))
	for i, blow := range s.blows {
		words[i] = blow.String()
	}
	text := fmt.Sprintf("%s: %s", s.tenant, strings.Join(words, ", "))
	if s.order != NoOrder {
		text += ", " + string(s.order)
	}
	return text
}
