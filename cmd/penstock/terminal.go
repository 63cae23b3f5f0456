package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
)

func isTerminal(stream any) bool {
	switch s := stream.(type) {
	case *scrubber:
		stream = s.w
	case *results:
		stream = s.w
	}
	file, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(file.Fd())
}

// progress shows how long work is going, on stderr: one refreshing line on a
// terminal, otherwise, and only if asked to, a line now and then. It is used by
// one goroutine.
type progress struct {
	w        io.Writer
	terminal bool
	every    time.Duration
	last     time.Time
	width    int // of the line on the screen
}

// newProgress returns nil, which shows nothing, unless stderr is a terminal or
// the user insists.
func (a *app) newProgress(insist bool) *progress {
	switch {
	case isTerminal(a.stderr):
		return &progress{w: a.stderr, terminal: true, every: 100 * time.Millisecond}
	case insist:
		return &progress{w: a.stderr, every: time.Second}
	}
	return nil
}

// show prints the line if it is time for one.
func (p *progress) show(line string) {
	if p == nil || time.Since(p.last) < p.every {
		return
	}
	p.last = time.Now()
	if !p.terminal {
		fmt.Fprintln(p.w, line)
		return
	}
	pad := max(p.width-len(line), 0)
	fmt.Fprint(p.w, "\r", line, strings.Repeat(" ", pad))
	p.width = len(line)
}

// clear removes the line, so that something else can be printed.
func (p *progress) clear() {
	if p == nil || !p.terminal || p.width == 0 {
		return
	}
	fmt.Fprint(p.w, "\r", strings.Repeat(" ", p.width), "\r")
	p.width = 0
}
