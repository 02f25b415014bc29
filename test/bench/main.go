// Command bench measures how fast a logical cluster moves, beside what kcp's own migration does and beside the fastest that two
// etcds can do at all, and holds the figures against limits. See docs/benchmarks/README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
)

// workerCommand makes this program a contender's worker process.
const workerCommand = "worker"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == workerCommand {
		exitOn(work(context.WithoutCancel(ctx), os.Stdin, os.Stdout))
		return
	}
	var options options
	options.addFlags(pflag.CommandLine)
	pflag.Parse()
	ok, err := run(ctx, options)
	exitOn(err)
	if !ok {
		os.Exit(1)
	}
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

type options struct {
	binDir      string
	out         string
	quick       bool
	repetitions int
	shrink      int
	parts       []string
	profiles    string
}

// The parts of a run.
const (
	copiesPart    = "copies"
	memoryPart    = "memory"
	neighbourPart = "neighbour"
	journeysPart  = "journeys"
)

func (o *options) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.binDir, "bin-dir", "bin", "folder of the devstack and kcp-migrate binaries")
	flags.StringVar(&o.out, "out", "docs/benchmarks", "folder for the results and plots")
	flags.BoolVar(&o.quick, "quick", false, "measure less, in about five minutes")
	flags.IntVar(&o.repetitions, "repetitions", 0, "how often each contender plays each shape (default 5, quick 2)")
	flags.IntVar(&o.shrink, "shrink", 1, "divide the sizes of all tenants by this, to try the bench itself; the figures mean nothing then")
	flags.StringVar(&o.profiles, "profiles", "", "existing folder for CPU profiles of the workers, of each contender the last repetition's")
	flags.StringSliceVar(&o.parts, "parts", []string{copiesPart, memoryPart, neighbourPart, journeysPart}, "what to measure")
}

// run measures, reports, and tells whether no bar is missed.
func run(ctx context.Context, options options) (ok bool, err error) {
	plan, err := newPlan(options)
	if err != nil {
		return false, err
	}
	folder, err := os.MkdirTemp("", "kcp-migrate-bench-")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	results, err := plan.measure(ctx, options.binDir, folder)
	if err != nil {
		return false, err
	}
	results.Summaries = summarize(results.Measurements)
	results.Bars = judge(results)
	if err := results.save(options.out); err != nil {
		return false, err
	}
	if err := results.print(os.Stdout); err != nil {
		return false, err
	}
	return writeBars(os.Stdout, results.Bars), nil
}
