package postgres_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// A broken segment holds up neither the leases that have ended, nor the other segments, and the status
// shows it. Here the seq of a job that should be carried over came again, as after a restore by hand.
func TestTroubleWithASegment(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.leaveBehind("insert into penstock.q (payload, group_key) values ('left', 'g')")
	f.Exec(`insert into penstock.q (seq, payload, group_key) select seq, 'again', 'g' from penstock."_q.0" where group_key = 'g'`)
	f.enqueue(f.Conn, "q", 101, 500) // it continues with the third one
	f.Exec("select penstock._maintain_ring('q')")
	f.wantText("2", `select (pg_sequence_last_value('penstock."_q.ring"') % 1024)::text`)
	if got := f.take(f.Conn, "q", 10000); len(got) == 0 {
		t.Fatal("no job")
	}
	f.Exec("select penstock.enqueue('q', '9')")
	if len(f.claim(1)) != 1 {
		t.Fatal("no job to claim")
	}
	f.Exec("update penstock._lease set lease_until = now() - interval '1 s'")
	f.Exec("update penstock._segment set leaving = true, again = null where slot = 0")
	f.Exec("update penstock._segment set trouble = 'of before', again = null where slot = 1")
	f.Exec(maintainAtOnce, pgx.QueryExecModeSimpleProtocol)
	f.maintain()
	f.wantText("9", "select string_agg(convert_from(payload, 'UTF8'), ',') from penstock.q where group_key = ''") // its lease has ended
	all, err := f.store.QueueStatus(f.Ctx)
	f.Must(err)
	if got := strings.Join(all[0].Trouble, "; "); !strings.Contains(got, "segment 0: duplicate key value") || strings.Contains(got, "of before") {
		t.Errorf("the status tells of %q", got)
	}
	f.Exec(`delete from penstock.q where payload = 'again'`)
	for range 4 {
		f.Exec(maintainAtOnce, pgx.QueryExecModeSimpleProtocol)
	}
	all, err = f.store.QueueStatus(f.Ctx)
	f.Must(err)
	if len(all[0].Trouble) != 0 {
		t.Errorf("the trouble is over, and the status tells of %q", all[0].Trouble)
	}
	f.wantText("left", "select convert_from(payload, 'UTF8') from penstock.dequeue('q', 1, 'g')")
}
