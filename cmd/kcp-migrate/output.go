package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// outputFormat is how a result is written to stdout.
type outputFormat string

const (
	outputTable outputFormat = "table"
	outputJSON  outputFormat = "json"
	outputYAML  outputFormat = "yaml"
	outputName  outputFormat = "name"
)

func (f *outputFormat) addFlag(flags *pflag.FlagSet) {
	*f = outputTable
	flags.VarP(f, "output", "o", "table, json, yaml or name")
}

// String is the format's name.
func (f *outputFormat) String() string { return string(*f) }

// Type is what help calls the value.
func (f *outputFormat) Type() string { return "format" }

// Set refuses unknown formats.
func (f *outputFormat) Set(text string) error {
	switch format := outputFormat(text); format {
	case outputTable, outputJSON, outputYAML, outputName:
		*f = format
		return nil
	default:
		return fmt.Errorf("%q is none of table, json, yaml, name", text)
	}
}

// print writes value as JSON or YAML, names one a line, or whatever table writes.
func (f outputFormat) print(out io.Writer, value any, names []string, table func(out *tabwriter.Writer)) error {
	switch f {
	case outputJSON:
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(value)
	case outputYAML:
		text, err := yaml.Marshal(value)
		if err != nil {
			return err
		}
		_, err = out.Write(text)
		return err
	case outputName:
		for _, name := range names {
			fmt.Fprintln(out, name)
		}
		return nil
	default:
		columns := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		table(columns)
		return columns.Flush()
	}
}

// row writes one line of a table.
func row(out io.Writer, cells ...any) {
	text := make([]string, len(cells))
	for i, cell := range cells {
		text[i] = fmt.Sprint(cell)
	}
	fmt.Fprintln(out, strings.Join(text, "\t"))
}

// property writes a line only where there is something to say.
func property(out io.Writer, name, value string) {
	if value != "" {
		row(out, name+":", value)
	}
}

// list writes a heading and indented lines, if there are any.
func list(out io.Writer, heading string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(out, "\n%s:\n", heading)
	for _, line := range lines {
		fmt.Fprintf(out, "  %s\n", line)
	}
}

// countText groups digits by three.
func countText(count int64) string {
	digits := fmt.Sprint(count)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// bytesText gives three digits or so and a binary unit.
func bytesText(bytes int64) string {
	if bytes < 1024 {
		return fmt.Sprintf("%d B", bytes)
	}
	value, units := float64(bytes)/1024, []string{"KiB", "MiB", "GiB", "TiB"}
	for value >= 1024 && len(units) > 1 {
		value, units = value/1024, units[1:]
	}
	return fmt.Sprintf("%.1f %s", value, units[0])
}
