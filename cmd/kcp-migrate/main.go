// Command kcp-migrate moves logical clusters between kcp's shards: as the worker beside each shard, and as the
// command line that starts, follows and steers moves. It works as a kubectl plugin under the name kubectl-kcp_migrate.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// version is set by the linker.
var version = "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, newTerminal(os.Args[0]), os.Args[1:])
	stop()
	os.Exit(code)
}
