package temporalserver

import (
	"fmt"
	"runtime"
	"strings"

	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/log/tag"
)

// fatalOnly is silent but for what is fatal, because the server's shutdown is noisy.
// The server's own logger ends the process on a fatal error, a listener that fails for
// example; this one reports it and ends the goroutine that met it, so that all else can
// be stopped in order.
type fatalOnly struct {
	failed chan<- error
}

var _ log.Logger = fatalOnly{}

func (fatalOnly) Debug(string, ...tag.Tag)  {}
func (fatalOnly) Info(string, ...tag.Tag)   {}
func (fatalOnly) Warn(string, ...tag.Tag)   {}
func (fatalOnly) Error(string, ...tag.Tag)  {}
func (fatalOnly) DPanic(string, ...tag.Tag) {}

func (l fatalOnly) Panic(message string, tags ...tag.Tag) { l.Fatal(message, tags...) }

func (l fatalOnly) Fatal(message string, tags ...tag.Tag) {
	var text strings.Builder
	text.WriteString(message)
	for _, t := range tags {
		fmt.Fprintf(&text, " %s=%v", t.Key(), t.Value())
	}
	select {
	case l.failed <- fmt.Errorf("temporal server: %s", text.String()):
	default: // the first one is the cause
	}
	runtime.Goexit()
}
