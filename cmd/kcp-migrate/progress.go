package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/kcp-migrate/kcp-migrate/worker"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

const (
	barWidth = 24 // characters
	// quietInterval is how often a copy is spoken of where every look would fill a log.
	quietInterval = 5 * time.Second
)

// progress tells whoever waits how a move is getting on.
type progress interface {
	show(look look)
	warn(message string)
	end()
}

// newProgress chooses what suits the reader: JSON lines for programs, a moving line for a terminal, plain lines for a log.
func newProgress(out io.Writer, format outputFormat) progress {
	switch {
	case format == outputJSON:
		return &jsonProgress{out: json.NewEncoder(out)}
	case worker.IsTerminal(out):
		return &terminalProgress{out: out}
	default:
		return &plainProgress{out: out}
	}
}

// standing is what a look says, reckoned up.
type standing struct {
	Time             time.Time       `json:"time"`
	Phase            workflows.Phase `json:"phase"`
	Step             string          `json:"step,omitempty"`
	Entries          int64           `json:"entries"`
	TotalEntries     int64           `json:"totalEntries,omitempty"`
	EntriesPerSecond int64           `json:"entriesPerSecond,omitempty"`
	SecondsLeft      int64           `json:"secondsLeft,omitempty"`
	Fenced           bool            `json:"fenced"`
	SecondsAway      float64         `json:"secondsAway,omitempty"`
	Paused           bool            `json:"paused,omitempty"`
	WaitsForApproval bool            `json:"waitsForApproval,omitempty"`
	Aborting         bool            `json:"aborting,omitempty"`
	Advice           string          `json:"advice,omitempty"`
	Retrying         []string        `json:"retrying,omitempty"`
}

// pace knows from one look to the next how fast the copy goes.
type pace struct {
	since   time.Time
	entries int64
}

func (p *pace) reckon(look look) standing {
	s := standing{
		Time: look.At, Phase: look.Phase, Step: look.Step, Entries: look.Entries,
		Fenced: look.Fenced, Paused: look.Paused, WaitsForApproval: look.WaitsForApproval, Aborting: look.Aborting,
		Advice: look.Advice, Retrying: look.Retrying,
	}
	if look.Plan != nil {
		s.TotalEntries = look.Plan.Entries
	}
	if look.Fenced && look.FencedAt != nil {
		s.SecondsAway = look.At.Sub(*look.FencedAt).Seconds()
	}
	if look.Copied == nil {
		*p = pace{}
		return s
	}
	s.Entries = look.Copied.Entries
	if p.since.IsZero() {
		*p = pace{since: look.At, entries: s.Entries}
	} else if elapsed := look.At.Sub(p.since).Seconds(); elapsed > 0 {
		s.EntriesPerSecond = int64(float64(s.Entries-p.entries) / elapsed)
	}
	if left := s.TotalEntries - s.Entries; s.EntriesPerSecond > 0 && left > 0 {
		s.SecondsLeft = left/s.EntriesPerSecond + 1
	}
	return s
}

// text is the standing in one line, without what changes at every look.
func (s standing) text() string {
	parts := []string{string(s.Phase)}
	for _, part := range []struct {
		say  bool
		text string
	}{
		{s.Step != "", s.Step},
		{s.Paused, "paused: let it go on with the resume command"},
		{s.WaitsForApproval, "waits for the approve command"},
		{s.Aborting, "aborting"},
		{s.Advice != "", s.Advice},
		{len(s.Retrying) > 0, "retrying " + strings.Join(s.Retrying, "; ")},
	} {
		if part.say {
			parts = append(parts, part.text)
		}
	}
	return strings.Join(parts, ": ")
}

// figures is how far it is and how fast it goes.
func (s standing) figures() string {
	var parts []string
	if s.TotalEntries > 0 && s.Entries > 0 {
		parts = append(parts, fmt.Sprintf("%s of %s entries", countText(s.Entries), countText(s.TotalEntries)))
	}
	if s.EntriesPerSecond > 0 {
		parts = append(parts, countText(s.EntriesPerSecond)+"/s")
	}
	if s.SecondsLeft > 0 {
		parts = append(parts, fmt.Sprintf("%d s left", s.SecondsLeft))
	}
	if s.Fenced {
		parts = append(parts, fmt.Sprintf("away for %.1f s", s.SecondsAway))
	}
	return strings.Join(parts, ", ")
}

// bar fills with the copied share of the entries.
func (s standing) bar() string {
	if s.TotalEntries == 0 {
		return ""
	}
	filled := int(min(s.Entries, s.TotalEntries) * barWidth / s.TotalEntries)
	return "[" + strings.Repeat("#", filled) + strings.Repeat("-", barWidth-filled) + "]"
}

// terminalProgress rewrites one line and leaves behind one line a step.
type terminalProgress struct {
	out  io.Writer
	pace pace
	last string
}

const eraseLine = "\r\x1b[2K"

func (p *terminalProgress) show(look look) {
	now := p.pace.reckon(look)
	if p.last != "" && p.last != now.text() {
		fmt.Fprintf(p.out, "%s%s\n", eraseLine, p.last)
	}
	p.last = now.text()
	fmt.Fprintf(p.out, "%s%s %s %s", eraseLine, now.text(), now.bar(), now.figures())
}

func (p *terminalProgress) warn(message string) { fmt.Fprintf(p.out, "%s%s\n", eraseLine, message) }

func (p *terminalProgress) end() { fmt.Fprint(p.out, eraseLine) }

// plainProgress writes a line when something changes, and now and then while a copy runs.
type plainProgress struct {
	out  io.Writer
	pace pace
	last string
	at   time.Time
}

func (p *plainProgress) show(look look) {
	now := p.pace.reckon(look)
	if now.text() == p.last && (look.Copied == nil || look.At.Sub(p.at) < quietInterval) {
		return
	}
	p.last, p.at = now.text(), look.At
	if figures := now.figures(); figures != "" {
		fmt.Fprintf(p.out, "%s (%s)\n", now.text(), figures)
	} else {
		fmt.Fprintln(p.out, now.text())
	}
}

func (p *plainProgress) warn(message string) { fmt.Fprintln(p.out, message) }

func (p *plainProgress) end() {}

// jsonProgress writes every look as one JSON line.
type jsonProgress struct {
	out  *json.Encoder
	pace pace
}

// A reader that has gone away is no reason to end: the result on stdout is what counts.
func (p *jsonProgress) show(look look) { _ = p.out.Encode(p.pace.reckon(look)) }

func (p *jsonProgress) warn(message string) {
	_ = p.out.Encode(map[string]any{"time": time.Now(), "warning": message})
}

func (p *jsonProgress) end() {}
