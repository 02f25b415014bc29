package worker

import (
	"context"
	"errors"
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// runs tells activities of the workflows of this worker's namespace.
type runs struct{ temporal client.Client }

var _ activities.Runs = runs{}

// State is that of the latest run: one that was reset goes on as another run, and under the old one's claim.
func (r runs) State(ctx context.Context, workflowID string) (activities.RunState, error) {
	description, err := r.temporal.DescribeWorkflow(ctx, workflowID, "")
	if errors.As(err, new(*serviceerror.NotFound)) {
		return activities.RunState{}, fmt.Errorf("describe workflow %s: %w", workflowID, activities.ErrNotFound)
	}
	if err != nil {
		return activities.RunState{}, fmt.Errorf("describe workflow %s: %w", workflowID, err)
	}
	state := description.RawResponse.GetWorkflowExecutionInfo().GetStatus()
	return activities.RunState{Name: state.String(), Running: state == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING}, nil
}
