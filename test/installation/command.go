package installation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/kcp-migrate/kcp-migrate/worker"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// Outcome is how a run of the command line ended.
type Outcome struct {
	// ExitCode as `kcp-migrate --help` lists them.
	ExitCode int
	Stdout   []byte
}

// Run runs kcp-migrate against the installation's Temporal; progress receives its standard error.
func (i *Installation) Run(ctx context.Context, progress io.Writer, arguments ...string) (Outcome, error) {
	command := exec.CommandContext(ctx, filepath.Join(i.binDir, "kcp-migrate"), arguments...)
	// A flag counts more.
	command.Env = append(os.Environ(), worker.EnvironmentVariable("temporal-address")+"="+i.TemporalAddress)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	var stdout bytes.Buffer
	command.Stdout, command.Stderr = &stdout, progress
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return Outcome{}, fmt.Errorf("run kcp-migrate %s: %w", arguments[0], err)
	}
	return Outcome{ExitCode: command.ProcessState.ExitCode(), Stdout: stdout.Bytes()}, nil
}

// Move moves a logical cluster with `kcp-migrate start --wait` and gives its result.
func (i *Installation) Move(ctx context.Context, progress io.Writer, path, destinationShard string, flags ...string) (workflows.Result, error) {
	arguments := append([]string{"start", path, destinationShard, "--wait", "-o", "json"}, flags...)
	outcome, err := i.Run(ctx, progress, arguments...)
	if err != nil {
		return workflows.Result{}, err
	}
	if outcome.ExitCode != 0 {
		return workflows.Result{}, fmt.Errorf("move %s to shard %s: exit code %d: %s", path, destinationShard, outcome.ExitCode, outcome.Stdout)
	}
	var result workflows.Result
	if err := json.Unmarshal(outcome.Stdout, &result); err != nil {
		return workflows.Result{}, fmt.Errorf("read result of moving %s: %w", path, err)
	}
	return result, nil
}
