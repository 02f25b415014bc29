package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/worker"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// answerPatience is how long a command waits for a worker's answer.
const answerPatience = 10 * time.Second

// clientOptions are what every command that talks to Temporal begins with.
type clientOptions struct {
	terminal
	temporal worker.TemporalConfig
}

func (o *clientOptions) addFlags(flags *pflag.FlagSet) { o.temporal.AddFlags(flags) }

// withTemporal connects, does the work and disconnects.
func (o *clientOptions) withTemporal(ctx context.Context, work func(temporal client.Client) error) error {
	temporal, err := o.dial(ctx, &o.temporal)
	if err != nil {
		return err
	}
	defer temporal.Close()
	err = work(temporal)
	if missing := (*serviceerror.NamespaceNotFound)(nil); errors.As(err, &missing) {
		return activities.Refuse(activities.InvalidInput, "find Temporal namespace %s: there is none: check --temporal-namespace", missing.Namespace)
	}
	return err
}

// findMove finds the move that a person means by a workflow ID or a logical cluster: the workflow of that ID,
// else of the usual ID, else the latest move whose logical cluster has that name.
func findMove(ctx context.Context, temporal client.Client, name string) (*workflowpb.WorkflowExecutionInfo, error) {
	for _, workflowID := range []string{name, workflows.WorkflowID(name)} {
		description, err := temporal.DescribeWorkflow(ctx, workflowID, "")
		if err == nil {
			return description.RawResponse.GetWorkflowExecutionInfo(), nil
		}
		if missing := (*serviceerror.NotFound)(nil); !errors.As(err, &missing) {
			return nil, fmt.Errorf("describe workflow %s: %w", workflowID, err)
		}
	}
	found, err := listMoves(ctx, temporal, fmt.Sprintf("%s = %s", workflows.LogicalClusterAttribute, quoted(name)), 1)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("find move %s: no workflow has this ID, and no logical cluster of this name was moved lately; the list command shows all", name)
	}
	return found[0], nil
}

// listMoves gives the latest moves that meet a condition, newest first, dry runs left out.
func listMoves(ctx context.Context, temporal client.Client, condition string, limit int) ([]*workflowpb.WorkflowExecutionInfo, error) {
	query := fmt.Sprintf("WorkflowType = %s AND WorkflowId NOT STARTS_WITH %s",
		quoted(workflows.MigrateLogicalClusterName), quoted(planWorkflowPrefix))
	if condition != "" {
		query += " AND " + condition
	}
	var found []*workflowpb.WorkflowExecutionInfo
	var nextPage []byte
	for {
		page, err := temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Query: query, PageSize: int32(min(limit, 1000)), NextPageToken: nextPage,
		})
		if err != nil {
			return nil, fmt.Errorf("list moves: %w", err)
		}
		found = append(found, page.GetExecutions()...)
		nextPage = page.GetNextPageToken()
		if len(nextPage) == 0 || len(found) >= limit {
			return found[:min(limit, len(found))], nil
		}
	}
}

// quoted makes a string literal of Temporal's query language.
func quoted(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(text) + "'"
}
