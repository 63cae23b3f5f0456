package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/test/docblock"
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

// The page that repairs registers raises every flag there is, and that lowers them leaves those of pauses and barriers.
func TestFlagsAreRepairedAsThePageSays(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.Exec("select penstock.create_queue('emails')")
	blocks := docblock.Of(t, "docs/internals/tables.md", "sql")
	repair, lower := blocks[0], blocks[1]
	barrier := f.Number("select penstock.barrier('emails')")
	f.Exec("select penstock.enqueue('emails', 'held', priority => 3, holds => $1), penstock.enqueue('emails', 'waits', waits_for => array[$1]), penstock.seal('emails', $1)", barrier)
	f.Exec("select penstock.enqueue('emails', 'late', deadline => clock_timestamp()), penstock.enqueue('emails', 'keyed', key => 'k')")
	flags := `select pg_sequence_last_value('penstock."_emails.flags"')`
	raised := f.Number(flags)
	f.Exec(`select setval('penstock."_emails.flags"', 65536)`) // the damage
	f.Exec(repair, pgx.QueryExecModeSimpleProtocol)
	if all := f.Number(flags); all&raised != raised || all != 1<<37-1 {
		t.Fatalf("the page raises %b, jobs have raised %b", all, raised)
	}
	claimed := "select string_agg(convert_from(payload, 'UTF8'), ',' order by id) from penstock.claim('emails', 10)"
	f.wantText("held,keyed", claimed)
	f.wantText("1", "select expired::text from penstock.queue_status('emails')")
	f.Exec(lower)
	const pauses = 3 << 33 // which maintenance lowers
	if f.Number(flags)|pauses != 1<<37-1 {
		t.Error("flags are lowered while jobs are there")
	}
	f.Exec("select penstock.ack('emails', l.lease) from penstock._lease l")
	f.wantText("waits", claimed)
	f.Exec("select penstock.ack('emails', l.lease) from penstock._lease l")
	f.Exec(lower)
	if left := f.Number(flags) &^ pauses; left != 1<<16|1<<36 {
		t.Errorf("lowered to %b", left)
	}
}
