// devstack runs a whole installation in one process, for trying and testing: a real
// Temporal server with its web UI, two real etcds filled with what two shards of a real
// kcp held, and a stand-in for those shards' API servers and for kcp's front-proxy.
// With --kcp it starts a real two-shard kcp instead.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"syscall"

	"github.com/gofrs/flock"
	"github.com/spf13/pflag"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/installation"
)

const (
	exitDone  = 0
	exitError = 1
	exitUsage = 2
)

// lockName is the file by which a state folder is known, and locked.
const lockName = "devstack.lock"

// garbagePercent lets the heap grow to four times what lives before it is collected: Temporal and the shards' etcds share
// this process and its cores with all of their clients, and the collector's time would be measured as a tenant's time away.
const garbagePercent = 300

func main() {
	debug.SetGCPercent(garbagePercent)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && parts[args[0]] != nil {
		return runPart(ctx, args[0], args[1:], stderr)
	}
	flags, err := parseFlags(args, stderr)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return exitDone
	case err != nil:
		fmt.Fprintln(stderr, "devstack:", err)
		return exitUsage
	}
	if flags.exitWithParent {
		var stop context.CancelFunc
		ctx, stop = withParent(ctx)
		defer stop()
	}
	if err := serve(ctx, flags, stdout); err != nil {
		fmt.Fprintln(stderr, "devstack:", err)
		return exitError
	}
	return exitDone
}

// serve runs the installation until the context ends, which is no error, or a part dies.
func serve(ctx context.Context, flags flags, stdout io.Writer) (err error) {
	options, err := flags.options()
	if err != nil {
		return err
	}
	release, err := claimFolder(&options, flags)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()

	running, err := installation.Start(ctx, options)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer func() { err = errors.Join(err, running.Stop()) }()
	if !flags.quiet {
		if err := running.State.Announce(stdout); err != nil {
			return err
		}
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-running.Failed():
		return err
	}
}

// claimFolder makes the state folder and keeps a second devstack out of it. A temporary
// one is removed on release.
func claimFolder(options *installation.Options, flags flags) (release func() error, err error) {
	if options.Folder, err = makeFolder(flags.folder); err != nil {
		return nil, fmt.Errorf("make state folder: %w", err)
	}
	lock := flock.New(filepath.Join(options.Folder, lockName))
	locked, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock folder %s: %w", options.Folder, err)
	}
	if !locked {
		return nil, fmt.Errorf("lock folder %s: another devstack uses it", options.Folder)
	}
	return func() error {
		err := lock.Unlock()
		if flags.folder == "" && !flags.keep {
			err = errors.Join(err, os.RemoveAll(options.Folder))
		}
		return err
	}, nil
}

// makeFolder gives a new temporary folder, or the one that is asked for. That one is
// going to be cleared: it must be empty, or a devstack's.
func makeFolder(folder string) (string, error) {
	if folder == "" {
		return os.MkdirTemp("", "devstack-")
	}
	folder, err := filepath.Abs(folder)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	content, err := os.ReadDir(folder)
	if err != nil {
		return "", err
	}
	ours := slices.ContainsFunc(content, func(entry os.DirEntry) bool { return entry.Name() == lockName })
	if len(content) > 0 && !ours {
		return "", fmt.Errorf("%s is not empty and was not made by devstack", folder)
	}
	return folder, nil
}
