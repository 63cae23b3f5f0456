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
	if s, ok := stream.(*scrubber); ok {
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

// count writes 1234567 as 1,234,567.
func count(n int64) string {
	s := fmt.Sprint(n)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// size writes bytes for people.
func size(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, suffix := float64(n), ""
	for _, suffix = range []string{"KiB", "MiB", "GiB", "TiB"} {
		if f /= unit; f < unit {
			break
		}
	}
	return fmt.Sprintf("%.1f %s", f, suffix)
}

// age writes a duration with the precision that people look for.
func age(d time.Duration) string {
	switch {
	case d == 0:
		return "-"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
