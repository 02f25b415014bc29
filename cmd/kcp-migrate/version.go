package main

import (
	"context"
	"fmt"
	"runtime"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// VersionOptions are what the version command takes.
type VersionOptions struct {
	terminal
	output outputFormat
}

// NewCmdVersion makes the version command.
func NewCmdVersion(term terminal) *cobra.Command {
	o := &VersionOptions{terminal: term}
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Say which kcp-migrate this is",
		Example: fmt.Sprintf("  %[1]s version\n  %[1]s version -o json", term.program),
		Args:    usageArgs(cobra.NoArgs),
		RunE:    run(o),
	}
	o.output.addFlag(cmd.Flags())
	return cmd
}

// Complete has no arguments to take.
func (o *VersionOptions) Complete([]string) error { return nil }

// Validate has nothing to refuse.
func (o *VersionOptions) Validate() error { return nil }

// Run prints the version.
func (o *VersionOptions) Run(context.Context) error {
	build := struct {
		Version  string `json:"version"`
		Go       string `json:"go"`
		Platform string `json:"platform"`
	}{version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
	return o.output.print(o.out, build, []string{version}, func(out *tabwriter.Writer) {
		fmt.Fprintf(out, "kcp-migrate %s (%s, %s)\n", build.Version, build.Go, build.Platform)
	})
}
