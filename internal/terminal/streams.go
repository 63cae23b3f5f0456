// Package terminal is shared by the command lines of all programs: output on a terminal, and exit codes for
// scripts.
//
//	exit.go database_error.go   exit codes, wrong arguments, and the next step for an error of a database
//	streams.go scrub.go log.go  standard output and error, without passwords; progress
//	signals.go                  the effect of Ctrl-C
//	table.go text.go            lists, names and numbers for people
package terminal

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/mattn/go-isatty"
)

// IsTerminal reports whether a stream, however it is wrapped here, is a terminal.
func IsTerminal(stream any) bool {
	switch s := stream.(type) {
	case *Scrubber:
		stream = s.w
	case *Results:
		stream = s.W
	}
	file, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(file.Fd())
}

// Progress shows the progress of long work on stderr. On a terminal it is one refreshing line,
// otherwise, and only on request, an occasional line.
type Progress struct {
	w        io.Writer
	terminal bool
	every    time.Duration
	last     time.Time
	mu       sync.Mutex
	width    int // of the line on the screen
}

// NewProgress returns nil, which shows nothing, unless stderr is a terminal or the user asks for
// it.
func NewProgress(stderr io.Writer, insist bool) *Progress {
	switch {
	case IsTerminal(stderr):
		return &Progress{w: stderr, terminal: true, every: 100 * time.Millisecond}
	case insist:
		return &Progress{w: stderr, every: time.Second}
	}
	return nil
}

// Show prints the line if it is time for one.
func (p *Progress) Show(line string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.last) < p.every {
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

// Clear removes the line, so that something else can be printed.
func (p *Progress) Clear() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.terminal || p.width == 0 {
		return
	}
	fmt.Fprint(p.w, "\r", strings.Repeat(" ", p.width), "\r")
	p.width = 0
}

// Results is stdout. It remembers the first failed write.
type Results struct {
	W   io.Writer
	mu  sync.Mutex
	err error
}

func (r *Results) Write(p []byte) (int, error) {
	n, err := r.W.Write(p)
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.err = cmp.Or(r.err, err)
	}
	return n, err
}

// Err is the error of the first failed write.
func (r *Results) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}
