package postgres_test

import (
	"fmt"
	"strings"
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

// The statements of the pages that follow a job and a message run, and find rows.
func TestInternalsDocs(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.drain(f.subscribe())
	f.Exec("select penstock.create_queue('emails')")
	role, _ := f.role()
	f.Exec("select penstock.grant_worker('emails', $1)", role)
	rows := func(page, begins, sql string) (n int64) {
		f.Helper()
		found, err := f.Conn.PgConn().Exec(f.Ctx, sql).ReadAll()
		if err != nil {
			f.Fatalf("%s: %s: %v", page, begins, err)
		}
		for _, r := range found {
			n += r.CommandTag.RowsAffected()
		}
		return n
	}
	for _, page := range []struct {
		file   string
		blocks []int64 // how many rows each finds or changes at least
		values []string
	}{
		{"docs/internals/README.md", []int64{1}, []string{"'penstock_worker'", "'" + role + "'"}},
		{"docs/internals/job.md", []int64{1, 1, 1, 2, 1, 3},
			[]string{"{segment}", `penstock."_emails.0"`, ":lo", "1", ":hi", "100", ":n)", "100)", ":n ", "100 ", ":seq", "(select min(seq) from penstock.emails)", ":lease", "interval '1 min'"}},
		{"docs/internals/message.md", []int64{1, 1, 0, 2},
			[]string{"{segment}", `penstock."_orders.0"`, ":xip", "array['3'::xid8]", ":low", "0", ":done", "pg_current_snapshot()", ":lease", "interval '1 min'", ":expected", "(select n from penstock._head(1))"}},
	} {
		blocks := docblock.Of(t, page.file, "sql")
		if len(blocks) != len(page.blocks) {
			t.Fatalf("%s has %d blocks, want %d", page.file, len(blocks), len(page.blocks))
		}
		for i, b := range blocks {
			f.Exec("insert into penstock.emails (payload) select 'x' from generate_series(1, 3)")
			begins, _, _ := strings.Cut(b, "\n")
			if n := rows(page.file, begins, strings.NewReplacer(page.values...).Replace(b)); n < page.blocks[i] {
				t.Errorf("%s: %s: %d rows, want %d", page.file, begins, n, page.blocks[i])
			}
		}
	}
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

// The query of the page names each cause for which jobs do not start, with the job, the time or the session, and none otherwise.
func TestStuckQueueAsThePageSays(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.Exec("select penstock.create_queue('emails'), penstock.create_queue('other')")
	f.Exec("select penstock.maintain_queue('emails'), penstock.pause_queue('other')")
	stuck := strings.TrimSuffix(strings.TrimSpace(docblock.Of(t, "docs/internals/stuck.md", "sql")[0]), ";")
	causes := func(want ...string) {
		t.Helper()
		rows, err := f.Conn.Query(f.Ctx, "select cause || ': ' || detail from ("+stuck+") c order by 1")
		f.Must(err)
		got, err := pgx.CollectRows(rows, pgx.RowTo[string])
		f.Must(err)
		same := len(got) == len(want)
		for i := range got {
			same = same && strings.HasPrefix(got[i], want[i])
		}
		if !same {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	lease := "select lease::text from penstock.claim('emails', 1, '1 h', worker => 'w1')"
	ack := func(leases ...string) {
		for _, l := range leases {
			f.Exec("select penstock.ack('emails', $1::text::bigint)", l)
		}
	}
	f.Exec("select penstock.enqueue('emails', 'x') from generate_series(1, 3)")
	causes()
	f.Exec("select penstock.pause_queue('emails')")
	causes("paused: resume_queue")
	f.Exec("select penstock.resume_queue('emails'), penstock.set_queue('emails', max_running => 1)")
	first := f.text(lease)
	causes("limit of the queue: 1 of 1 jobs run")
	ack(first)
	f.Exec("select penstock.set_queue('emails', max_running => 0, rate => 1, per => '1 h')")
	second := f.text(lease)
	causes("rate of the queue: no token")
	f.Exec("select penstock.set_queue('emails', rate => 0)")
	ack(second)
	f.Exec("select penstock.set_group('emails', 'a', max_running => 1), penstock.set_group('emails', 'r', rate => 1, per => '1 h'), penstock.hold_group('emails', 'h', '1 h', 'their API is down')")
	f.Exec("select penstock.enqueue('emails', 'x', group_key => g) from unnest('{a,a,r,r,h}'::text[]) g")
	inA, inR := f.text("select lease::text from penstock.claim('emails', group_key => 'a')"), f.text("select lease::text from penstock.claim('emails', group_key => 'r')")
	causes("held group: 'h' until 2", "limit of a group: 1 of 1 jobs of 'a' run", "rate of a group: no token is left for 'r'")
	ack(inA, inR)
	f.Exec("select penstock.set_group('emails', 'a'), penstock.set_group('emails', 'r'), penstock.hold_group('emails', 'h', '0')")
	causes()

	barrier := f.Number("select penstock.barrier('emails')")
	f.Exec("select penstock.enqueue('emails', 'x', waits_for => array[$1::bigint]), penstock.enqueue('emails', 'x', not_before => clock_timestamp() + interval '1 h')", barrier)
	causes("barrier: jobs that wait until barriers open: 1", "date: jobs that are due later: 1, the first at 2")
	f.Exec("select penstock.cancel('emails', array(select s.id from penstock._scheduled s))")
	f.Exec("select penstock.enqueue('emails', 'x', key => k, group_key => 'keys') from unnest('{ann,ann,ben,ben}'::text[]) k")
	f.Exec("select penstock.retry('emails', c.lease, '1 h') from penstock.claim('emails', 2, '1 h', 'keys', 'w1') c where c.key = 'ann'")
	f.Exec("select from penstock.claim('emails', 4, '1 h', 'keys', 'w1')")
	f.Exec("select from penstock.claim('emails', 4, '1 h', 'keys', 'w1')")
	causes("date: jobs that are due later: 1", "key: jobs of 'ann': 1, which wait for job ", "key: jobs of 'ben': 1, which wait for job ")
	f.wantText("ann failed, ben leased to w1", "select string_agg(substring(detail, '''(.*)''') || ' ' || substring(detail, 'failed|leased to w1'), ', ' order by detail) from ("+stuck+") c where cause = 'key'")

	tx := f.begin(f.Connect())
	f.run(tx, "select penstock.dequeue('emails')")
	f.Exec(`select setval('penstock."_emails.maintained"', 1)`)
	minute := strings.ReplaceAll(stuck, "a.xact_start < clock_timestamp() - interval '1 min'", "a.xact_start < clock_timestamp()")
	f.wantText("no worker,open transaction", "select string_agg(cause, ',' order by cause) from ("+minute+") c where cause in ('no worker', 'open transaction')")
	f.Must(tx.Rollback(f.Ctx))

	f.Exec("select penstock.drop_queue('emails')")
	f.wantError("42P01", "select penstock.claim('emails')")
	f.wantError("42P01", "select penstock.ack('emails', 1)")
	if _, err := f.Conn.Exec(f.Ctx, "select penstock.dequeue_emails()"); !strings.Contains(fmt.Sprint(err), "(SQLSTATE 42883)") { // without a hint since PostgreSQL 19
		t.Errorf("dequeue_emails() of a dropped queue: got %v, want 42883", err)
	}
}
