// Command worker is the product's worker with failpoints: at each it tells the fault bench where it is and waits to be
// told to go on, or is killed there. With --break it is a worker with a bug that the bench must catch.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/test/faults/point"
	"github.com/kcp-migrate/kcp-migrate/worker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "worker: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var config worker.Config
	var control, broken string
	flags := pflag.NewFlagSet("worker", pflag.ContinueOnError)
	config.AddFlags(flags)
	flags.StringVar(&control, "control", "", "`URL` at which the bench hears of failpoints")
	flags.StringVar(&broken, "break", "", "the `bug` to work with")
	if err := flags.Parse(args); err != nil {
		return err
	}
	noEnvironment := func(string) (string, bool) { return "", false }
	if err := worker.Complete(flags, noEnvironment); err != nil {
		return err
	}
	if err := config.Validate(); err != nil {
		return err
	}
	bug, err := findBug(point.Bug(broken), &config)
	if err != nil {
		return err
	}
	options := append(bug,
		worker.WithInterceptors(&failpoints{control: control, shard: config.Shard}),
		worker.WithStore(func(store activities.Store) activities.Store { return watchedStore{store} }))
	return worker.Run(ctx, &config, os.Stderr, options...)
}
