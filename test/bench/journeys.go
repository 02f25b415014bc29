package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcp-migrate/kcp-migrate/test/installation"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// journey is one tenant's move through the workflow, in a whole installation.
type journey struct {
	// Entries is how large the tenant was meant to be, Moved what the move counted: every workspace has some of its own.
	Entries    int   `json:"entries"`
	Moved      int64 `json:"moved"`
	Neighbours int   `json:"neighbours"`
	// AtOnce is how many tenants moved at the same time.
	AtOnce      int    `json:"atOnce"`
	Destination string `json:"destination"`
	// ClientSeconds is for how long a client was not served that asked through the front door every 10 ms.
	ClientSeconds float64 `json:"clientSeconds"`
	// WorkflowSeconds is the same as the workflow saw it.
	WorkflowSeconds float64 `json:"workflowSeconds"`
	// Steps are the workflow's, all of them.
	Steps map[string]float64 `json:"stepSeconds"`
	// Away is where the time between fence and serving went: in which activities, and between them.
	Away map[string]float64 `json:"awaySeconds"`
}

// trip says which journeys to make.
type trip struct {
	entries     int
	atOnce      int
	repetitions int // there and back each
}

// The two shards of an installation.
const originShard, otherShard = "root", "shard-1"

// stack is a whole installation whose etcds are processes of their own.
type stack struct {
	*installation.Installation
	servers    *pair
	temporal   client.Client
	neighbours int
	created    int
}

func startStack(ctx context.Context, binDir, folder string) (_ *stack, err error) {
	servers, err := newPair(ctx, binDir, folder)
	if err != nil {
		return nil, err
	}
	s := &stack{servers: servers}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	s.Installation, err = installation.Start(ctx, installation.Options{
		BinDir: binDir, Dir: folder, Extra: []string{
			"--etcd", originShard + "=" + servers.origin.endpoint, "--etcd", otherShard + "=" + servers.destination.endpoint,
		},
	})
	if err != nil {
		return s, err
	}
	for _, shard := range []string{originShard, otherShard} {
		if _, err := s.StartWorker(ctx, shard, "--brake=false"); err != nil {
			return s, err
		}
	}
	s.temporal, err = s.Temporal(ctx)
	return s, err
}

func (s *stack) close() error {
	if s.temporal != nil {
		s.temporal.Close()
	}
	var err error
	if s.Installation != nil {
		err = s.Stop()
	}
	return errors.Join(err, s.servers.stop())
}

// crowd brings neighbours into both etcds: ConfigMaps, which the stand-in's API servers can read.
func (s *stack) crowd(ctx context.Context, count int) error {
	s.neighbours = count
	content := func(yield func(string, string) bool) {
		for i := range count {
			name := fmt.Sprintf("%c-neighbour-%04d", 'a'+i/neighbourKeys%26, i/neighbourKeys)
			if !yield(configMapContent(name, i)) {
				return
			}
		}
	}
	return s.servers.eachClient(ctx, func(ctx context.Context, etcd *clientv3.Client) error { return fill(ctx, etcd, content) })
}

// travel makes new tenants and moves them there and back, all at once.
func (s *stack) travel(ctx context.Context, trip trip) ([]journey, error) {
	paths := make([]string, trip.atOnce)
	for i := range paths {
		var err error
		if paths[i], err = s.createTenant(ctx, trip.entries); err != nil {
			return nil, fmt.Errorf("create tenant of %d entries: %w", trip.entries, err)
		}
	}
	var all []journey
	for range trip.repetitions {
		for _, destination := range []string{otherShard, originShard} {
			journeys, err := s.move(ctx, paths, destination)
			if err != nil {
				return nil, err
			}
			for _, one := range journeys {
				one.Entries, one.AtOnce, one.Neighbours, one.Destination = trip.entries, trip.atOnce, s.neighbours, destination
				all = append(all, one)
			}
			fmt.Fprintf(os.Stderr, "%s  %2d tenants of %d entries to %s: not served for %.2f s\n",
				time.Now().Format(time.TimeOnly), trip.atOnce, trip.entries, destination, slowest(journeys))
		}
	}
	return all, nil
}

