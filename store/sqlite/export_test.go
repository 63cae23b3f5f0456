package sqlite

import (
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
		"fetchable": fetchableSQL, "fetch": fetchSQL, "behind": behindSQL, "due_keys": dueKeysSQL, "rest_of_key": restOfKeySQL,
		"fetch_replay": unparked(fetchReplaySQL), "settle": settleSQL, "park_keys": parkKeysSQL, "park": parkSQL, "dead_letter": deadLetterSQL,
		"dead_letter_parked": deadLetterParkedSQL, "refuse_parked": refuseParkedSQL, "advance_keys": advanceKeysSQL, "delay_keys": delayKeysSQL,
		"end_keys": endKeysSQL, "hold": holdSQL, "hold_keys": holdKeysSQL, "held_keys": heldKeysSQL, "release": releaseSQL,
		"retry_dead_letters": retryDeadLettersSQL, "retry": retrySQL, "chosen": chosenSQL,
	} {
		all[name] = parameter.ReplaceAllString(on(Table(outbox), text), "null")
	}
	return all
}

// HotQueueStatements are those that run for every claim and every end of jobs.
func HotQueueStatements(queue string) map[string]string {
	all := map[string]string{}
	for name, text := range map[string]string{
		"claimable": claimableSQL, "claim": claimSQL, "take_ready": takeReadySQL, "lease": leaseSQL, "occupy": occupySQL, "leave_keyed": leaveKeyedSQL,
		"ack": ackSQL, "extend": extendSQL, "held_lease": heldLeaseSQL, "remember": rememberSQL, "dead_letter_jobs": deadLetterJobsSQL, "cancel": cancelSQL,
		"housekeeping": housekeepingSQL, "expired": expiredSQL, "due_jobs": dueJobsSQL, "wake_keyed": wakeKeyedSQL, "wake": wakeSQL,
		"known_dedup": knownDedupSQL, "note_dedup": noteDedupSQL, "forget_dedup": forgetDedupSQL, "due_schedules": dueSchedulesSQL,
		"retry_jobs": retryJobsSQL, "retry_histories": retryHistoriesSQL, "chosen_jobs": chosenJobsSQL,
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
