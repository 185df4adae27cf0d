// SPDX-License-Identifier: LGPL-3.0-or-later

// Command plot draws the curves of docs/CAPACITY.md from reports of tests/bench.
//
//	go run ./tests/bench --json --run 'overload|fanout' > report.json
//	cd tests/bench/plot && go run . -o ../../../docs/capacity.svg ../../../report.json
//
// It is a module of its own: nobody else needs a plotting library.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"image/color"
	"os"
	"sort"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

type report struct {
	Rows []struct {
		Workload string `json:"workload"`
		Measures []struct {
			Name  string  `json:"name"`
			Stock float64 `json:"stock"`
			Ours  float64 `json:"ours"`
		} `json:"measures"`
	} `json:"rows"`
}

// series collects the points of one measure, x taken from the workload's name.
type series struct{ stock, ours plotter.XYs }

func (r report) series(prefix, measure string, x func(string) (float64, bool)) (s series) {
	for _, row := range r.Rows {
		name, found := strings.CutPrefix(row.Workload, prefix)
		if !found {
			continue
		}
		at, ok := x(name)
		if !ok {
			continue
		}
		for _, m := range row.Measures {
			if m.Name == measure {
				s.stock = append(s.stock, plotter.XY{X: at, Y: m.Stock})
				s.ours = append(s.ours, plotter.XY{X: at, Y: m.Ours})
			}
		}
	}
	for _, p := range []plotter.XYs{s.stock, s.ours} {
		sort.Slice(p, func(i, j int) bool { return p[i].X < p[j].X })
	}
	return s
}

func multiple(name string) (float64, bool) {
	v, err := strconv.ParseFloat(strings.TrimSuffix(name, "x"), 64)
	return v, err == nil
}

// notifications is how many one event of the workload makes: "logs100/1000" is 100000.
func notifications(name string) (float64, bool) {
	kind, subs, _ := strings.Cut(name, "/")
	n, err := strconv.ParseFloat(subs, 64)
	if err != nil {
		return 0, false
	}
	each := map[string]float64{"newHeads": 1, "logs100": 100, "logs2000": 2000}[kind]
	return n * each, each > 0
}

var (
	stockColor = color.RGBA{R: 190, G: 60, B: 40, A: 255}
	oursColor  = color.RGBA{R: 30, G: 90, B: 170, A: 255}
)

func panel(title, x, y string, s series, fit bool) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	for i, points := range []plotter.XYs{s.stock, s.ours} {
		name, c := "stock", stockColor
		if i == 1 {
			name, c = "ours", oursColor
		}
		if len(points) == 0 {
			continue
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, err
		}
		line.Color, dots.Color = c, c
		dots.Shape = draw.CircleGlyph{}
		p.Add(line, dots)
		if fit && len(points) > 2 {
			a, b := fitLine(points)
			name += fmt.Sprintf(": %.1f + %.4f n", a, b)
		}
		p.Legend.Add(name, line, dots)
	}
	return p, nil
}

// fitLine is the least-squares line y = a + b x.
func fitLine(points plotter.XYs) (a, b float64) {
	var xs, ys []float64
	for _, p := range points {
		xs, ys = append(xs, p.X), append(ys, p.Y)
	}
	return stat.LinearRegression(xs, ys, nil, false)
}

func run(out string, files []string) error {
	var r report
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		var one report
		if err := json.Unmarshal(b, &one); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		r.Rows = append(r.Rows, one.Rows...)
	}
	goodput, err := panel("Served under overload", "calls offered, as a multiple of capacity", "calls answered a second",
		r.series("overload/", "goodput calls/s", multiple), false)
	if err != nil {
		return err
	}
	polite, err := panel("The polite client beside it", "calls offered, as a multiple of capacity", "its p99, ms",
		r.series("overload/", "polite p99 ms", multiple), false)
	if err != nil {
		return err
	}
	spread, err := panel("From the first subscriber to the last", "notifications of one event", "ms",
		r.series("fanout/", "first to last ms", notifications), true)
	if err != nil {
		return err
	}
	const width, height = 27 * vg.Centimeter, 9 * vg.Centimeter
	canvas := vgsvg.New(width, height)
	plots := [][]*plot.Plot{{goodput, polite, spread}}
	tiles := draw.Tiles{Rows: 1, Cols: 3, PadX: vg.Centimeter / 2, PadLeft: vg.Points(5), PadRight: vg.Points(5), PadTop: vg.Points(5), PadBottom: vg.Points(5)}
	for i, c := range plot.Align(plots, tiles, draw.New(canvas))[0] {
		plots[0][i].Draw(c)
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	if _, err := canvas.WriteTo(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func main() {
	out := flag.String("o", "capacity.svg", "file to write")
	flag.Parse()
	if err := run(*out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "plot:", err)
		os.Exit(1)
	}
}
