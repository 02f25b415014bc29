package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"time"

	"github.com/kcp-migrate/kcp-migrate/activities/transfer"
)

// role says which side of a move a worker process stands on.
type role string

const (
	originRole      role = "origin"
	destinationRole role = "destination"
)

// assignment is the first line that a worker process reads.
type assignment struct {
	Contender string          `json:"contender"`
	Role      role            `json:"role"`
	Origin    string          `json:"origin"`      // the origin's etcd
	Target    string          `json:"destination"` // the destination's etcd
	Files     transfer.Config `json:"files"`
	Shape     shape           `json:"shape"`
	// Braked is that it slows down while it makes others wait, as the product does by default.
	Braked bool `json:"braked"`
	// Profile is the file for a CPU profile of the worker's whole life, if there is to be one.
	Profile string `json:"profile,omitempty"`
}

// etcd is the one beside which the worker stands.
func (a assignment) etcd() string {
	if a.Role == originRole {
		return a.Origin
	}
	return a.Target
}

// task is what a worker can be told to do.
type task string

const (
	serve   task = "serve"
	copying task = "copy"
	verify  task = "verify"
	cleanup task = "cleanup"
)

// order is one line to a worker process.
type order struct {
	Task task `json:"task"`
	// Address is where the origin's worker serves.
	Address string `json:"address,omitempty"`
	// Revision is the origin's: the one to copy, or the one that was verified.
	Revision int64 `json:"revision,omitempty"`
}

// answer is one line back.
type answer struct {
	Problem  string `json:"problem,omitempty"`
	Address  string `json:"address,omitempty"`
	Revision int64  `json:"revision,omitempty"`
	// Entries is how many were copied, compared or deleted.
	Entries int64 `json:"entries,omitempty"`
	// Pages counts the requests between the workers, where the contender counts them.
	Pages int           `json:"pages,omitempty"`
	Took  time.Duration `json:"took,omitempty"`
}

// hand is a contender's side of a move in a worker process.
type hand interface {
	do(ctx context.Context, order order) (answer, error)
	close() error
}

// work is the whole life of a worker process: it does what it is told until there are no more orders.
func work(ctx context.Context, orders io.Reader, answers io.Writer) (err error) {
	decoder, encoder := json.NewDecoder(orders), json.NewEncoder(answers)
	var assigned assignment
	if err := decoder.Decode(&assigned); err != nil {
		return fmt.Errorf("read assignment: %w", err)
	}
	stopProfile, err := assigned.startProfile()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopProfile()) }()
	hand, err := newHand(ctx, assigned)
	if err != nil {
		return errors.Join(err, encoder.Encode(answer{Problem: err.Error()}))
	}
	defer func() { err = errors.Join(err, hand.close()) }()
	if err := encoder.Encode(answer{}); err != nil {
		return err
	}
	for {
		var next order
		if err := decoder.Decode(&next); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read order: %w", err)
		}
		if err := encoder.Encode(timed(ctx, hand, next)); err != nil {
			return err
		}
	}
}

func (a assignment) startProfile() (stop func() error, err error) {
	if a.Profile == "" {
		return func() error { return nil }, nil
	}
	file, err := os.Create(a.Profile)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return file.Close()
	}, nil
}

func timed(ctx context.Context, hand hand, order order) answer {
	start := time.Now()
	done, err := hand.do(ctx, order)
	done.Took = time.Since(start)
	if err != nil {
		done.Problem = err.Error()
	}
	return done
}

func newHand(ctx context.Context, assigned assignment) (hand, error) {
	switch assigned.Contender {
	case baseline:
		return newBaseline(ctx, assigned)
	case paged, streamed:
		return newOurs(ctx, assigned)
	case ceiling:
		return newCeiling(ctx, assigned)
	default:
		return nil, fmt.Errorf("unknown contender %q", assigned.Contender)
	}
}

func cannot(task task) (answer, error) {
	return answer{}, fmt.Errorf("this contender cannot %s here", task)
}
