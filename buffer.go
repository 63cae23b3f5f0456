package penstock

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"
)

// BufferOptions bound what a buffered transaction holds back. A store's Buffer begins one; docs/guides/buffering.md says
// when it writes.
type BufferOptions struct {
	// Messages and jobs together that are written at once; 3,072 unless it is set. While they are on their
	// way as many again are taken.
	Rows int
	// Bytes of them that are, as Message.Size counts; 16 MiB unless it is set. What is larger by itself goes alone.
	Bytes int
	// AcrossWrites: an INSERT, UPDATE, DELETE or MERGE by Exec does not write what is buffered first. Set it where
	// none of them, no trigger and no function that they call, reads or writes an outbox or queue: their
	// messages would go ahead of those that were published before.
	AcrossWrites bool
}

// SetDefaults fills in what is not set.
func (o *BufferOptions) SetDefaults() {
	o.Rows, o.Bytes = cmp.Or(o.Rows, 3072), cmp.Or(o.Bytes, 16<<20)
}

// FlushReason is why a buffered transaction wrote what it held.
type FlushReason string

const (
	FlushFull      FlushReason = "buffer full"
	FlushRead      FlushReason = "read"      // a query, or a batch, must see what was published
	FlushWrite     FlushReason = "statement" // it may have a trigger that publishes, or take locks
	FlushSavepoint FlushReason = "savepoint" // one begins, or is released
	FlushIDs       FlushReason = "ids of jobs"
	FlushOutside   FlushReason = "outside" // the connection was handed out
	FlushAsked     FlushReason = "Flush"
	FlushCommit    FlushReason = "commit"
)

var flushReasons = []FlushReason{FlushFull, FlushRead, FlushWrite, FlushSavepoint, FlushIDs, FlushOutside, FlushAsked, FlushCommit}

// BufferStats are what a buffered transaction has done so far.
type BufferStats struct {
	Writes     int   // messages and jobs that were given
	Bytes      int64 // of these, as Message.Size counts
	Statements int   // that wrote them
	Flushes    map[FlushReason]int
	// FlushTime is how long the flushes took, also where the program went on meanwhile.
	FlushTime time.Duration
}

// Flushed is the number of flushes for any reason.
func (s BufferStats) Flushed() (n int) {
	for _, of := range s.Flushes {
		n += of
	}
	return n
}

// Explain is the stats as a small table for people.
func (s BufferStats) Explain() string {
	var b strings.Builder
	line := func(name, format string, v any) { fmt.Fprintf(&b, "%-17s "+format+"\n", name, v) }
	line("Write requests", "%10d", s.Writes)
	line("Bytes", "%10d", s.Bytes)
	line("Statements", "%10d", s.Statements)
	line("Flush requests", "%10d", s.Flushed())
	for _, reason := range flushReasons {
		if n := s.Flushes[reason]; n > 0 {
			line("  "+string(reason), "%10d", n)
		}
	}
	line("Flush time", "%10s", s.FlushTime.Round(10*time.Microsecond))
	return b.String()
}

// PendingJobs are jobs that a buffered transaction has taken, and may not have written yet.
type PendingJobs interface {
	// Enqueued says what became of each, in the order given. It writes what is buffered if they are in it. An
	// error is that of the flush, or that they were rolled back before.
	Enqueued(ctx context.Context) ([]Enqueued, error)
}
