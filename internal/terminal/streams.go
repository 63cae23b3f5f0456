// Package terminal is what command lines share, whichever program they are of: what they show on a terminal,
// and what their ends tell a script.
//
//	exit.go database_error.go   exit codes, wrong arguments, and the next step for an error of a database
//	streams.go scrub.go log.go  standard output and error, without passwords; progress
//	signals.go                  what Ctrl-C ends
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

// IsTerminal reports whether a stream, however it is wrapped here, is one.
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

// Progress shows how long work is going, on stderr: one refreshing line on a
// terminal, otherwise, and only if asked to, a line now and then. It is used by
// one goroutine.
type Progress struct {
	w        io.Writer
	terminal bool
	every    time.Duration
	last     time.Time
	width    int // of the line on the screen
}

// NewProgress returns nil, which shows nothing, unless stderr is a terminal or
// the user insists.
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

// Clear removes the line, so that something else can be printed.
func (p *Progress) Clear() {
	if p == nil || !p.terminal || p.width == 0 {
		return
	}
	fmt.Fprint(p.w, "\r", strings.Repeat(" ", p.width), "\r")
	p.width = 0
}

// Results is stdout, and remembers the first write that failed.
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

// Err is that of the first write that failed.
func (r *Results) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}
