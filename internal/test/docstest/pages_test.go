// Package docstest checks the documentation: every link works, every block of code has a language, and the prose is plain.
package docstest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../../.."

// page is a file of Markdown, by its path in the repository.
type page struct {
	path   string
	lines  []line
	blocks []block
}

// line is one outside blocks of code.
type line struct {
	number int
	text   string
}

// block is one of code.
type block struct {
	line     int
	language string
	heading  string // the one above it
	text     string
}

var fence = regexp.MustCompile("^\\s*(```+|~~~+)\\s*(\\S*)")

// pages are all pages of the repository, except those of other projects' packages.
func pages(t *testing.T) (all []page) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && skipped(d.Name()) {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		all = append(all, parse(filepath.ToSlash(name), string(text)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 30 {
		t.Fatalf("only %d pages found", len(all))
	}
	return all
}

// skipped reports folders of other people's packages, of built files, and of what tests compare with.
func skipped(folder string) bool {
	return strings.HasPrefix(folder, ".") || slices.Contains([]string{"node_modules", "testdata", "bin", "target", "dist"}, folder)
}

func parse(path, text string) page {
	p := page{path: path}
	var open *block
	var mark, heading string
	n := 0
	for l := range strings.Lines(text) {
		n++
		l = strings.TrimRight(l, "\n")
		m := fence.FindStringSubmatch(l)
		switch {
		case open == nil && m != nil:
			open, mark = &block{line: n, language: m[2], heading: heading}, m[1]
		case open != nil && m != nil && m[1] == mark && m[2] == "":
			p.blocks = append(p.blocks, *open)
			open = nil
		case open != nil:
			open.text += l + "\n"
		default:
			if strings.HasPrefix(l, "#") {
				heading = strings.TrimSpace(strings.TrimLeft(l, "#"))
			}
			p.lines = append(p.lines, line{number: n, text: l})
		}
	}
	if open != nil {
		p.blocks = append(p.blocks, *open)
	}
	return p
}
