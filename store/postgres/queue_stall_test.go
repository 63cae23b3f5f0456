package postgres_test

import "testing"

// The name of a session that stands still between two statements of a function, while others continue.
const stopped = "stopped"

// stopHere is a statement with which rewrite has that session stop, until whileStopped lets it continue.
const stopHere = "perform pg_catalog.pg_advisory_xact_lock_shared(1) where pg_catalog.current_setting('application_name') operator(pg_catalog.=) '" + stopped + "';"

// whileStopped runs a statement that returns a text, on a session that stops, and something else meanwhile.
func (f *fixture) whileStopped(meanwhile func(), sql string, args ...any) (text string) {
	f.Helper()
	gate, conn, ended := f.begin(f.Connect()), f.Connect(), make(chan error, 1)
	f.exec(gate.Conn(), "select pg_advisory_xact_lock(1)")
	f.exec(conn, "set application_name = '"+stopped+"'")
	go func() { ended <- conn.QueryRow(f.Ctx, sql, args...).Scan(&text) }()
	f.Eventually("it is stopped", func() bool {
		select {
		case err := <-ended:
			f.Fatalf("it did not stop: %v", err)
		default:
		}
		return f.Number("select count(*) from pg_locks where pid = $1 and not granted and locktype = 'advisory'", conn.PgConn().PID()) == 1
	})
	meanwhile()
	f.Must(gate.Rollback(f.Ctx))
	f.Must(<-ended)
	return text
}

const payloadsOf = "select coalesce(string_agg(convert_from(payload, 'UTF8'), ','), '') from "

// A group gets a limit. A claim that had begun before commits while the jobs that run are listed: its job counts as well.
func TestGroupLimitOfAClaimThatCommitsMeanwhile(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue_many('q', '{a,b,c}', group_keys => '{g,g,g}')")
	f.wantText("a", payloadsOf+"penstock.claim('q', group_key => 'g')")
	late := f.begin(f.Connect())
	f.run(late, "select penstock.claim('q', group_key => 'g')")
	f.rewrite(`update (penstock\.)?_lease l set listed = true`, stopHere+` \&`)
	f.whileStopped(func() { f.Must(late.Commit(f.Ctx)) }, "select coalesce(penstock.set_group('q', 'g', max_running => 2)::text, '')")
	f.Exec(`select setval('penstock."_q.maintained"', 0)`)
	f.maintain()
	f.wantText("", payloadsOf+"penstock.claim('q', group_key => 'g')")
}

// A skip map is made while the ring moves on, and a job is carried over to a segment that is not on its list. The job is found.
func TestSkipMapWhileTheRingMovesOn(t *testing.T) {
	t.Parallel()
	for _, ordering := range []string{"fifo", "lifo"} {
		t.Run(ordering, func(t *testing.T) {
			t.Parallel()
			f := newJobs(t, ordering)
			f.Exec("insert into penstock.q (payload, group_key) values ('left', 'g')")
			f.Exec(`select penstock."_q.skip_map"('g', 0::smallint), penstock."_q.skip_map"('g', 0::smallint)`) // it knows how far the sequence had come
			f.rewrite(`late  int8multirange := '{}';\nbegin`, `\& `+stopHere)
			f.whileStopped(func() {
				f.leaveBehind("select")
				f.Exec(`select penstock._carry_over('penstock."_q.0"', 'penstock."_q.1"', 1, 100)`)
			}, `select coalesce(min(s.n), 0)::text from penstock."_q.skip_map"('g', 0::smallint) s`)
			got := ""
			for range 3 {
				got += f.text(payloadsOf + "penstock.dequeue('q', 1, 'g')")
			}
			if got != "left" {
				t.Errorf("took %q, want the job that was left", got)
			}
		})
	}
}
