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
	"go.temporal.io/sdk/temporal"

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

// outOfTime reports whether err only says that ctx's time is up, which Temporal may do a moment before ctx does.
func outOfTime(ctx context.Context, err error) bool {
	if err == nil || errors.Is(ctx.Err(), context.Canceled) || errors.As(err, new(*temporal.WorkflowExecutionError)) {
		return false
	}
	return ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) ||
		errors.As(err, new(*serviceerror.DeadlineExceeded)) || errors.As(err, new(*serviceerror.Canceled)) ||
		errors.As(err, new(*client.WorkflowUpdateServiceTimeoutOrCanceledError))
}

// listMoves gives the latest moves and recoveries that meet a condition, as Temporal orders them: the running ones first,
// then those that ended last. Dry runs are left out.
func listMoves(ctx context.Context, temporal client.Client, condition string, limit int) ([]*workflowpb.WorkflowExecutionInfo, error) {
	query := fmt.Sprintf("WorkflowType IN (%s, %s) AND WorkflowId NOT STARTS_WITH %s",
		quoted(workflows.MigrateLogicalClusterName), quoted(workflows.RecoverLogicalClusterName), quoted(planWorkflowPrefix))
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
