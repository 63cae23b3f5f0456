package doctor

import (
	"context"
	"fmt"
)

// Explainer is a store that runs the statements of messages and jobs, measures the reads of each, and
// rolls everything back. Unknown names are errors, as elsewhere.
type Explainer interface {
	ExplainOutbox(ctx context.Context, outbox string) ([]Statement, error)
	ExplainQueue(ctx context.Context, queue string) ([]Statement, error)
}

// Statement is the result of one of them. Without Measured there is only a plan.
type Statement struct {
	Of         string   `json:"of"`        // the outbox and subscription, or the queue
	Name       string   `json:"statement"` // fetch, settle; dequeue, claim, ack
	RoundTrips int      `json:"round_trips"`
	Rows       int64    `json:"rows"` // messages or jobs that it returned or settled
	Measured   bool     `json:"measured"`
	Entries    int64    `json:"index_entries"`
	Dead       int64    `json:"dead"`     // entries that led to no row: deleted, rolled back, or taken by another
	Scanned    int64    `json:"scanned"`  // rows that were read without an index
	Pages      int64    `json:"pages"`    // each time that one was requested
	TablePages int64    `json:"of_pages"` // the size of the outbox or queue, with indexes
	Seconds    float64  `json:"seconds"`  // in the server, including EXPLAIN's own cost
	Busiest    string   `json:"busiest"`  // the table or index with the most reads
	Storage    *Storage `json:"storage,omitempty"`
	Plan       []string `json:"plan,omitempty"`
	Verdict    string   `json:"verdict"` // a sentence
	Slow       bool     `json:"slow"`
}

// Storage is how often the storage of a distributed engine was accessed. A figure that the engine does not report is 0.
type Storage struct {
	Reads   int64 `json:"read_requests"`
	Writes  int64 `json:"write_requests"`
	Flushes int64 `json:"flush_requests"` // each is a round trip to the tablets that writes wait for
	Rows    int64 `json:"rows_scanned"`
	Seeks   int64 `json:"seeks"` // of RocksDB or Pebble, deleted rows with them
	Nexts   int64 `json:"nexts"`
}

// How much a statement may read in addition to ten times its result. A relay fetches everything
// since its last write of the cursor, and a claim reads skip maps and the ends of segments.
const (
	spareEntries = 2000
	sparePages   = 1000
)

// Judge sets the verdict.
func (s *Statement) Judge() {
	per := func(n int64) string { return fmt.Sprintf("%d for %d rows", n, s.Rows) }
	switch most := 10*s.Rows + spareEntries; {
	case !s.Measured:
	case s.Storage != nil && s.Storage.slow(s.Rows) != "":
		s.Slow, s.Verdict = true, s.Storage.slow(s.Rows)
	case s.Scanned > most:
		s.Slow, s.Verdict = true, "reads "+s.Busiest+" without an index: rows, "+per(s.Scanned)+"; an index is missing, which penstock migrate --check may know of"
	case s.Dead > most:
		s.Slow, s.Verdict = true, "steps over dead rows: "+per(s.Dead)+", most of them in "+s.Busiest+"; penstock doctor shows the cause"
	case s.Entries > most:
		s.Slow, s.Verdict = true, "walks far: index entries, "+per(s.Entries)+", most of them of "+s.Busiest
	case s.Pages > 20*s.Rows+sparePages:
		s.Slow, s.Verdict = true, "reads many pages: "+per(s.Pages)+", most of them of "+s.Busiest
	default:
		s.Verdict = "reads the rows that it returns and few others"
	}
}

// Writes wait in a buffer, which YugabyteDB flushes when it has 3,072; a few more flushes belong to the statement.
const (
	fewWrites  = 10 // to a flush
	fewFlushes = 20
)

// slow names the part that takes long, or "" if nothing does.
func (g *Storage) slow(rows int64) string {
	switch most := 10*max(rows, g.Rows) + spareEntries; {
	case g.Flushes > fewFlushes && g.Writes < fewWrites*g.Flushes:
		return fmt.Sprintf("flushes row by row: %d flushes for %d writes; a trigger, ON CONFLICT or a function keeps writes from being sent together", g.Flushes, g.Writes)
	case g.Seeks+g.Nexts > most:
		return fmt.Sprintf("walks over deleted rows: %d seeks and %d nexts in the storage for %d rows; a compaction takes them away, or nothing keeps a position behind which it begins", g.Seeks, g.Nexts, rows)
	case g.Rows > 10*rows+spareEntries:
		return fmt.Sprintf("reads far: %d rows were scanned in the storage for %d", g.Rows, rows)
	case g.Reads > rows+fewFlushes*fewWrites:
		return fmt.Sprintf("asks the storage row by row: %d reads for %d rows", g.Reads, rows)
	}
	return ""
}
