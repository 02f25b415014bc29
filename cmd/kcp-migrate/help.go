package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// newCmdHelp makes the help command. Cobra's own takes a command that there is not for a success.
func newCmdHelp(term terminal) *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Explain a command",
		Example: fmt.Sprintf("  %s help start", term.program),
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return asUsage(cmd.Root(), fmt.Errorf("explain %q: there is no such command", strings.Join(args, " ")))
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
	}
}
