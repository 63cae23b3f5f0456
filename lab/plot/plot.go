// Package plot draws the curves of a benchmark: a few panels one above the other,
// in an SVG or PNG file.
package plot

import (
	"errors"
	"fmt"
	"image/color"
	"io"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Chart is a title over panels.
type Chart struct {
	Title    string
	Subtitle string // the parameters
	Panels   []Panel
}

// Panel has separate axes.
type Panel struct {
	X, Y   string // what the axes show, with the unit
	Series []Series
	// Log shows y in powers of ten. Values that are not above zero are left out.
	Log bool
}

// Series is one line. The same place in each panel has the same colour.
type Series struct {
	Name   string
	Points []Point
}

// Point of a series.
type Point struct{ X, Y float64 }

const (
	width       = 20 * vg.Centimeter
	panelHeight = 8 * vg.Centimeter
	titleHeight = 2.3 * vg.Centimeter
	lineWidth   = 1.8 * vg.Length(1)
	pngDPI      = 144
)

// Of Okabe and Ito, "Color Universal Design", 2002: told apart by people who do
// not see all colours.
var colours = []color.Color{
	color.RGBA{R: 0x00, G: 0x72, B: 0xb2, A: 0xff},
	color.RGBA{R: 0xd5, G: 0x5e, B: 0x00, A: 0xff},
	color.RGBA{R: 0x00, G: 0x9e, B: 0x73, A: 0xff},
	color.RGBA{R: 0xcc, G: 0x79, B: 0xa7, A: 0xff},
}

// CheckFile reports whether a chart can be written to a file of that name, and is
// for asking before there is something to draw.
func CheckFile(path string) error {
	if ext := strings.ToLower(filepath.Ext(path)); ext != ".svg" && ext != ".png" {
		return fmt.Errorf("the chart %q is neither .svg nor .png: give it one of these endings", path)
	}
	if dir, err := os.Stat(filepath.Dir(path)); err != nil || !dir.IsDir() {
		return fmt.Errorf("there is no folder %q for the chart: make it first", filepath.Dir(path))
	}
	return nil
}

// WriteFile draws a chart to a file, whose ending shows how.
func (c Chart) WriteFile(path string) (err error) {
	if err := CheckFile(path); err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return c.write(file, strings.ToLower(filepath.Ext(path)))
}

// WriteSVG draws it as a page can have it.
func (c Chart) WriteSVG(w io.Writer) error { return c.write(w, ".svg") }

func (c Chart) write(w io.Writer, ext string) error {
	height := titleHeight + panelHeight*vg.Length(len(c.Panels))
	var canvas interface {
		vg.CanvasSizer
		io.WriterTo
	}
	if ext == ".png" {
		canvas = vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(pngDPI))}
	} else {
		canvas = vgsvg.New(width, height)
	}
	if err := c.draw(draw.New(canvas)); err != nil {
		return err
	}
	_, err := canvas.WriteTo(w)
	return err
}

func (c Chart) draw(on draw.Canvas) error {
	var panels [][]*plot.Plot
	for _, panel := range c.Panels {
		p, err := panel.plot()
		if err != nil {
			return err
		}
		panels = append(panels, []*plot.Plot{p})
	}
	on.SetColor(color.White)
	on.Fill(on.Rectangle.Path())
	style := plot.New().Title.TextStyle
	style.XAlign, style.YAlign = draw.XCenter, draw.YTop
	middle := on.Center().X
	style.Font.Size = 14
	on.FillText(style, vg.Point{X: middle, Y: on.Max.Y - 0.25*vg.Centimeter}, c.Title)
	style.Font.Size = 9
	on.FillText(style, vg.Point{X: middle, Y: on.Max.Y - 0.95*vg.Centimeter}, c.Subtitle)
	c.drawLegend(on, style, on.Max.Y-1.7*vg.Centimeter)
	on.Max.Y -= titleHeight
	// Aligned, so that the x axes lie below each other whatever the labels of the y axes are.
	tiles := draw.Tiles{Rows: len(panels), Cols: 1, PadY: 0.4 * vg.Centimeter, PadLeft: 0.3 * vg.Centimeter, PadRight: 0.6 * vg.Centimeter, PadBottom: 0.3 * vg.Centimeter}
	for row, canvases := range plot.Align(panels, tiles, on) {
		panels[row][0].Draw(canvases[0])
	}
	return nil
}

// drawLegend names the series of the first panel in one line, where no curve can
// run through it.
func (c Chart) drawLegend(on draw.Canvas, style draw.TextStyle, y vg.Length) {
	const sample, gap = 0.9 * vg.Centimeter, 0.25 * vg.Centimeter
	if len(c.Panels) == 0 {
		return
	}
	style.XAlign, style.YAlign, style.Font.Size = draw.XLeft, draw.YCenter, 10
	series, total := c.Panels[0].Series, vg.Length(0)
	for _, s := range series {
		total += sample + gap + style.Width(s.Name) + 3*gap
	}
	x := on.Center().X - (total-3*gap)/2
	for i, s := range series {
		line := draw.LineStyle{Color: colours[i%len(colours)], Width: lineWidth}
		on.StrokeLine2(line, x, y, x+sample, y)
		on.DrawGlyph(dot(line.Color), vg.Point{X: x + sample/2, Y: y})
		on.FillText(style, vg.Point{X: x + sample + gap, Y: y}, s.Name)
		x += sample + gap + style.Width(s.Name) + 3*gap
	}
}

func dot(c color.Color) draw.GlyphStyle {
	return draw.GlyphStyle{Color: c, Radius: 2, Shape: draw.CircleGlyph{}}
}

func (p Panel) plot() (*plot.Plot, error) {
	out := plot.New()
	out.X.Tick.Marker, out.Y.Tick.Marker = steps{}, steps{}
	out.X.Label.Text, out.Y.Label.Text = p.X, p.Y
	out.X.Padding, out.Y.Padding = 0, 0
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{Y: 0xe0}, color.Gray{Y: 0xe0}
	out.Add(grid)
	most, least := 0.0, 0.0
	for i, s := range p.Series {
		points := make(plotter.XYs, 0, len(s.Points))
		for _, at := range s.Points {
			if p.Log && at.Y <= 0 {
				continue
			}
			if points = append(points, plotter.XY(at)); at.Y > most {
				most = at.Y
			}
			if least == 0 || at.Y < least {
				least = at.Y
			}
		}
		if len(points) == 0 {
			continue
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, fmt.Errorf("drawing %s: %w", s.Name, err)
		}
		line.Color, line.Width = colours[i%len(colours)], lineWidth
		dots.GlyphStyle = dot(line.Color)
		out.Add(line, dots)
	}
	if most == 0 {
		most, least = 1, 1 // nothing to show: the axes alone
	}
	if p.Log {
		out.Y.Scale, out.Y.Tick.Marker = plot.LogScale{}, powers{}
		out.Y.Min, out.Y.Max = least/2, most*2
	} else {
		out.Y.Min, out.Y.Max = 0, most*1.12
	}
	out.X.Min = min(out.X.Min, 0)
	return out, nil
}
