// Command rangestream measures what docs/rangestream.md tells: a logical cluster read out of a shard's etcd in pages and by
// RangeStream, over the whole shard as kcp's native migration does it and by prefix, from etcds of several versions.
// Each reading is by a process of its own, so that its memory can be told.
//
//	make rangestream                   # all of it, half an hour
//	make rangestream ONLY="5000 keys"
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// shape is what a shard holds.
type shape struct {
	Keys       int `json:"keys"`
	ValueBytes int `json:"valueBytes"`
	// Neighbours are the keys of other tenants, 1 kB each.
	Neighbours int `json:"neighbours"`
}

func (s shape) String() string {
	return fmt.Sprintf("%d keys of %d B among %d", s.Keys, s.ValueBytes, s.Neighbours)
}

func main() {
	var o options
	servers := flag.String("etcds", "", "`name=binary` of each etcd to be measured, separated by commas")
	flag.IntVar(&o.runs, "runs", 5, "`how often` each reading is repeated")
	flag.StringVar(&o.only, "only", "", "measure the shapes alone whose name has this `text` in it")
	flag.StringVar(&o.results, "results", "", "`file` for all results, as JSON")
	read := flag.String("read", "", "be the process that reads once (internal)")
	endpoint := flag.String("endpoint", "", "etcd to be read (internal)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if *read != "" {
		err = readOnce(ctx, *read, *endpoint)
	} else {
		o.servers = strings.Split(*servers, ",")
		err = measure(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "rangestream:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

type options struct {
	servers []string
	runs    int
	only    string
	results string
}

func (o options) shapes() []shape {
	all := []shape{
		{5_000, 1000, 0}, {5_000, 1000, 250_000},
		{50_000, 1000, 0}, {50_000, 1000, 250_000},
		{300_000, 100, 0}, {300_000, 100, 250_000},
		{1_000, 100_000, 0}, {1_000, 500_000, 0},
	}
	return slices.DeleteFunc(all, func(s shape) bool { return !strings.Contains(s.String(), o.only) })
}

// measurement is one contender's readings of one shape out of one etcd.
type measurement struct {
	Etcd      string    `json:"etcd"`
	Shape     shape     `json:"shape"`
	Contender string    `json:"contender"`
	Readings  []reading `json:"readings"`
	// Refusal is what the server said that cannot be asked so.
	Refusal string `json:"refusal,omitempty"`
}

func measure(ctx context.Context, o options) (err error) {
	var all []measurement
	for _, shape := range o.shapes() {
		for _, named := range o.servers {
			name, binary, _ := strings.Cut(named, "=")
			fmt.Fprintf(os.Stderr, "etcd %s, %s\n", name, shape)
			found, err := measureShape(ctx, binary, shape, o.runs)
			if err != nil {
				return fmt.Errorf("measure etcd %s with %s: %w", name, shape, err)
			}
			for i := range found {
				found[i].Etcd = name
			}
			all = append(all, found...)
			printTable(os.Stdout, found)
		}
	}
	if o.results == "" {
		return nil
	}
	encoded, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(o.results, encoded, 0o644) //nolint:gosec // results are for everybody
}

// measureShape lets each contender read from a server that was started anew, so that what its memory grew by is the
// contender's doing.
func measureShape(ctx context.Context, binary string, shape shape, runs int) (found []measurement, err error) {
	folder, err := os.MkdirTemp("", "rangestream-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	server, err := startEtcd(binary, folder)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(fill(ctx, server.endpoint, shape), server.stop()); err != nil {
		return nil, err
	}
	for _, contender := range contenders {
		one := measurement{Shape: shape, Contender: contender.name}
		if err := one.repeat(ctx, binary, folder, runs); err != nil {
			return nil, err
		}
		found = append(found, one)
	}
	return found, nil
}

// enough ends the repetitions of slow readings.
const enough = 15 * time.Second

func (m *measurement) repeat(ctx context.Context, binary, folder string, runs int) (err error) {
	server, err := startEtcd(binary, folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	began := time.Now()
	for len(m.Readings) < runs && time.Since(began) < enough {
		one, err := server.readInProcess(ctx, m.Contender)
		if err != nil {
			return err
		}
		if m.Refusal = one.Refusal; m.Refusal != "" {
			return nil
		}
		m.Readings = append(m.Readings, one)
	}
	return nil
}
