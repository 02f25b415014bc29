package main

import (
	"github.com/spf13/cobra"

	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// NewCmdApprove makes the approve command.
func NewCmdApprove(term terminal) *cobra.Command {
	return newCmdUpdate(term, workflows.ApproveUpdate, "is approved",
		"Let a move that waits for approval fence the tenant",
		"Let a move go on that was started with --require-approval: it fences the tenant next. Its status shows the plan.")
}
