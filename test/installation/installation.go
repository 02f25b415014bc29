// Package installation gives tests and the demo a whole installation to work on: bin/devstack as a
// process, a worker process per shard, tenants' clients at the front door, and exports of the shards' etcds.
package installation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// startDeadline bounds the start of devstack: seconds when simulated, about a minute with a real kcp on two cores.
const startDeadline = 4 * time.Minute

// Options says what to start.
type Options struct {
	// BinDir holds the devstack and kcp-migrate binaries; "" means $KCP_MIGRATE_BIN_DIR.
	BinDir string
	// Dir is where the logs go, and devstack's state into a folder of it; it must exist.
	Dir string
	// Entries fattens root:consumer by so many ConfigMaps of 1 kB.
	Entries int
	// KCP starts a real kcp.
	KCP bool
	// FixedPorts takes the usual ports, for a person to find.
	FixedPorts bool
	// Extra are further devstack flags.
	Extra []string
}

// Installation is a running devstack and the processes started beside it.
type Installation struct {
	State

	logs     string
	binDir   string
	devstack *Process
	beside   []*Process // workers and further API servers
}

// Start starts devstack and returns when everything in it serves. Stop it even after an error of a later call.
func Start(ctx context.Context, options Options) (*Installation, error) {
	binDir, err := findBinaries(options.BinDir)
	if err != nil {
		return nil, err
	}
	devstack, err := StartProcess(filepath.Join(options.Dir, "devstack.log"), filepath.Join(binDir, "devstack"), options.flags()...)
	if err != nil {
		return nil, err
	}
	installation := &Installation{logs: options.Dir, binDir: binDir, devstack: devstack}
	ctx, cancel := context.WithTimeout(ctx, startDeadline)
	defer cancel()
	installation.State, err = awaitState(ctx, filepath.Join(options.stateDir(), "devstack.json"), devstack)
	if err != nil {
		return nil, errors.Join(err, devstack.Stop())
	}
	return installation, nil
}

// stateDir is devstack's alone: it refuses a folder that holds anything else.
func (o Options) stateDir() string { return filepath.Join(o.Dir, "devstack") }

func (o Options) flags() []string {
	flags := []string{"--dir", o.stateDir(), "--exit-with-parent", "--entries", strconv.Itoa(o.Entries)}
	if !o.FixedPorts {
		flags = append(flags, "--free-ports")
	}
	if o.KCP {
		flags = append(flags, "--kcp")
	}
	return append(flags, o.Extra...)
}

// Stop stops what was started beside devstack, then devstack.
func (i *Installation) Stop() error {
	var failures []error
	for _, process := range i.beside {
		failures = append(failures, process.Stop())
	}
	return errors.Join(append(failures, i.devstack.Stop())...)
}

// Done is closed when devstack has ended.
func (i *Installation) Done() <-chan struct{} { return i.devstack.Done() }

func findBinaries(binDir string) (string, error) {
	if binDir == "" {
		binDir = os.Getenv("KCP_MIGRATE_BIN_DIR")
	}
	binDir, err := filepath.Abs(binDir)
	if err != nil {
		return "", fmt.Errorf("find binaries: %w", err)
	}
	for _, name := range []string{"devstack", "kcp-migrate"} {
		if _, err := os.Stat(filepath.Join(binDir, name)); err != nil {
			return "", fmt.Errorf("find binary %s (run `make build` and set KCP_MIGRATE_BIN_DIR): %w", name, err)
		}
	}
	return binDir, nil
}
