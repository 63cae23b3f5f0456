package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/lab/measure"
	"github.com/penstock/penstock/lab/plot"
)

// cell is a figure by its name in JSON.
type cell struct {
	name, text string
	right      bool
}

// show writes a result: a table of each list, and then each other figure on a line, all by their names in JSON.
func show(w io.Writer, result any) error {
	var failed error
	figures := walk("", reflect.ValueOf(result), func(name string, rows [][]cell) {
		if err := showList(w, name, rows); err != nil && failed == nil {
			failed = err
		}
	})
	if page, ok := w.(terminal.Cells); ok {
		for _, f := range figures {
			page.Cells(nil, [][]string{{f.name, f.text}})
		}
		return failed
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range figures {
		fmt.Fprintf(t, "%s\t%s\n", f.name, f.text)
	}
	if err := t.Flush(); failed == nil {
		failed = err
	}
	return failed
}

// showList leaves out the columns that are empty in each row.
func showList(w io.Writer, name string, rows [][]cell) error {
	var names []string
	column := map[string]terminal.Column{}
	for _, row := range rows {
		for _, c := range row {
			if _, known := column[c.name]; !known {
				title := strings.ToUpper(strings.NewReplacer("_", " ", ".", " ").Replace(c.name))
				names, column[c.name] = append(names, c.name), terminal.Left(title)
				if c.right {
					column[c.name] = terminal.Right(title)
				}
			}
		}
	}
	columns := make([]terminal.Column, len(names))
	for i, name := range names {
		columns[i] = column[name]
	}
	fmt.Fprintln(w, name)
	t := terminal.NewTable(w, columns...)
	for _, row := range rows {
		cells := make([]string, len(names))
		for _, c := range row {
			cells[slices.Index(names, c.name)] = c.text
		}
		t.Row(cells...)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}

// walk returns the figures of a value, and hands each list of structs to list.
func walk(name string, v reflect.Value, list func(name string, rows [][]cell)) (figures []cell) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return walk(name, v.Elem(), list)
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			tag, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			if tag == "-" || options == "omitempty" && v.Field(i).IsZero() {
				continue
			}
			if tag != "" && name != "" {
				tag = name + "." + tag
			} else if tag == "" { // embedded
				tag = name
			}
			figures = append(figures, walk(tag, v.Field(i), list)...)
		}
		return figures
	case reflect.Slice:
		var rows [][]cell
		var texts []string
		for i := range v.Len() {
			if v.Type().Elem().Kind() == reflect.Struct {
				rows = append(rows, walk("", v.Index(i), list))
			} else {
				texts = append(texts, text(name, v.Index(i)))
			}
		}
		if len(rows) > 0 {
			list(name, rows)
		}
		if len(texts) < 2 { // one is also the median
			return nil
		}
		return []cell{{name, strings.Join(texts, " "), true}}
	case reflect.Map:
		m := map[string]string{}
		for _, key := range v.MapKeys() {
			m[fmt.Sprint(key)] = text(name, v.MapIndex(key))
		}
		for _, key := range slices.Sorted(maps.Keys(m)) {
			figures = append(figures, cell{name + "." + key, m[key], true})
		}
		return figures
	}
	return []cell{{name, text(name, v), v.Kind() != reflect.String}}
}

// text shows sizes as such, and other numbers to three digits at least.
func text(name string, v reflect.Value) string {
	switch {
	case v.CanInt() && strings.HasSuffix(name, "_bytes"):
		return terminal.Size(v.Int())
	case v.CanInt():
		return terminal.Count(v.Int())
	case v.CanFloat():
		n := v.Float()
		if abs := math.Abs(n); abs >= 1000 {
			return terminal.Count(int64(math.Round(n)))
		} else if abs >= 100 {
			return fmt.Sprintf("%.0f", n)
		} else if abs >= 10 {
			return fmt.Sprintf("%.1f", n)
		}
		return fmt.Sprintf("%.2f", n)
	}
	return fmt.Sprint(v.Interface())
}

// chart draws how each side went, of an experiment that follows that.
func chart(title string, result any, settings string) (c plot.Chart, ok bool) {
	r, ok := result.(interface{ Lines() []measure.Line })
	if !ok {
		return c, false
	}
	c = plot.Chart{Title: title, Subtitle: settings}
	for _, p := range []struct {
		y   string
		log bool
		of  func(measure.Interval) float64
	}{
		{"per second", false, func(i measure.Interval) float64 { return i.PerSecond }}, {"p99 latency, ms", true, func(i measure.Interval) float64 { return i.P99MS }},
		{"size on disk, MiB", false, func(i measure.Interval) float64 { return float64(i.SizeBytes) / (1 << 20) }},
	} {
		panel := plot.Panel{X: "seconds", Y: p.y, Log: p.log}
		for _, line := range r.Lines() {
			s := plot.Series{Name: line.Name}
			for _, i := range line.Intervals {
				s.Points = append(s.Points, plot.Point{X: i.At, Y: p.of(i)})
			}
			panel.Series = append(panel.Series, s)
		}
		c.Panels = append(c.Panels, panel)
	}
	return c, true
}
