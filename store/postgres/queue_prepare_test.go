package postgres_test

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/store/postgres"
)

// preparedName is what the test's prepared transaction is called, as SQL: no other of the server has it. The test is
// skipped where there are none.
func (f *fixture) preparedName() string {
	f.Helper()
	if f.Number("select setting::int from pg_settings where name = 'max_prepared_transactions'") == 0 {
		f.Skip("the server has max_prepared_transactions = 0")
	}
	return f.text("select quote_literal(current_database())")
}

// Maintenance waits for the real end of a transaction. Where a deferred trigger runs before that, at
// PREPARE TRANSACTION or because constraints are set immediate, it does nothing. Rows that it locked
// would stay locked for as long as the transaction continues.
func TestMaintenanceOnlyAtTheEndOfATransaction(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		statements []string // after which the transaction is open, prepared or ended
		maintained bool
		end        string
	}{
		"commit":                  {[]string{"begin", "select penstock.claim('q')", "commit"}, true, ""},
		"autocommit":              {[]string{"select penstock.claim('q')"}, true, ""},
		"procedure":               {[]string{"call claims()"}, true, ""},
		"prepare":                 {[]string{"begin", "select penstock.claim('q')", "prepare transaction 'x'"}, false, "commit prepared 'x'"},
		"prepare in one message":  {[]string{"begin; select penstock.claim('q'); PREPARE\n TRANSACTION 'x'"}, false, "commit prepared 'x'"},
		"constraints":             {[]string{"begin", "select penstock.claim('q')", "set constraints all immediate"}, false, "commit"},
		"constraints in a block":  {[]string{"begin", "do $$ begin perform penstock.claim('q'); set constraints all immediate; end $$"}, false, "commit"},
		"constraints in a script": {[]string{"begin; select penstock.claim('q'); Set Constraints penstock.maintenance immediate"}, false, "commit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newJobs(t, "fifo")
			name := f.preparedName()
			f.Exec("create procedure claims() language plpgsql as $$ begin perform penstock.claim('q'); commit; end $$")
			f.leaveBehind("select")
			f.Exec("select penstock._maintain_ring('q')") // the next one truncates a segment
			f.enqueue(f.Conn, "q", 101, 110)
			f.Exec(`select setval('penstock."_q.maintained"', 0)`) // long ago
			conn := f.Connect()
			for _, sql := range c.statements {
				_, err := conn.PgConn().Exec(f.Ctx, strings.ReplaceAll(sql, "'x'", name)).ReadAll()
				f.Must(err)
			}
			maintained := func() bool { return f.Number(`select pg_sequence_last_value('penstock."_q.maintained"')`) != 0 }
			if maintained() != c.maintained {
				t.Errorf("maintained: %t, want %t", !c.maintained, c.maintained)
			}
			if n := f.Number("select count(*) from penstock._maintenance"); n != 0 {
				t.Errorf("%d rows of _maintenance are left", n)
			}
			f.Exec("set lock_timeout = '5 s'")
			f.Exec("select penstock.queue_status('q')") // looks into every segment
			if c.end != "" {
				f.exec(conn, strings.ReplaceAll(c.end, "'x'", name))
			}
			f.Exec("select penstock.claim('q')") // the next one does it
			if !maintained() {
				t.Error("not maintained by the next transaction")
			}
		})
	}
}

// While a transaction that has enqueued a job stays open it keeps its segment. The others take turns, and the job comes once it commits.
func TestRingTurnsWithAnOpenEnqueue(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	l := newRingLoad(f, "fifo")
	const jobs = 250
	tx := f.begin(f.Connect())
	_, err := tx.Exec(f.Ctx, "select penstock.enqueue('q', 'open'::text)")
	f.Must(err)
	l.wantFlat(1, jobs, func() { l.leave("", 0, 0, jobs) })
	f.Must(tx.Commit(f.Ctx))
	f.later("q")
	if got := f.Number("select count(*) from penstock.dequeue('q', 10)"); got != 1 {
		t.Errorf("%d jobs are left, want the one of the open transaction", got)
	}
}

// While a transaction that took a job is prepared the ring continues to turn, and its job is not
// lost.
func TestRingTurnsWithAPreparedTransaction(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	name := f.preparedName()
	l := newRingLoad(f, "fifo")
	const jobs = 250
	l.add(0, "", "", jobs)
	conn := f.Connect()
	f.exec(conn, "begin")
	if got := f.take(conn, "q", 1); len(got) != 1 || got[0] != 1 {
		t.Fatalf("got %v, want job 1", got)
	}
	f.exec(conn, "prepare transaction "+name)
	l.wantTaken(jobs - 1)
	l.wantFlat(1, jobs, func() { l.leave("", 0, 0, jobs) })
	f.exec(conn, "rollback prepared "+name)
	f.later("q")
	f.wantTake("q", 10, 1)
}
