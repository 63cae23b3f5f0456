package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/lab/measure"
	"github.com/penstock/penstock/lab/plot"
)

// report is the result of bench all, as JSON and as a page.
type report struct {
	Began    time.Time      `json:"began"`
	Took     string         `json:"took"`
	Machine  []measure.Fact `json:"machine"`
	Sections []*section     `json:"benchmarks"`
}

// section is a benchmark of a report. As an io.Writer and terminal.Cells it takes what would be shown on a terminal.
type section struct {
	Name    string          `json:"command"`
	Short   string          `json:"-"`
	Long    string          `json:"-"`
	Seconds float64         `json:"seconds"`
	Left    string          `json:"left_out,omitempty"` // why
	Failed  string          `json:"failed,omitempty"`
	JSON    json.RawMessage `json:"result,omitempty"`
	ratios  []headline
	chart   *plot.Chart
	Blocks  []block `json:"-"`
}

// block is a table, or lines of text.
type block struct {
	Head []terminal.Column
	Rows [][]string
	Text string
}

func (s *section) Write(text []byte) (int, error) {
	if line := strings.TrimSpace(string(text)); line != "" {
		s.Blocks = append(s.Blocks, block{Text: line})
	}
	return len(text), nil
}

// Cells adds rows to the table that was begun, or begins one.
func (s *section) Cells(head []terminal.Column, rows [][]string) {
	if last := len(s.Blocks) - 1; last >= 0 && len(s.Blocks[last].Rows) > 0 && len(head) == 0 && len(s.Blocks[last].Head) == 0 {
		s.Blocks[last].Rows = append(s.Blocks[last].Rows, rows...)
		return
	}
	s.Blocks = append(s.Blocks, block{Head: head, Rows: rows})
}

// Chart is an image within the page.
func (s *section) Chart() (template.HTML, error) {
	if s.chart == nil {
		return "", nil
	}
	var out bytes.Buffer
	if err := s.chart.WriteSVG(&out); err != nil {
		return "", err
	}
	_, svg, ok := bytes.Cut(out.Bytes(), []byte("<svg"))
	if !ok {
		return "", errors.New("the chart has no picture")
	}
	return template.HTML("<svg" + string(svg)), nil // what plot writes is escaped
}

// Line is one of the page's first table.
type Line struct {
	Command, Is, Value, ByHand, Published string
}

// Lines are the ratios of all benchmarks.
func (r report) Lines() (lines []Line) {
	for _, s := range r.Sections {
		var result any
		if json.Unmarshal(s.JSON, &result) != nil {
			continue
		}
		show := func(path string) string {
			if n, ok := at(result, path); ok {
				return fmt.Sprintf("%.2f", n)
			}
			return ""
		}
		for _, h := range s.ratios {
			lines = append(lines, Line{strings.Fields(s.Name)[1], h.is, show(h.path), show(h.byHand), h.published})
		}
	}
	return lines
}

//go:embed report.html
var reportPage string

var reportTemplate = template.Must(template.New("report").Funcs(template.FuncMap{"right": terminal.Column.Right, "trim": strings.TrimSpace}).Parse(reportPage))

func (r report) write(dir string) error {
	var page bytes.Buffer
	if err := reportTemplate.Execute(&page, r); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "index.html"), page.Bytes(), 0o644), os.WriteFile(filepath.Join(dir, "report.json"), append(text, '\n'), 0o644))
}
