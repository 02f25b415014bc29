package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kcp-migrate/kcp-migrate/test/faults/point"
)

// Part is what a fault strikes.
type Part string

// The parts of an installation.
const (
	OriginWorker      Part = "origin worker"
	DestinationWorker Part = "destination worker"
	BothWorkers       Part = "both workers"
	TemporalServer    Part = "Temporal server"
	OriginEtcd        Part = "origin etcd"
	DestinationEtcd   Part = "destination etcd"
	// EtcdMember is one of three.
	EtcdMember Part = "etcd member"
	// WorkerLink is between the two workers.
	WorkerLink Part = "worker link"
	FrontDoor  Part = "front door"
	// Workflow is the move's own, which can only be terminated.
	Workflow Part = "workflow"
)

var parts = []Part{OriginWorker, DestinationWorker, BothWorkers, TemporalServer, OriginEtcd, DestinationEtcd, EtcdMember, WorkerLink, FrontDoor}

// Fault is what happens to a part.
type Fault string

// The faults. All but the first two are of the part's connections.
const (
	// Kill ends the process as a power failure would and starts it again.
	Kill Fault = "kill"
	// Freeze stops the process for longer than the heartbeat timeout.
	Freeze Fault = "freeze"
	// Drop resets all connections and refuses new ones for a while.
	Drop Fault = "drop"
	// Hang loses every packet for a while.
	Hang Fault = "hang"
	// Delay makes everything slow for a while.
	Delay Fault = "delay"
	// HalfClose ends all connections in one direction.
	HalfClose Fault = "half-close"
	// Linger holds one attempt of an activity, and nothing else of its worker, until the move is over: it was given up for
	// dead, and wakes.
	Linger Fault = "linger"
	// Terminate is of the move's workflow: somebody ends it, and it is recovered.
	Terminate Fault = "terminate"
	// Meddle is no fault of a part: somebody does something to the tenant.
	Meddle Fault = "meddle"
)

var faults = []Fault{Kill, Freeze, Drop, Hang, Delay, HalfClose, Linger}

// holds is how long each fault lasts; Freeze and Hang last longer than the heartbeat timeout of 2 s.
var holds = map[Fault]time.Duration{
	Kill: 500 * time.Millisecond, Freeze: 3 * time.Second, Drop: 2 * time.Second, Hang: 3 * time.Second, Delay: 4 * time.Second, HalfClose: 0,
}

// applies is whether the fault can strike the part at the site: a link is no process, and only the worker that is there can
// linger there. Once an activity has begun its heartbeats, nobody gives it up for dead.
func (f Fault) applies(part Part, at site) bool {
	switch f {
	case Kill, Freeze:
		return part != WorkerLink
	case Linger:
		there := part == OriginWorker && at.place.role == Origin || part == DestinationWorker && at.place.role == Destination
		return there && at.moment == point.Before
	default:
		return true
	}
}

// strike lets a fault happen to a part in a move, and gives what heals it.
func (b *bench) strike(fault Fault, part Part, leg leg) (heal func() error, err error) {
	switch fault {
	case Kill:
		return all(b.programs(part, leg), (*program).kill, func(p *program) error { p.release(); return nil })
	case Freeze:
		return all(b.programs(part, leg), (*program).freeze, (*program).thaw)
	case HalfClose:
		return all(b.connections(part, leg), func(l link) error { l.halfClose(); return nil }, func(link) error { return nil })
	default:
		set := func(mood Mood) func(link) error { return func(l link) error { l.set(mood); return nil } }
		return all(b.connections(part, leg), set(Mood(fault)), set(sound))
	}
}

// all does something to each, and gives what does the other thing to each.
func all[T any](targets []T, do, heal func(T) error) (func() error, error) {
	if len(targets) == 0 {
		return nil, errors.New("there is nothing to strike")
	}
	each := func(act func(T) error) error {
		var failures []error
		for _, target := range targets {
			failures = append(failures, act(target))
		}
		return errors.Join(failures...)
	}
	return func() error { return each(heal) }, each(do)
}

// programs are the processes of a part.
func (b *bench) programs(part Part, leg leg) []*program {
	switch part {
	case OriginWorker:
		return []*program{b.workers[leg.origin]}
	case DestinationWorker:
		return []*program{b.workers[leg.destination]}
	case BothWorkers:
		return []*program{b.workers[leg.origin], b.workers[leg.destination]}
	case TemporalServer:
		return []*program{b.temporalServer}
	case OriginEtcd:
		return b.etcds[leg.origin]
	case DestinationEtcd:
		return b.etcds[leg.destination]
	case EtcdMember:
		return b.etcds["shard-1"][:1]
	case FrontDoor:
		return []*program{b.frontDoor}
	default:
		return nil
	}
}

// connections are the proxies through which a part is reached, and of a worker those through which it reaches others.
func (b *bench) connections(part Part, leg leg) []link {
	var found []link
	for _, link := range b.links {
		if b.connects(link, part, leg) {
			found = append(found, link)
		}
	}
	return found
}

func (b *bench) connects(l link, part Part, leg leg) bool {
	transfer := l.from == "worker"
	switch part {
	case OriginWorker:
		return l.from == workerName(leg.origin) || transfer
	case DestinationWorker:
		return l.from == workerName(leg.destination) || transfer
	case BothWorkers:
		return strings.HasPrefix(l.from, "worker")
	case TemporalServer:
		return l.to == "temporal"
	case OriginEtcd:
		return strings.HasPrefix(l.to, "etcd-"+leg.origin)
	case DestinationEtcd:
		return strings.HasPrefix(l.to, "etcd-"+leg.destination)
	case EtcdMember:
		return l.to == etcdName("shard-1", 0)
	case WorkerLink:
		return transfer
	case FrontDoor:
		return l.to == "front-door"
	default:
		return false
	}
}

// leg is one move of a tenant.
type leg struct{ origin, destination string }

func (l leg) String() string { return fmt.Sprintf("%s->%s", l.origin, l.destination) }

// shard is where an activity of a role runs; empty for either.
func (l leg) shard(role Role) string {
	switch role {
	case Origin:
		return l.origin
	case Destination:
		return l.destination
	default:
		return ""
	}
}
