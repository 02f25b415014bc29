package main

import (
	"fmt"
	"image/color"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const (
	plotWidth  = 32 * vg.Centimeter
	plotHeight = 12 * vg.Centimeter
	barWidth   = 12 // points
	// headroom leaves the legend a place above the bars.
	headroom = 1.35
	// smallTenant is up to how many entries the fixed milliseconds still show.
	smallTenant = 5000
)

// colours are one for each contender, or part of a stack, told apart by those who see no red or green (after Okabe and Ito).
var colours = []color.Color{
	color.RGBA{R: 0xd5, G: 0x5e, B: 0x00, A: 0xff}, color.RGBA{R: 0x56, G: 0xb4, B: 0xe9, A: 0xff},
	color.RGBA{R: 0x00, G: 0x72, B: 0xb2, A: 0xff}, color.RGBA{R: 0x99, G: 0x99, B: 0x99, A: 0xff},
	color.RGBA{R: 0xe6, G: 0x9f, B: 0x00, A: 0xff}, color.RGBA{R: 0x00, G: 0x9e, B: 0x73, A: 0xff},
	color.RGBA{R: 0xcc, G: 0x79, B: 0xa7, A: 0xff}, color.RGBA{R: 0xf0, G: 0xe4, B: 0x42, A: 0xff},
	color.RGBA{R: 0x33, G: 0x33, B: 0x33, A: 0xff},
}

// plot draws what was measured; what was not is left out.
func (r results) plot(folder string) error {
	for _, figure := range []struct {
		file string
		draw func(*plot.Plot) (drawn bool, err error)
	}{
		{"throughput.svg", r.drawThroughput},
		{"time-away.svg", r.drawTimeAway},
		{"memory.svg", r.drawMemory},
		{"steps.svg", r.drawSteps},
		{"neighbour.svg", r.drawNeighbour},
	} {
		canvas := plot.New()
		canvas.Y.Min = 0
		canvas.Legend.Top, canvas.Legend.Left, canvas.Legend.YPosition = true, true, draw.PosCenter
		canvas.Legend.Padding = vg.Points(2)
		canvas.Add(horizontalLines())
		drawn, err := figure.draw(canvas)
		canvas.Y.Max *= headroom
		if err == nil && drawn {
			err = canvas.Save(plotWidth, plotHeight, filepath.Join(folder, figure.file))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", figure.file, err)
		}
	}
	return nil
}

func horizontalLines() *plotter.Grid {
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	grid.Horizontal.Color = color.Gray{Y: 0xdd}
	return grid
}

// series is one bar in every group.
type series struct {
	name   string
	values plotter.Values
}

// drawGroups puts the bars of all series side by side, group by group; false where there are no groups.
func drawGroups(canvas *plot.Plot, groups []string, all []series) (drawn bool, err error) {
	if len(groups) == 0 {
		return false, nil
	}
	for i, one := range all {
		bars, err := plotter.NewBarChart(one.values, vg.Points(barWidth))
		if err != nil {
			return false, err
		}
		bars.Color, bars.LineStyle.Width = colours[i%len(colours)], 0
		bars.Offset = vg.Points(barWidth * (float64(i) - float64(len(all)-1)/2))
		canvas.Add(bars)
		canvas.Legend.Add(one.name, bars)
	}
	nameGroups(canvas, groups)
	return true, nil
}

// nameGroups leaves half a group's room at both ends.
func nameGroups(canvas *plot.Plot, groups []string) {
	const half = 0.5
	canvas.NominalX(groups...)
	canvas.X.Min, canvas.X.Max = -half, float64(len(groups))-half
}

// place is a shape with or without neighbours.
func (s summary) place() string {
	name := strings.Replace(s.Shape.Name, " in ", "\nin ", 1)
	if s.Neighbours > 0 {
		name += fmt.Sprintf("\namong %d", s.Neighbours)
	}
	return name
}

// contestSeries gives one series a contender, over the shapes that all have played.
func (r results) contestSeries(value func(summary) float64) (groups []string, all []series) {
	values := map[string]map[string]float64{}
	for _, s := range r.Summaries {
		if s.Shape.Name == light || s.Shape.Name == heavy {
			continue
		}
		if !slices.Contains(groups, s.place()) {
			groups = append(groups, s.place())
		}
		if values[s.Contender] == nil {
			values[s.Contender] = map[string]float64{}
		}
		values[s.Contender][s.place()] = value(s)
	}
	for _, contender := range contenders {
		if values[contender] == nil {
			continue
		}
		one := series{name: contender}
		for _, group := range groups {
			one.values = append(one.values, values[contender][group])
		}
		all = append(all, one)
	}
	return groups, all
}

func (r results) drawThroughput(canvas *plot.Plot) (bool, error) {
	groups, all := r.contestSeries(func(s summary) float64 { return s.MegabytesPerSecond.Median })
	canvas.Title.Text = "Copy: values a second (median)"
	canvas.Y.Label.Text = "MB/s"
	return drawGroups(canvas, groups, all)
}

// drawTimeAway sets the baseline's copy and clean-up beside what clients saw of whole moves through the workflow.
func (r results) drawTimeAway(canvas *plot.Plot) (bool, error) {
	var groups []string
	native, ours := series{name: "baseline: copy and cleanup alone"}, series{name: "kcp-migrate: whole move through the workflow"}
	for _, pair := range []struct {
		shape               string
		entries, neighbours int
		name                string
	}{{small, 5000, nobody, "5,000 entries"}, {medium, 50_000, nobody, "50,000 entries"}, {medium, 50_000, crowded, "50,000 entries\namong 250,000 of neighbours"}} {
		away, have := r.away(pair.entries, pair.neighbours)
		theirs, haveTheirs := find(r.Summaries, baseline, pair.shape, pair.neighbours)
		if have && haveTheirs {
			groups = append(groups, pair.name)
			native.values, ours.values = append(native.values, theirs.Away.Median), append(ours.values, away)
		}
	}
	canvas.Title.Text = "Time away (median)"
	canvas.Y.Label.Text = "seconds"
	return drawGroups(canvas, groups, []series{native, ours})
}

func (r results) drawMemory(canvas *plot.Plot) (bool, error) {
	var groups []string
	all := []series{{name: "origin worker"}, {name: "destination worker"}}
	for _, s := range r.Summaries {
		if s.Contender != streamed {
			continue
		}
		groups = append(groups, s.place())
		for i := range all {
			all[i].values = append(all[i].values, s.PeakBytes[all[i].name].Median/(1<<20))
		}
	}
	canvas.Title.Text = "Peak memory of the workers, streamed (median)"
	canvas.Y.Label.Text = "MiB"
	return drawGroups(canvas, groups, all)
}

// drawSteps stacks where the time away goes.
func (r results) drawSteps(canvas *plot.Plot) (bool, error) {
	var groups []string
	parts := map[string]plotter.Values{}
	var chosen []journeyGroup
	for _, g := range r.grouped() {
		if g.atOnce == 1 && g.neighbours == 0 && g.entries <= smallTenant {
			chosen = append(chosen, g)
			groups = append(groups, fmt.Sprintf("%d entries", g.entries))
		}
	}
	for i, g := range chosen {
		for name, seconds := range g.parts() {
			if parts[name] == nil {
				parts[name] = make(plotter.Values, len(chosen))
			}
			parts[name][i] = seconds * 1000
		}
	}
	if len(groups) == 0 {
		return false, nil
	}
	canvas.Title.Text = "Where the time away of small tenants goes (medians)"
	canvas.Y.Label.Text = "milliseconds"
	var below *plotter.BarChart
	for i, name := range slices.Sorted(maps.Keys(parts)) {
		bars, err := plotter.NewBarChart(parts[name], vg.Points(3*barWidth))
		if err != nil {
			return false, err
		}
		bars.Color, bars.LineStyle.Width = colours[i%len(colours)], 0
		if below != nil {
			bars.StackOn(below)
		}
		below = bars
		canvas.Add(bars)
		canvas.Legend.Add(name, bars)
	}
	nameGroups(canvas, groups)
	return true, nil
}

func (r results) drawNeighbour(canvas *plot.Plot) (bool, error) {
	var groups []string
	idle, moving := series{name: "idle"}, series{name: "beside a move"}
	for _, one := range r.Neighbour {
		groups = append(groups, one.Request+" at the "+one.Etcd)
		idle.values, moving.values = append(idle.values, one.Idle.P99), append(moving.values, one.Moving.P99)
	}
	canvas.Title.Text = "What a neighbour waits at most in 99 of 100 requests"
	canvas.Y.Label.Text = "milliseconds"
	return drawGroups(canvas, groups, []series{idle, moving})
}
