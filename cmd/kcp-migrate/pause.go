package main

import (
	"github.com/spf13/cobra"

	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// NewCmdPause makes the pause command.
func NewCmdPause(term terminal) *cobra.Command {
	return newCmdUpdate(term, workflows.PauseUpdate, "is paused",
		"Hold a move before it fences the tenant",
		`Hold a move before it fences the tenant; the resume command lets it go on. While the tenant is fenced
a pause is refused, because it would only lengthen the time away.`)
}
