package penstock

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"
)

// BufferOptions limit the buffer of a transaction before it writes. A store's Buffer begins such a transaction, and
// docs/guides/buffering.md describes when it writes.
type BufferOptions struct {
	// Rows is how many messages and jobs together are buffered before they are written. Default 3,072. A full buffer
	// may be written in the background while as many rows again are accepted.
	Rows int
	// Bytes is how many bytes of them are, as Message.Size counts. Default 16 MiB. A larger message is written alone.
	Bytes int
	// AcrossWrites: an INSERT, UPDATE, DELETE or MERGE by Exec does not flush the buffer. Set it only if neither these
	// statements nor their triggers and functions read or write an outbox or queue. Otherwise their messages come
	// before those that were published earlier.
	AcrossWrites bool
}

// SetDefaults sets the fields that are zero.
func (o *BufferOptions) SetDefaults() {
	o.Rows, o.Bytes = cmp.Or(o.Rows, 3072), cmp.Or(o.Bytes, 16<<20)
}

// FlushReason is why a buffered transaction wrote its buffer.
type FlushReason string

const (
	FlushFull      FlushReason = "buffer full"
	FlushRead      FlushReason = "read"      // a query, or a batch, must see published messages
	FlushWrite     FlushReason = "statement" // it may have a trigger that publishes, or take locks
	FlushSavepoint FlushReason = "savepoint" // one begins, or is released
	FlushIDs       FlushReason = "ids of jobs"
	FlushOutside   FlushReason = "outside" // the connection was handed out
	FlushAsked     FlushReason = "Flush"
	FlushCommit    FlushReason = "commit"
)

var flushReasons = []FlushReason{FlushFull, FlushRead, FlushWrite, FlushSavepoint, FlushIDs, FlushOutside, FlushAsked, FlushCommit}

// BufferStats count the writes of a buffered transaction so far.
type BufferStats struct {
	Writes     int   // messages and jobs that were published and enqueued
	Bytes      int64 // their size, as Message.Size counts
	Statements int   // statements that wrote them
	Flushes    map[FlushReason]int
	// FlushTime is how long the flushes took. It includes those that ran while the program continued.
	FlushTime time.Duration
}

// Flushed is the number of flushes for any reason.
func (s BufferStats) Flushed() (n int) {
	for _, of := range s.Flushes {
		n += of
	}
	return n
}

// Explain returns the stats as a small table for people to read.
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

// PendingJobs are jobs that a buffered transaction has accepted, and may not have written yet.
type PendingJobs interface {
	// Enqueued returns the id of each job, or that it is a duplicate, in the order in which they were given. It flushes the
	// buffer if they are still in it. It returns the error of the flush, or an error if they were rolled back before.
	Enqueued(ctx context.Context) ([]Enqueued, error)
}
