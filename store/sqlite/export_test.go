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

// What the fuzz test compares.
var (
	DecodeHeaders = decodeHeaders
	DecodePlain   = decodePlain
	DecodeJSON    = decodeJSON
	EncodeHeaders = encodeHeaders
)

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
		all[name] = parameter.ReplaceAllString(on(Table(outbox), text), "null")
	}
	return all
}

// HotQueueStatements are those that run for every claim and every end of jobs.
func HotQueueStatements(queue string) map[string]string {
	all := map[string]string{}
	for name, text := range map[string]string{
		"claimable": statement("claimable"), "claim": statement("claim"), "take_ready": statement("take_ready"), "lease": statement("lease"), "occupy": statement("occupy"), "leave_keyed": statement("leave_keyed"),
		"ack": statement("ack"), "extend": statement("extend"), "held_lease": statement("held_lease"), "remember": statement("remember"), "dead_letter_jobs": statement("dead_letter_jobs"), "cancel": statement("cancel"),
		"housekeeping": statement("housekeeping"), "expired": statement("expired"), "due_jobs": statement("due_jobs"), "wake_keyed": statement("wake_keyed"), "wake": statement("wake"),
		"known_dedup": statement("known_dedup"), "note_dedup": statement("note_dedup"), "forget_dedup": statement("forget_dedup"), "due_schedules": statement("due_schedules"),
		"retry_jobs": statement("retry_jobs"), "retry_histories": statement("retry_histories"), "chosen_jobs": statement("chosen_jobs"),
	} {
		all[name] = parameter.ReplaceAllString(onQueue(queue, text), "null")
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
