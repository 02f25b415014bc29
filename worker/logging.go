package worker

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"golang.org/x/term"
)

const (
	logJSON = "json"
	logText = "text"
)

func (c *Config) newLogger(out io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return nil, fmt.Errorf("read --log-level: %w", err)
	}
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewJSONHandler(out, options)
	if c.LogFormat == logText || c.LogFormat == "" && IsTerminal(out) {
		handler = slog.NewTextHandler(out, options)
	}
	return slog.New(handler).With("shard", c.Shard), nil
}

// IsTerminal reports whether a person looks at what is written to out.
func IsTerminal(out io.Writer) bool {
	file, isFile := out.(*os.File)
	return isFile && term.IsTerminal(int(file.Fd()))
}
