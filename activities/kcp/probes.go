package kcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

const (
	// probeTimeout bounds one request of a probe: probes are repeated, and in the tenant's time away.
	probeTimeout = 2 * time.Second
	// checksInFlight bounds what a probe asks of one server at once.
	checksInFlight = 8
	// failuresTold bounds a probe's Detail.
	failuresTold = 5
)

// unanswered is a check's outcome where no answer came.
type unanswered struct{ error }

func isUnanswered(err error) bool {
	var none unanswered
	return errors.As(err, &none)
}

// other is the outcome of a check whose answer was not the wanted one.
func other(err error) error {
	told := errors.New(answer(err))
	if err != nil && statusCode(err) == 0 && !isAborted(err) {
		return unanswered{told}
	}
	return told
}

// check is one request of a probe. It gives nil for the wanted answer, else what came instead.
type check struct {
	of  string
	ask func(ctx context.Context, server connection) error
}

// ProbeServing asks every API server for the logical cluster and for a wildcard list.
func (s *Shard) ProbeServing(ctx context.Context, logicalCluster string) []activities.Probe {
	return s.servers.probe(ctx, serves(logicalCluster), servesWildcard)
}

// ProbeWildcard asks every API server for a wildcard list.
func (s *Shard) ProbeWildcard(ctx context.Context) []activities.Probe {
	return s.servers.probe(ctx, servesWildcard)
}

// ProbeCluster asks every API server for the logical cluster.
func (s *Shard) ProbeCluster(ctx context.Context, logicalCluster string) []activities.Probe {
	return s.servers.probe(ctx, serves(logicalCluster))
}

// ProbeFenced asks every API server for the logical cluster. Only the fence's own 403 will do:
// one for want of rights proves nothing.
func (s *Shard) ProbeFenced(ctx context.Context, logicalCluster string) []activities.Probe {
	return s.servers.probe(ctx, check{of: "logical cluster", ask: func(ctx context.Context, server connection) error {
		err := server.get(ctx, oneOf(logicalCluster, namespaces), nil, probeTimeout)
		if isInactive(err) {
			return nil
		}
		return other(err)
	}})
}

// ProbeResources asks every API server to list each bound resource, in the first version that it serves.
func (s *Shard) ProbeResources(ctx context.Context, logicalCluster string, resources []activities.BoundResource) []activities.Probe {
	checks := make([]check, 0, len(resources))
	for _, bound := range resources {
		resource := schema.GroupResource{Group: bound.Group, Resource: bound.Resource}
		checks = append(checks, check{of: resource.String(), ask: func(ctx context.Context, server connection) error {
			return server.listInAnyVersion(ctx, logicalCluster, resource)
		}})
	}
	return s.servers.probe(ctx, checks...)
}

// serves asks for what the fence closes.
func serves(logicalCluster string) check {
	return check{of: "logical cluster", ask: func(ctx context.Context, server connection) error {
		return server.list(ctx, logicalCluster, namespaces)
	}}
}

var servesWildcard = check{of: "wildcard list", ask: func(ctx context.Context, server connection) error {
	return server.list(ctx, wildcard, namespaces)
}}

func (c connection) list(ctx context.Context, logicalCluster string, resource schema.GroupVersionResource) error {
	if err := c.get(ctx, oneOf(logicalCluster, resource), nil, probeTimeout); err != nil {
		return other(err)
	}
	return nil
}

// listInAnyVersion finds the resource's version first: a binding does not name it.
func (c connection) listInAnyVersion(ctx context.Context, logicalCluster string, resource schema.GroupResource) error {
	versions, err := c.versions(ctx, logicalCluster, resource.Group)
	if err != nil {
		return other(err)
	}
	err = errors.New("no version is served")
	for _, version := range versions {
		listErr := c.get(ctx, oneOf(logicalCluster, resource.WithVersion(version)), nil, probeTimeout)
		if listErr == nil {
			return nil
		}
		err = other(listErr)
		if !errors.Is(listErr, activities.ErrNotFound) {
			break
		}
	}
	return err
}

func (c connection) versions(ctx context.Context, logicalCluster, group string) ([]string, error) {
	if group == "" {
		return []string{"v1"}, nil
	}
	var served metav1.APIGroup
	if err := c.get(ctx, query{path: groupPath(logicalCluster, group)}, &served, probeTimeout); err != nil {
		return nil, err
	}
	versions := make([]string, 0, len(served.Versions))
	for _, version := range served.Versions {
		versions = append(versions, version.Version)
	}
	return versions, nil
}

// probe asks all servers at once.
func (c connections) probe(ctx context.Context, checks ...check) []activities.Probe {
	probes := make([]activities.Probe, len(c))
	var running sync.WaitGroup
	for i, server := range c {
		running.Go(func() { probes[i] = server.probe(ctx, checks) })
	}
	running.Wait()
	return probes
}

func (c connection) probe(ctx context.Context, checks []check) activities.Probe {
	outcomes := make([]error, len(checks))
	var running errgroup.Group
	running.SetLimit(checksInFlight)
	for i, check := range checks {
		running.Go(func() error {
			if err := check.ask(ctx, c); err != nil {
				outcomes[i] = fmt.Errorf("%s: %w", check.of, err)
			}
			return nil
		})
	}
	_ = running.Wait() // the outcomes hold the errors
	return activities.Probe{
		Server:      c.server,
		OK:          errors.Join(outcomes...) == nil,
		Unreachable: slices.ContainsFunc(outcomes, isUnanswered),
		Detail:      detail(outcomes),
	}
}

// detail tells the first failures.
func detail(outcomes []error) string {
	var failures []string
	for _, err := range outcomes {
		if err != nil {
			failures = append(failures, err.Error())
		}
	}
	if more := len(failures) - failuresTold; more > 0 {
		failures = append(failures[:failuresTold], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(failures, "; ")
}
