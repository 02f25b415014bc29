package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"go.temporal.io/sdk/client"

	"github.com/kcp-migrate/kcp-migrate/worker"
)

// terminal is what commands have of the outside world; tests bring their own.
type terminal struct {
	// program is how a person calls it.
	program   string
	out       io.Writer
	err       io.Writer
	lookupEnv func(string) (string, bool)
	dial      func(ctx context.Context, config *worker.TemporalConfig) (client.Client, error)
}

func newTerminal(executable string) terminal {
	return terminal{
		program:   programName(executable),
		out:       os.Stdout,
		err:       os.Stderr,
		lookupEnv: os.LookupEnv,
		dial: func(ctx context.Context, config *worker.TemporalConfig) (client.Client, error) {
			// Whatever goes wrong is returned to the command; the client's own log would only stand beside it.
			return config.Dial(ctx, slog.New(slog.DiscardHandler), client.MetricsNopHandler)
		},
	}
}

// programName turns the name that kubectl finds a plugin by into what its user types.
func programName(executable string) string {
	name := strings.TrimSuffix(filepath.Base(executable), ".exe")
	if plugin, found := strings.CutPrefix(name, "kubectl-"); found {
		return "kubectl " + strings.ReplaceAll(plugin, "_", "-")
	}
	return name
}
