package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

const (
	// searchedMoves bounds how many running moves, and how many that are over, a search looks at.
	searchedMoves = 1000

	// Both tell the path, in the same words.
	resolveActivity    = "Resolve"
	findShardsActivity = "FindShards"
)

// findMove finds the move that a person means: the workflow of that ID, else the logical cluster's running move, else
// its latest. A logical cluster that is named by its path may have been moved under its name, and the other way round.
func findMove(ctx context.Context, temporal client.Client, name string) (*workflowpb.WorkflowExecutionInfo, error) {
	named, err := describeWorkflow(ctx, temporal, name)
	if err != nil || named != nil {
		return named, err
	}
	// Temporal lists a move a moment after it began: the usual workflow ID is looked up as well.
	usual, err := describeWorkflow(ctx, temporal, workflows.WorkflowID(name))
	if err != nil || usual.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return usual, err
	}
	search := search{temporal: temporal, name: name, paths: map[string]string{}}
	for _, condition := range []string{"ExecutionStatus = 'Running'", "ExecutionStatus != 'Running'"} {
		found, err := search.latest(ctx, condition)
		if err != nil || found != nil {
			return found, err
		}
	}
	if usual != nil {
		return usual, nil
	}
	return nil, fmt.Errorf("find move %s: no workflow has this ID, and no logical cluster of this name or path was moved lately; the list command shows all", name)
}

// describeWorkflow gives nil where there is none, and an error where it is something else than a move.
func describeWorkflow(ctx context.Context, temporal client.Client, workflowID string) (*workflowpb.WorkflowExecutionInfo, error) {
	description, err := temporal.DescribeWorkflow(ctx, workflowID, "")
	if errors.As(err, new(*serviceerror.NotFound)) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("describe workflow %s: %w", workflowID, err)
	}
	info := description.RawResponse.GetWorkflowExecutionInfo()
	switch name := info.GetType().GetName(); name {
	case workflows.MigrateLogicalClusterName, workflows.RecoverLogicalClusterName:
	default:
		return nil, fmt.Errorf("find move %s: workflow %s is of type %s and no move; the list command shows all moves", workflowID, workflowID, name)
	}
	return info, nil
}

// search looks for moves of the logical cluster of one name or path.
type search struct {
	temporal client.Client
	name     string
	// paths are those of the logical clusters that were met, by name.
	paths map[string]string
}

// latest is the latest move that meets the condition and is of the logical cluster, nil where there is none.
func (s *search) latest(ctx context.Context, condition string) (*workflowpb.WorkflowExecutionInfo, error) {
	infos, err := listMoves(ctx, s.temporal, condition, searchedMoves)
	if err != nil {
		return nil, err
	}
	for _, info := range infos {
		found, err := readMove(info)
		if err != nil {
			return nil, err
		}
		meant, err := s.means(ctx, found)
		if err != nil {
			return nil, err
		}
		if meant {
			return info, nil
		}
	}
	return nil, nil
}

func (s *search) means(ctx context.Context, m move) (bool, error) {
	if m.WorkflowID == workflows.WorkflowID(s.name) || m.LogicalCluster == s.name {
		return true, nil
	}
	if m.LogicalCluster == "" || !strings.Contains(s.name, ":") {
		return false, nil
	}
	path, known := s.paths[m.LogicalCluster]
	if !known {
		var err error
		if path, err = pathOf(ctx, s.temporal, m); err != nil {
			return false, err
		}
		s.paths[m.LogicalCluster] = path
	}
	return path == s.name, nil
}

// pathOf reads the workspace path that a move has found from its history: unlike the status, that needs no worker,
// and unlike the result, a move that was terminated has it too. It is empty where the move has found none.
func pathOf(ctx context.Context, temporal client.Client, m move) (string, error) {
	history := temporal.GetWorkflowHistory(ctx, m.WorkflowID, m.RunID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	scheduled := map[int64]bool{}
	for history.HasNext() {
		event, err := history.Next()
		if err != nil {
			return "", fmt.Errorf("read history of workflow %s: %w", m.WorkflowID, err)
		}
		switch event.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName() {
		case resolveActivity, findShardsActivity:
			scheduled[event.GetEventId()] = true
		}
		completed := event.GetActivityTaskCompletedEventAttributes()
		if completed == nil || !scheduled[completed.GetScheduledEventId()] {
			continue
		}
		var resolved activities.ResolveResult
		if err := converter.GetDefaultDataConverter().FromPayloads(completed.GetResult(), &resolved); err != nil {
			return "", fmt.Errorf("read where workflow %s found the logical cluster: %w", m.WorkflowID, err)
		}
		return resolved.Path, nil
	}
	return "", nil
}
