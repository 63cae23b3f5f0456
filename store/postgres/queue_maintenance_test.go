package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

// What maintain_queue does about once a second it does only if sizes and registers say
// that there is something to do. Each case is one of what they have to see.
func TestMaintenanceSeesWhatThereIsToDo(t *testing.T) {
	t.Parallel()
	for _, ordering := range []string{"fifo", "lifo"} {
		t.Run(ordering, func(t *testing.T) {
			t.Parallel()
			f := newJobs(t, ordering)
			const idle = `select setval('penstock."_q.seen"', pg_sequence_last_value('penstock."_q.seen"') & 268435455)`

			f.Exec("select penstock.enqueue('q', 'a')")
			f.Exec("delete from penstock.q")
			f.maintain()
			f.wantText("0", `select (pg_sequence_last_value('penstock."_q.ring"') % 1024)::text`) // not idle yet
			f.Exec(idle)                                                                          // for as long as there is time
			f.maintain()
			f.wantText("1", `select (pg_sequence_last_value('penstock."_q.ring"') % 1024)::text`)
			f.maintain() // it leaves the list
			f.wantText("{1}", "select array_agg(slot order by turn)::text from penstock._segment where retired is null")
			f.maintain() // and is truncated
			f.wantText("0", `select pg_relation_size('penstock."_q.0"')::text`)

			f.Exec("insert into penstock.q (slot, payload) values (3, 'stray')") // as one who had read 3
			f.maintain()
			f.wantText("1", "select slot::text from penstock.q")
			f.Exec("delete from penstock.q")
			f.maintain()
			f.wantText("{1}", "select array_agg(slot order by turn)::text from penstock._segment")
			f.wantText("0", `select pg_relation_size('penstock."_q.3"')::text`)

			f.Exec("insert into penstock.q (payload) select convert_to(repeat('x', 200), 'UTF8') from generate_series(1, 400)") // a segment is full
			f.maintain()
			f.wantText("2", `select (pg_sequence_last_value('penstock."_q.ring"') % 1024)::text`)

			for _, register := range []string{"_skip_map_slot", "_lease_slot", "_scheduled_slot", "_dedup_slot"} {
				f.wantText("0", "select pg_sequence_last_value($1::regclass)::text", "penstock."+register)
			}
			f.Exec(`insert into penstock._skip_map (queue, base, seen, xid, turn, priority, group_key, lo, hi, pending, slots)
			        select 0, 0, 0, '0', 0, 0, repeat('g', 200), '{0}', '{1}', '{}', '{}' from generate_series(1, 16000)`)
			f.Exec(`insert into penstock._lease (queue, attempt, lease_until, id, created_at, priority, worker, group_key, payload)
			        select 0, 1, now() + '1 h', i, now(), 0, '', '', convert_to(repeat('x', 1000), 'UTF8') from generate_series(1, 16000) i`)
			f.maintain()
			f.wantText("1", "select pg_sequence_last_value('penstock._skip_map_slot')::text")
			f.wantText("3", "select pg_sequence_last_value('penstock._lease_slot')::text")                   // the other one is listed
			f.wantText("true", "select (again is not null)::text from penstock._pair where name = '_lease'") // others may be about to write there
			f.Exec("update penstock._pair set again = null")
			f.maintain() // nothing is left in it: whether that was committed, the next one knows
			f.maintain()
			f.wantText("1", "select pg_sequence_last_value('penstock._lease_slot')::text")
			f.maintain()
			f.wantText("0", "select (pg_relation_size('penstock._skip_map_0') + pg_relation_size('penstock._lease_0'))::text")

			f.Exec("begin; set local session_replication_role = replica; insert into penstock._maintenance (queue) select 0 from generate_series(1, 30000); delete from penstock._maintenance; commit", pgx.QueryExecModeSimpleProtocol)
			for range 5 { // full, nothing is left in it, off the list, truncated
				f.maintain()
				f.Exec("update penstock._pair set again = null")
			}
			f.wantText("1 0", "select concat_ws(' ', pg_sequence_last_value('penstock._maintenance_slot'), pg_relation_size('penstock._maintenance_0'))")

			f.Exec(`select setval('penstock."_q.flags"', 65536 | (1::bigint << 33))`) // paused, by a call that was rolled back
			f.maintain()
			f.wantText("65536", `select pg_sequence_last_value('penstock."_q.flags"')::text`)
		})
	}
}

// A pause or a limit that was rolled back ends with the next call, even if calls are seconds apart.
func TestRolledBackSettingsEndWithALoneCall(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	for _, call := range []string{"select penstock.dequeue('q', 5)", "select penstock.dequeue('q')", "select penstock.claim('q')"} {
		for range 8 { // one in four would also look after the storage
			f.Exec("begin")
			f.Exec("select penstock.pause_queue('q'), penstock.set_queue('q', max_running => 1)")
			f.Exec("rollback")
			f.Exec(`select setval('penstock."_q.maintained"', (extract(epoch from clock_timestamp()) * 1000)::bigint - 10000)`)
			f.Exec(call)
			f.wantText("65536", `select pg_sequence_last_value('penstock."_q.flags"')::text`)
		}
	}
}
