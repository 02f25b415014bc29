package main

import (
	"github.com/spf13/cobra"

	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// NewCmdResume makes the resume command.
func NewCmdResume(term terminal) *cobra.Command {
	return newCmdUpdate(term, workflows.ResumeUpdate, "goes on",
		"Let a paused move go on", "Let a move go on that the pause command holds.")
}
