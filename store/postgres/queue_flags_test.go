package postgres_test

import "testing"

// A statement that is cancelled while it changes what a register says leaves no lock behind in its session: others would wait for it for as
// long as that lasts.
func TestCancelledStatementLeavesNoLock(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	other, blocker := f.Connect(), f.Connect()
	for what, register := range map[string][2]string{
		"pause":              {"select penstock.pause_queue('q')", "fast_path"},
		"the first of a key": {`select penstock."_q.flags"(4294967296)`, "flags"},
	} {
		tx := f.begin(blocker)
		_, err := tx.Exec(f.Ctx, `alter sequence penstock."_q.`+register[1]+`" cycle`) // who reads or sets it waits
		f.Must(err)
		done := make(chan error, 1)
		go func() {
			_, err := other.Exec(f.Ctx, register[0])
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
