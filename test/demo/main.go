// Command demo moves a tenant of a local installation to another shard and back, with clients at work on
// it all the time, and proves from exports of both etcds that nothing was lost and nobody else touched.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var options options
	options.addFlags(pflag.CommandLine)
	pflag.Parse()
	if err := run(ctx, options); err != nil {
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		os.Exit(1)
	}
}

type options struct {
	binDir      string
	entries     int
	kcp         bool
	keepRunning bool
}

func (o *options) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.binDir, "bin-dir", "bin", "folder of the devstack and kcp-migrate binaries")
	flags.IntVar(&o.entries, "entries", 0, "fatten root:consumer by so many ConfigMaps of 1 kB")
	flags.BoolVar(&o.kcp, "kcp", false, "run on a real kcp, its binaries on PATH or in $KCP_BIN_DIR")
	flags.BoolVar(&o.keepRunning, "keep-running", false, "move nothing, keep everything running and say what to try")
}
