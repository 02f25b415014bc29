package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

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
	if format == outputJSON {
		return &jsonProgress{out: json.NewEncoder(out)}
	}
	if file, isFile := out.(*os.File); isFile && worker.IsTerminal(out) {
		return &terminalProgress{out: file}
	}
	return &plainProgress{out: out}
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
	WaitsFor         []string        `json:"waitsFor,omitempty"`
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
		Advice: look.Advice, WaitsFor: look.WaitsFor,
	}
	if look.Plan != nil {
		s.TotalEntries = look.Plan.Entries
	}
	if look.Fenced && look.FencedAt != nil {
		// The move goes by Temporal's clock, and may have been fenced since the look began.
		s.SecondsAway = max(0, look.At.Sub(*look.FencedAt).Seconds())
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

// headline is the phase and the step in it.
func (s standing) headline() string {
	if s.Step == "" {
		return string(s.Phase)
	}
	return string(s.Phase) + ": " + s.Step
}

// notes are what a person should know beside it.
func (s standing) notes() []string {
	if s.Phase == workflows.Completed || s.Phase == workflows.Failed || s.Phase == workflows.Undone {
		return nil
	}
	var notes []string
	if advice := trouble(s.Advice); advice != "" {
		notes = append(notes, advice)
	}
	if s.Paused {
		notes = append(notes, "paused until the resume command")
	}
	if s.Aborting {
		notes = append(notes, "aborting")
	}
	if s.WaitsForApproval {
		notes = append(notes, "waits for the approve command")
	}
	for _, reason := range s.WaitsFor {
		notes = append(notes, "waits for "+reason)
	}
	return notes
}

// figures is how far it is and how fast it goes.
func (s standing) figures() string {
	var parts []string
	if s.TotalEntries > 0 && s.Entries > 0 {
		parts = append(parts, fmt.Sprintf("%s of about %s entries", countText(s.Entries), countText(s.TotalEntries)))
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

// terminalProgress rewrites one line, and leaves behind one line for each step and each note.
type terminalProgress struct {
	out   *os.File
	pace  pace
	last  string
	notes []string
}

const eraseLine = "\r\x1b[2K"

func (p *terminalProgress) show(look look) {
	now := p.pace.reckon(look)
	if p.last != "" && p.last != now.headline() {
		fmt.Fprintf(p.out, "%s%s\n", eraseLine, p.last)
	}
	p.last = now.headline()
	for _, note := range now.notes() {
		if !slices.Contains(p.notes, note) {
			fmt.Fprintf(p.out, "%s  %s\n", eraseLine, note)
		}
	}
	p.notes = now.notes()
	fmt.Fprint(p.out, eraseLine, p.fit(strings.TrimSpace(fmt.Sprintf("%s %s %s", now.headline(), now.bar(), now.figures()))))
}

// fit cuts what would wrap: a wrapped line cannot be erased.
func (p *terminalProgress) fit(line string) string {
	width, _, err := term.GetSize(int(p.out.Fd()))
	if err != nil || len(line) < width {
		return line
	}
	return line[:width-1]
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
	text := strings.Join(append([]string{now.headline()}, now.notes()...), "; ")
	if text == p.last && (look.Copied == nil || look.At.Sub(p.at) < quietInterval) {
		return
	}
	p.last, p.at = text, look.At
	if figures := now.figures(); figures != "" {
		text += " (" + figures + ")"
	}
	fmt.Fprintln(p.out, text)
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
