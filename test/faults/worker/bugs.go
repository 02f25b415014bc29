package main

import (
	"fmt"

	"github.com/kcp-migrate/kcp-migrate/worker"
)

// findBug gives what puts a bug into a worker; none for no name.
func findBug(name string, config *worker.Config) ([]worker.Option, error) {
	if name == "" {
		return nil, nil
	}
	return nil, fmt.Errorf("unknown bug %q", name)
}