func slowest(journeys []journey) float64 {
	most := 0.0
	for _, one := range journeys {
		most = max(most, one.ClientSeconds)
	}
	return most
}

// createTenant makes a workspace on the root shard and writes its entries to etcd as kcp stores them, by far faster than
// through an API.
func (s *stack) createTenant(ctx context.Context, entries int) (path string, err error) {
	s.created++
	name := fmt.Sprintf("bench-%d", s.created)
	path = "root:" + name
	if err := s.CreateWorkspace(ctx, path, 1); err != nil {
		return "", err
	}
	workspaces, err := s.Workspaces()
	if err != nil {
		return "", err
	}
	workspace, err := workspaces.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	logicalCluster, _, err := unstructured.NestedString(workspace.Object, "spec", "cluster")
	if err != nil {
		return "", err
	}
	return path, s.servers.origin.with(ctx, func(ctx context.Context, etcd *clientv3.Client) error {
		return fill(ctx, etcd, func(yield func(string, string) bool) {
			for i := range entries {
				if !yield(configMapContent(logicalCluster, i)) {
					return
				}
			}
		})
	})
}

func (s *stack) move(ctx context.Context, paths []string, destination string) ([]journey, error) {
	journeys := make([]journey, len(paths))
	group, ctx := errgroup.WithContext(ctx)
	for i, path := range paths {
		group.Go(func() (err error) {
			if journeys[i], err = s.moveOne(ctx, path, destination); err != nil {
				return fmt.Errorf("move %s to %s: %w", path, destination, err)
			}
			return nil
		})
	}
	return journeys, group.Wait()
}

func (s *stack) moveOne(ctx context.Context, path, destination string) (journey, error) {
	poller, err := s.StartPoller(ctx, path)
	if err != nil {
		return journey{}, err
	}
	id := workflows.WorkflowID(strings.ReplaceAll(path, ":", "-"))
	run, err := s.temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: workflows.TaskQueue},
		workflows.MigrateLogicalClusterName, workflows.Input{LogicalCluster: path, DestinationShard: destination})
	if err != nil {
		poller.Stop()
		return journey{}, err
	}
	var result workflows.Result
	err = run.Get(ctx, &result)
	seen := poller.Stop()
	if err != nil {
		return journey{}, err
	}
	runs, err := s.activityRuns(ctx, run.GetID(), run.GetRunID())
	if err != nil {
		return journey{}, err
	}
	one := journey{
		Moved: result.Entries, ClientSeconds: seen.Total.Seconds(), WorkflowSeconds: time.Duration(result.TimeAway).Seconds(),
		Steps: map[string]float64{}, Away: breakDown(runs),
	}
	for _, step := range result.Steps {
		one.Steps[step.Name] += time.Duration(step.Took).Seconds()
	}
	return one, nil
}

// measureJourneys starts an installation, makes the trips in their order, and one more among neighbours.
func measureJourneys(ctx context.Context, binDir, folder string, trips []trip, crowdedTrip *trip, neighbours int) (journeys []journey, err error) {
	folder = filepath.Join(folder, "installation")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return nil, err
	}
	stack, err := startStack(ctx, binDir, folder)
	if err != nil {
		return nil, fmt.Errorf("start installation: %w", err)
	}
	defer func() { err = errors.Join(err, stack.close()) }()
	for _, trip := range trips {
		made, err := stack.travel(ctx, trip)
		if err != nil {
			return nil, err
		}
		journeys = append(journeys, made...)
	}
	if crowdedTrip == nil {
		return journeys, nil
	}
	if err := stack.crowd(ctx, neighbours); err != nil {
		return nil, fmt.Errorf("bring neighbours: %w", err)
	}
	made, err := stack.travel(ctx, *crowdedTrip)
	return append(journeys, made...), err
}
