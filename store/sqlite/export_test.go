package sqlite

import (
	"database/sql"

	"time"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/forward"
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
	for name, text := range map[string]string{
		"fetchable": statement("fetchable"), "fetch": statement("fetch"), "behind": statement("behind"), "due_keys": statement("due_keys"), "rest_of_key": statement("rest_of_key"),
		"fetch_replay": statement("fetch_replay"), "settle": statement("settle"), "park_keys": statement("park_keys"), "park": statement("park"), "dead_letter": statement("dead_letter"),
		"dead_letter_parked": statement("dead_letter_parked"), "refuse_parked": statement("refuse_parked"), "advance_keys": statement("advance_keys"), "delay_keys": statement("delay_keys"),
		"end_keys": statement("end_keys"), "hold": statement("hold"), "hold_keys": statement("hold_keys"), "held_keys": statement("held_keys"), "release": statement("release"),
		"retry_dead_letters": statement("retry_dead_letters"), "retry": statement("retry"), "chosen": statement("chosen"),
	} {
		all[name] = unbound(Table(outbox), text)
	}
	return all
}

// HotQueueStatements are those that run for every claim and every end of jobs.
func HotQueueStatements(queue string) map[string]string {
	all := map[string]string{}
	for _, name := range []string{
		"claimable", "claim", "take_ready", "lease", "occupy", "leave_keyed", "hold_leases", "end_jobs", "extend_leases", "read_leases", "remember", "run_later",
		"dead_letter_jobs", "cancel_jobs", "housekeeping", "read_expired", "due_jobs", "wake_keyed", "wake", "known_dedup", "note_dedup", "forget_dedup", "dead_jobs",
	} {
		all[name] = unbound(QueueTable(queue), statement(name))
	}
	return all
}

// RestartEvery changes how often the reading of due keys starts anew.
func RestartEvery(d time.Duration) (restore func()) {
	before := restartEvery
	restartEvery = d
	return func() { restartEvery = before }
}

// Forwarding is what Forward runs over a source.
func Forwarding(src driver.Source, queue string) forward.Subscription {
	return &forwarding{source: src.(*source), queue: src.(*source).store.Queue(queue)}
}

// Prepared opens a file with connections that parse each statement once.
func Prepared(path string) *sql.DB {
	db := sql.OpenDB(connector{dsn(path, "rw", nil)})
	db.SetMaxOpenConns(1)
	return db
}
