package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"

	"time"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/forward"
	"github.com/penstock/penstock/internal/tables"
)

// WithPragmas sets pragmas on the connection that writes: max_page_count makes
// a full disk.
func WithPragmas(o Options, pragmas ...string) Options {
	o.pragmas = append(o.pragmas, pragmas...)
	return o
}

// InTx makes what WorkTx gives to work.Run.
var InTx = inTx

// HotStatements are those that run for every batch, with values in place of
// their parameters.
func HotStatements(outbox string) map[string]string {
	all := map[string]string{}
	for _, name := range []string{
		"state", "fetch", "fetch_heads", "fetch_behind", "fetch_replay", "settle", "read_entries", "write_entries", "heads", "release", "discard_dead", "end_discarded",
		"reclaimable", "reclaim", "retry_parked", "give_up_parked", "revive_dead", "dead",
	} {
		all[name] = unbound(Table(outbox), statement(name))
	}
	return all
}

// HotQueueStatements are those that run for every claim and every end of jobs.
func HotQueueStatements(queue string) map[string]string {
	all := map[string]string{}
	for _, name := range []string{
		"claimable", "claim", "take_ready", "lease", "occupy", "leave_keyed", "hold_leases", "hold_to_extend", "end_jobs", "extend_leases", "read_leases", "remember", "run_later",
		"dead_letter_jobs", "cancel_jobs", "housekeeping", "read_expired", "due_jobs", "wake_keyed", "wake", "known_dedup", "note_dedup", "forget_dedup", "dead_jobs",
		"no_barrier", "note_waits", "let_go", "cancel_with_dead", "end_cancelled",
	} {
		all[name] = unbound(QueueTable(queue), statement(name))
	}
	return all
}

// SweepEvery changes how often a reader looks for what became due before its margin.
func SweepEvery(d time.Duration) (restore func()) {
	before := sweep
	sweep = d
	return func() { sweep = before }
}

// lossy is a source that commits a Settle and loses the answer.
type lossy struct {
	*source
	lose *bool
}

func (l lossy) Write(ctx context.Context, parts []*tables.Part) error {
	err := l.source.Write(ctx, parts)
	if err == nil && *l.lose {
		err = errors.New("the answer is lost")
	}
	return err
}

// SubscribeLossy subscribes with a source that loses answers while lose is true.
func SubscribeLossy(ctx context.Context, s *Store, req driver.Subscribe, lose *bool) (driver.Source, error) {
	src := &source{store: s}
	src.Reader = tables.NewReader(lossy{src, lose}, onTables{s}, func(err error) error { return err }, &s.retries, req)
	return src, src.Subscribe(ctx, src.take)
}

// Forwarding is what Forward runs over a source.
func Forwarding(src driver.Source, queue string) forward.Subscription {
	return &forwarding{source: src.(*source), queue: src.(*source).store.Queue(queue)}
}

// Prepared opens a file with connections that parse each statement once.
func Prepared(path string) *sql.DB {
	db := sql.OpenDB(connector{path, dsn(path, "rw", nil), new(atomic.Int64)})
	db.SetMaxOpenConns(1)
	return db
}
