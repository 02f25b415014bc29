package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// NewCmdCompletion makes the completion command. Cobra's own takes a shell that it does not know for a success.
func NewCmdCompletion(term terminal) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|fish|powershell|zsh",
		Short: "Print what a shell needs to complete commands and flags",
		Example: fmt.Sprintf(`  source <(%[1]s completion bash)
  %[1]s completion fish > ~/.config/fish/completions/kcp-migrate.fish`, term.program),
		ValidArgs: []string{"bash", "fish", "powershell", "zsh"},
		Args:      usageArgs(cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)),
		RunE: func(cmd *cobra.Command, args []string) error {
			const describe = true
			switch args[0] {
			case "bash":
				return cmd.Root().GenBashCompletionV2(term.out, describe)
			case "fish":
				return cmd.Root().GenFishCompletion(term.out, describe)
			case "powershell":
				return cmd.Root().GenPowerShellCompletionWithDesc(term.out)
			default:
				return cmd.Root().GenZshCompletion(term.out)
			}
		},
	}
}
