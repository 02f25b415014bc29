// Command faults kills, freezes and cuts off every part of an installation in every step of a move, with clients at work on
// the tenant and its neighbours, and holds what is left against what the product guarantees.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var options options
	options.addFlags(pflag.CommandLine)
	pflag.Parse()
	// client-go tells of every watch that the fence ends.
	klog.SetLogger(logr.Discard())
	if err := run(ctx, options); err != nil {
		fmt.Fprintf(os.Stderr, "faults: %v\n", err)
		os.Exit(1)
	}
}

type options struct {
	binDir string
	seed   int64
	all    bool
	random int
	only   []int
	bug    string
}

func (o *options) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.binDir, "bin-dir", "bin", "folder of the devstack, kcp-migrate and faults-worker binaries")
	flags.Int64Var(&o.seed, "seed", 0, "repeat the run of this seed (default a new one)")
	flags.BoolVar(&o.all, "all", false, "play the whole matrix, which takes hours, instead of a choice")
	flags.IntVar(&o.random, "random", 0, "play so many random schedules instead of the matrix")
	flags.IntSliceVar(&o.only, "only", nil, "play the cases of these numbers alone")
	flags.StringVar(&o.bug, "break", "", "have the workers work with this bug, which must be caught; all for one after the other")
}

var (
	// errViolations is of a bench that found what must not be.
	errViolations = errors.New("guarantees were violated")
	// errBlind is of a bench that does not see what it must.
	errBlind = errors.New("the bench did not catch a bug, or found one where there is none")
)

func say(format string, arguments ...any) {
	fmt.Printf(format+"\n", arguments...)
}
