package postgres_test

import "testing"

// A statement that is cancelled while it changes what a register says leaves no lock behind in its session: others would wait for it for as
// long as that lasts.
func TestCancelledStatementLeavesNoLock(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	other, blocker := f.Connect(), f.Connect()
	for what, call := range map[string]string{
		"pause":              "select penstock.pause_queue('q')",
		"the first of a key": `select penstock."_q.flags"(4294967296)`,
	} {
		tx := f.begin(blocker)
		_, err := tx.Exec(f.Ctx, `alter sequence penstock."_q.flags" cycle`) // who reads or sets it waits
		f.Must(err)
		done := make(chan error, 1)
		go func() {
			_, err := other.Exec(f.Ctx, call)
			done <- err
		}()
		f.Eventually("the statement waits", func() bool {
			return f.Number("select count(*) from pg_locks where pid = $1 and not granted", other.PgConn().PID()) > 0
		})
		f.Exec("select pg_cancel_backend($1)", other.PgConn().PID())
		if err := <-done; err == nil {
			t.Fatalf("%s: it was not cancelled", what)
		}
		f.Must(tx.Rollback(f.Ctx))
		if n := f.Number("select count(*) from pg_locks where pid = $1 and locktype = 'advisory'", other.PgConn().PID()); n != 0 {
			t.Errorf("%s: %d locks are left in the session", what, n)
		}
	}
	f.wantText("", `select coalesce(string_agg(p.oid::regprocedure::text, ' '), '') from pg_proc p
		where p.pronamespace = 'penstock'::regnamespace and p.prosrc ~ 'pg_(try_)?advisory_(un)?lock'`) // which end with the session alone
}

// Each way to take a job asks the queue's row, as its snapshot shows it, whether the queue is paused. That holds from the commit on, wherever the
// fast path continues.
func TestOnlyACommittedPauseHolds(t *testing.T) {
	t.Parallel()
	for _, ordering := range []string{"fifo", "lifo"} {
		t.Run(ordering, func(t *testing.T) {
			t.Parallel()
			f := newJobs(t, ordering)
			f.Exec("select penstock.enqueue_many('q', array_agg('x'::text)) from generate_series(1, 2000)")
			calls := []string{"penstock.dequeue_q()", "penstock.dequeue('q')", "penstock.dequeue('q', 2)", "penstock.claim('q')", "penstock.claim('q', 2)", "penstock.ack_claim('q', '{}', 10)", "penstock.ready_groups('q')"}
			other := f.Connect()
			want := func(when string, some bool) {
				f.Helper()
				for _, call := range calls {
					if n := f.Number("select count(*) from " + call); n > 0 != some {
						t.Errorf("%s: %s has %d rows", when, call, n)
					}
				}
			}
			settle := func(sql, end, when string, before, after bool) {
				f.Helper()
				tx := f.begin(other)
				_, err := tx.Exec(f.Ctx, sql)
				f.Must(err)
				want(when+", not committed", before)
				f.maintain()
				want(when+", not committed, after maintenance", before)
				_, err = other.Exec(f.Ctx, end)
				f.Must(err)
				want(when+", "+end, after)
			}
			const pause, resume = "select penstock.pause_queue('q')", "select penstock.resume_queue('q')"
			want("at first", true)
			settle(pause, "rollback", "paused", true, true)
			settle(pause, "commit", "paused", true, false)
			settle(resume, "rollback", "resumed", false, false)
			settle(resume, "commit", "resumed", false, true)
			f.maintain()
			f.wantText("65536", `select pg_sequence_last_value('penstock."_q.flags"')::text`) // and the fast path is taken again
			for range 3 {                                                                     // a scan that has read the flags before sets the register after
				f.Exec("select penstock.dequeue_q()")
				path := f.Number(`select pg_sequence_last_value('penstock."_q.fast_path"')`)
				f.Exec(pause)
				f.Exec(`select setval('penstock."_q.fast_path"', (extract(epoch from clock_timestamp()) * 40)::bigint * 4096 + $1::bigint % 4096)`, path)
				want("paused", false)
				f.Exec(resume)
				f.maintain()
			}
		})
	}
}
