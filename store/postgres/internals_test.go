package postgres_test

import (
	"testing"

	"github.com/penstock/penstock/store/postgres"
)

// The views decode what the registers of a queue and the cursor of a subscription hold, whatever the names, and only for the owner.
func TestInternalsAreShownDecoded(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{Segments: 2})
	f.Exec(`select penstock.create_queue('emails'), penstock.create_queue('My "x"', 'lifo')`)
	queue := `select concat_ws(' ', ordering, turn, written_to, listed, retired, priorities, keyed, watched, last_seq, fast_path) from penstock.queue_internals where queue = $1`
	f.wantText("fifo 0 0 {0} {} {0} f f by the skip map", queue, "emails")
	f.Exec(`select penstock.enqueue('My "x"', 'x', key => 'k', priority => 3), penstock.pause_queue('My "x"')`)
	f.wantText("lifo 0 0 {0} {} {0,3} t t 1 by the skip map", queue, `My "x"`)
	f.Exec("select penstock.enqueue('emails', 'x') from generate_series(1, 3)")
	f.Exec("select penstock.dequeue('emails')")
	f.wantText("fifo 0 0 {0} {} {0} f f 3 few jobs wait", queue, "emails")

	outbox := `select concat_ws(' ', written_to, cardinality(segment_bytes), last_seq, subscription, holder, epoch, settled) from penstock.outbox_internals where outbox = 'orders'`
	f.wantText("0 2", outbox) // without a subscription
	f.insert(f.Conn, "k", "x")
	f.drain(f.subscribe())
	f.wantText("0 2 1 sub test 1 1", outbox)

	name, asRole := f.role()
	f.Exec("select penstock.grant_operator('emails', $1), penstock.grant_relay($1)", name)
	f.wantMay(asRole, nil, []string{"select * from penstock.queue_internals", "select * from penstock.outbox_internals"})
}
