package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// move is one workflow as Temporal lists it.
type move struct {
	WorkflowID       string          `json:"workflowID"`
	RunID            string          `json:"runID"`
	State            string          `json:"state"`
	LogicalCluster   string          `json:"logicalCluster"`
	OriginShard      string          `json:"originShard,omitempty"`
	DestinationShard string          `json:"destinationShard,omitempty"`
	Phase            workflows.Phase `json:"phase,omitempty"`
	StartedAt        time.Time       `json:"startedAt"`
	EndedAt          *time.Time      `json:"endedAt,omitempty"`
}

func readMove(info *workflowpb.WorkflowExecutionInfo) (move, error) {
	m := move{
		WorkflowID: info.GetExecution().GetWorkflowId(),
		RunID:      info.GetExecution().GetRunId(),
		State:      info.GetStatus().String(),
		StartedAt:  info.GetStartTime().AsTime(),
	}
	if info.GetCloseTime() != nil {
		endedAt := info.GetCloseTime().AsTime()
		m.EndedAt = &endedAt
	}
	attributes := info.GetSearchAttributes().GetIndexedFields()
	for attribute, value := range map[string]any{
		workflows.LogicalClusterAttribute:   &m.LogicalCluster,
		workflows.OriginShardAttribute:      &m.OriginShard,
		workflows.DestinationShardAttribute: &m.DestinationShard,
		workflows.PhaseAttribute:            &m.Phase,
	} {
		if err := readAttribute(attributes[attribute], value); err != nil {
			return move{}, fmt.Errorf("read search attribute %s of %s: %w", attribute, m.WorkflowID, err)
		}
	}
	return m, nil
}

// readAttribute leaves value alone where a move has not come so far as to set the attribute.
func readAttribute(payload *commonpb.Payload, value any) error {
	if payload == nil {
		return nil
	}
	return converter.GetDefaultDataConverter().FromPayload(payload, value)
}

func (m move) running() bool {
	return m.State == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING.String()
}

// took is how long the move has been under way, or was.
func (m move) took(now time.Time) time.Duration {
	if m.EndedAt != nil {
		now = *m.EndedAt
	}
	return now.Sub(m.StartedAt)
}

// movement is all that can be found out about one move.
type movement struct {
	WorkflowID string     `json:"workflowID"`
	RunID      string     `json:"runID"`
	State      string     `json:"state"`
	EndedAt    *time.Time `json:"endedAt,omitempty"`
	// Failure is why it did not reach its end.
	Failure string `json:"failure,omitempty"`
	// WaitsFor says what running activities wait for, and why those failed that are tried again.
	WaitsFor []string `json:"waitsFor,omitempty"`
	// Copied is how far the running copy has come.
	Copied *activities.CopyProgress `json:"copied,omitempty"`
	workflows.Status
}

// describeMove asks the running workflow itself. Of one that is over it reads the result, which needs no worker.
func describeMove(ctx context.Context, temporal client.Client, m move) (movement, error) {
	detail := movement{WorkflowID: m.WorkflowID, RunID: m.RunID, State: m.State, EndedAt: m.EndedAt}
	if m.running() {
		now, err := lookAt(ctx, temporal, m.WorkflowID, m.RunID)
		if err != nil {
			return movement{}, fmt.Errorf("%w: is there a worker?", err)
		}
		detail.Status, detail.WaitsFor, detail.Copied = now.Status, now.WaitsFor, now.Copied
		return detail, nil
	}
	detail.Status = workflows.Status{StartedAt: m.StartedAt, Result: workflows.Result{
		LogicalCluster: m.LogicalCluster, OriginShard: m.OriginShard, DestinationShard: m.DestinationShard, Phase: m.Phase,
	}}
	var result workflows.Result
	if err := temporal.GetWorkflow(ctx, m.WorkflowID, m.RunID).Get(ctx, &result); err != nil {
		if ctx.Err() != nil {
			return movement{}, ctx.Err()
		}
		failure := newMoveError(err)
		detail.Failure, result = failure.Error(), failure.result
	}
	if result.LogicalCluster != "" {
		detail.Result = result
	}
	return detail, nil
}

// orders are the commands that the move would obey now.
func (d *movement) orders() []string {
	undoing := d.Aborting || strings.HasPrefix(d.Step, "undo")
	if d.State != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING.String() || d.Committed || undoing {
		return nil
	}
	var orders []string
	if d.WaitsForApproval {
		orders = append(orders, workflows.ApproveUpdate)
	}
	if d.Paused {
		orders = append(orders, workflows.ResumeUpdate)
	} else if !d.Fenced {
		orders = append(orders, workflows.PauseUpdate)
	}
	return append(orders, workflows.AbortUpdate)
}

// trouble is what a move advises beyond naming the commands that it would obey: those, the abort command always among
// them, are shown with the program's own name instead.
func trouble(advice string) string {
	if strings.Contains(advice, "`kcp-migrate "+workflows.AbortUpdate+" ") {
		return ""
	}
	return advice
}

// print names program in the commands that a person may type.
func (d *movement) print(out *tabwriter.Writer, program string) {
	property(out, "Workflow", d.WorkflowID)
	property(out, "State", d.State)
	property(out, "Failure", d.Failure)
	property(out, "Step", d.Step)
	property(out, "Started", d.StartedAt.UTC().Format(time.RFC3339))
	if d.Fenced && d.FencedAt != nil {
		property(out, "Fenced", "since "+d.FencedAt.UTC().Format(time.RFC3339)+", the tenant is away")
	}
	if d.Committed && d.State == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING.String() {
		property(out, "Committed", "yes, from here on it only goes forward")
	}
	if d.Paused {
		property(out, "Paused", "yes, until it is resumed")
	}
	if d.WaitsForApproval {
		property(out, "Waits", "for approval")
	}
	if d.Aborting {
		property(out, "Aborting", "yes")
	}
	property(out, "Advice", trouble(d.Advice))
	if d.Copied != nil {
		property(out, "Copied", fmt.Sprintf("%s entries (%s) so far", countText(d.Copied.Entries), bytesText(d.Copied.Bytes)))
	}
	printResult(out, &d.Result)
	list(out, "Waits for", d.WaitsFor)
	var commands []string
	for _, order := range d.orders() {
		commands = append(commands, fmt.Sprintf("%s %s %s", program, order, d.WorkflowID))
	}
	list(out, "You can", commands)
}
