package postgres_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// noteBeginnings makes each job that may run leave a note. It ends the jobs of the key from 2 to 299, and returns the lease of 300.
func (f *fixture) noteBeginnings(key string) (lease int64) {
	f.Helper()
	f.rewrite(`hashint8\(ids\[i\]\) % 64 = 0`, "true")
	f.Exec("select count(*) from generate_series(2, 400) i, lateral penstock.enqueue('q', i::text, key => $1)", key)
	lease = f.endJobs(200)
	for id := int64(201); id <= 300; id++ {
		f.Exec(`select penstock."_q.skip_map"('', 0::smallint)`)
		f.Exec("select penstock.ack('q', $1)", lease)
		lease = f.wantClaim(1, id)[0].lease
	}
	f.wantNotes()
	return lease
}

// wantNextOfKey ends the jobs of the key that come next.
func (f *fixture) wantNextOfKey(want ...int64) {
	f.Helper()
	var got []int64
	for len(got) < len(want) {
		js := f.claim(1)
		if len(js) == 0 {
			f.Exec("select setval('penstock.\"_q.maintained\"', 0)")
			f.maintain()
			if js = f.claim(1); len(js) == 0 {
				break
			}
		}
		j := js[0]
		if f.Exec("select penstock.ack('q', $1)", j.lease); j.key != "" {
			got = append(got, j.id)
		}
	}
	if !slices.Equal(got, want) {
		f.Errorf("%v are the next of the key, want %v", got, want)
	}
}

// A unique job that came back is put off: jobs of its key wait for it.
func TestBeginningOfAKeyAndAJobPutOff(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"replace", "debounce"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			f := newJobs(t, "fifo")
			f.Exec("select penstock.enqueue('q', 'x', unique_key => 'k')")
			f.Exec("select penstock.dead_letter('q', lease, 'broken') from penstock.claim('q')")
			lease := f.noteBeginnings("k")
			f.Exec("select penstock.retry_dead_jobs('q', '{1}')")
			max := ""
			if mode == "debounce" {
				max = ", debounce_max => interval '1 day'"
			}
			f.Exec(fmt.Sprintf("select penstock.enqueue('q', 'y', unique_key => 'k', on_conflict => '%s', not_before => clock_timestamp() + interval '1 h'%s)", mode, max))
			f.wantText("1,-1", "select id || ',' || attempt from penstock._scheduled where due < 'infinity'")
			f.Exec("select penstock.ack('q', $1)", lease)
			f.wantClaim(1) // 301 waits for 1
			f.ripen()
			f.wantNextOfKey(1, 301, 302)
		})
	}
}

// A claim with an old snapshot writes no note beyond a job that was moved since.
func TestBeginningOfAKeyInAnOldSnapshot(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue('q', 'x', key => 'k', not_before => now() + interval '1 h')")
	lease := f.noteBeginnings("k")
	f.Exec("delete from penstock.q") // the others
	f.Exec("delete from penstock._scheduled where due = 'infinity'")
	f.Exec("select penstock.enqueue('q', 'second', key => 'k', not_before => now() + interval '1 h')")
	f.Exec("select penstock.enqueue('q', 'other group', key => 'k', group_key => 'g')")
	for range 3 {
		f.Exec(`select penstock."_q.skip_map"('g', 0::smallint)`)
	}
	f.Exec("select penstock.ack('q', $1)", lease)
	old, err := f.Connect().BeginTx(f.Ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	f.Must(err)
	f.run(old, "select count(*) from penstock.q")
	f.ripen()
	one := f.claim(1)[0]
	f.wantText("1", "select $1::text", fmt.Sprint(one.id))
	f.wantClaim(1) // moves 401
	second := f.Number("select id from penstock._scheduled where due = 'infinity'")
	var id, l int64
	f.Must(old.QueryRow(f.Ctx, "select id, lease from penstock.claim('q', 1, group_key => 'g')").Scan(&id, &l))
	f.Must(old.Commit(f.Ctx))
	f.Exec("select penstock.ack('q', $1)", one.lease)
	f.Exec("select penstock.ack('q', $1)", l)
	f.maintain()
	f.wantNextOfKey(second)
}

// copySkipMaps does the first half of a turn of the ring of skip maps.
func (f *fixture) copySkipMaps() {
	f.Helper()
	f.rewrite(`pg_relation_size\(here\) < 4194304`, `false`)
	f.Exec("select penstock._reclaim_skip_maps()")
	f.wantText("0", "select pg_sequence_last_value('penstock._skip_map_slot')::text")
}

// The ring of skip maps turns: its register shows that before the transaction commits.
func TestBeginningOfAKeyWhileTheRingTurns(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue('q', 'x', key => 'k')")
	f.Exec("select penstock.dead_letter('q', lease, 'broken') from penstock.claim('q')")
	lease := f.noteBeginnings("k")
	f.Exec("delete from penstock.q") // the others
	f.Exec("delete from penstock._scheduled where due = 'infinity'")
	f.Exec("select penstock.enqueue('q', 'a', key => 'k', group_key => 'g'), penstock.enqueue('q', 'b', key => 'k', group_key => 'g')")
	for range 3 {
		f.Exec(`select penstock."_q.skip_map"('g', 0::smallint)`)
	}
	f.copySkipMaps()
	back := f.begin(f.Connect())
	f.run(back, "select penstock.retry_dead_jobs('q', '{1}')")
	turn := f.begin(f.Connect())
	f.run(turn, "select penstock._reclaim_skip_maps()")
	f.wantText("1", "select pg_sequence_last_value('penstock._skip_map_slot')::text")
	f.Exec("select penstock.ack('q', $1)", lease)
	f.wantText("a", payloadsOf+"penstock.dequeue('q', 1, 'g')")
	f.Must(turn.Commit(f.Ctx))
	f.Must(back.Commit(f.Ctx))
	f.wantText("", payloadsOf+"penstock.dequeue('q', 1, 'g')")
}

// A turn is rolled back, and its register is not; as after a restore of a dump, whose registers are younger than its rows.
func TestBeginningOfAKeyAfterATurnIsRolledBack(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue('q', 'x', key => 'k')")
	f.Exec("select penstock.dead_letter('q', lease, 'broken') from penstock.claim('q')")
	lease := f.noteBeginnings("k")
	f.copySkipMaps()
	turn := f.begin(f.Connect())
	f.run(turn, "select penstock._reclaim_skip_maps()")
	f.Must(turn.Rollback(f.Ctx))
	f.wantText("1", "select pg_sequence_last_value('penstock._skip_map_slot')::text")
	f.Exec("select penstock.retry_dead_jobs('q', '{1}')")
	f.wantClaim(10) // moves it
	f.wantText("true", "select exists (select from penstock._scheduled where id = 1)::text")
	for range 3 {
		f.Exec("select penstock._reclaim_skip_maps()")
	}
	f.Exec("select penstock.ack('q', $1)", lease)
	f.wantNextOfKey(1, 301, 302)
}

// The counter of leases is set back, and passes where it was while a job of the key runs.
func TestBeginningOfAKeyAndLeasesSetBack(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue('q', 'x')")
	f.claim(1)
	lease := f.noteBeginnings("k")
	f.Exec("delete from penstock.q") // the others
	f.Exec("delete from penstock._scheduled where due = 'infinity'")
	f.Exec("select setval('penstock._lease_n', 10)")
	f.Exec("select penstock.ack('q', $1)", lease)
	f.rewrite(`and true having count`, `and false having count`) // the next leaves none
	f.Exec("select penstock.enqueue('q', 'a', key => 'k')")
	f.wantText("a", payloadsOf+"penstock.claim('q')")
	f.Exec("select setval('penstock._lease_n', 100000)")
	f.Exec("select penstock.enqueue('q', 'b', key => 'k')")
	f.wantText("", payloadsOf+"penstock.claim('q')")
}

// A claim stands still before it writes a note. A transaction in flight ends, and a skip map without it is made.
func TestBeginningOfAKeyByAYoungerSkipMap(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.rewrite(`hashint8\(ids\[i\]\) % 64 = 0`, "true")
	tx := f.begin(f.Connect())
	f.run(tx, "select penstock.enqueue('q', 'late', key => 'k')")
	f.Exec("select penstock.enqueue('q', 'a', key => 'k', group_key => 'g'), penstock.enqueue('q', 'b', key => 'k', group_key => 'g')")
	for range 3 {
		f.Exec(`select penstock."_q.skip_map"('g', 0::smallint)`)
	}
	f.rewrite(`perform penstock\._note_keys`, stopHere+` \&`)
	got := f.whileStopped(func() {
		f.Must(tx.Commit(f.Ctx))
		for range 3 {
			f.Exec(`select penstock."_q.skip_map"('g', 0::smallint)`)
		}
	}, payloadsOf+"penstock.dequeue('q', 1, 'g')")
	f.wantText("a", "select $1::text", got)
	f.wantText("", payloadsOf+"penstock.dequeue('q', 1, 'g')")
	f.wantText("late", payloadsOf+"penstock.dequeue('q')")
}

// A note of another cluster waits for a transaction of the future: that has ended. It does not hold again when this cluster comes to the number.
func TestBeginningOfAKeyOfAnotherCluster(t *testing.T) {
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue('q', 'x', key => 'k')")
	f.Exec("select penstock.dead_letter('q', lease, 'broken') from penstock.claim('q')")
	lease := f.noteBeginnings("k")
	f.Exec("select penstock.retry_dead_jobs('q', '{1}')")
	at := f.Number("select pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 100")
	f.Exec("update penstock._skip_map set pending = array[$1::text::xid8] where queue < 0 and priority = 0", fmt.Sprint(at))
	f.wantClaim(10) // moves 1
	f.wantText("true", "select exists (select from penstock._scheduled where id = 1)::text")
	conn := f.Connect()
	for {
		tx := f.begin(conn)
		var x int64
		f.Must(tx.QueryRow(f.Ctx, "select pg_current_xact_id()::text::bigint").Scan(&x))
		if x == at {
			break
		}
		if x > at {
			t.Skip("others have drawn it")
		}
		f.Must(tx.Rollback(f.Ctx))
	}
	f.Connect()
	f.Exec("select pg_current_xact_id()") // so that it is below the snapshots' end
	f.Exec("select penstock.ack('q', $1)", lease)
	f.wantNextOfKey(1, 301, 302)
}

// A note is late for its segment, which is truncated meanwhile, and read again after two turns.
func TestBeginningOfAKeyLateForItsSegment(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue('q', 'x', key => 'k')")
	f.Exec("select penstock.dead_letter('q', lease, 'broken') from penstock.claim('q')")
	lease := f.noteBeginnings("k")
	// as if the newest note had been written late
	f.Exec("create table late as select * from penstock._skip_map where queue < 0 and priority = 0 order by n desc limit 1")
	f.copySkipMaps()
	turn := func(to string) {
		f.Eventually("turned to "+to, func() bool {
			f.Exec("update penstock._pair set again = null where name = '_skip_map'")
			f.Exec("select penstock._reclaim_skip_maps()")
			return f.text("select pg_sequence_last_value('penstock._skip_map_slot')::text") == to
		})
	}
	turn("1")
	f.Exec("select penstock._reclaim_skip_maps()") // truncates
	f.wantText("0", "select count(*)::text from penstock._skip_map_0")
	f.Exec("insert into penstock._skip_map_0 select * from late")
	f.Exec("select penstock.retry_dead_jobs('q', '{1}')")
	f.wantClaim(10)
	f.wantText("true", "select exists (select from penstock._scheduled where id = 1)::text")
	turn("2")
	f.Exec("select penstock.ack('q', $1)", lease)
	f.wantNextOfKey(1, 301, 302)
}

// The rows of keys in the old segment are truncated between the look of a claim and its note.
func TestBeginningOfAKeyAfterATruncate(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue('q', 'x', key => 'k')")
	f.Exec("select penstock.dead_letter('q', lease, 'broken') from penstock.claim('q')")
	lease := f.noteBeginnings("k")
	f.Exec("delete from penstock.q") // the others
	f.Exec("delete from penstock._scheduled where due = 'infinity'")
	f.Exec("select penstock.enqueue('q', 'a', key => 'k', group_key => 'g'), penstock.enqueue('q', 'b', key => 'k', group_key => 'g')")
	for range 3 {
		f.Exec(`select penstock."_q.skip_map"('g', 0::smallint)`)
	}
	f.copySkipMaps()
	back := f.begin(f.Connect())
	f.run(back, "select penstock.retry_dead_jobs('q', '{1}')")
	f.Exec("select penstock._reclaim_skip_maps()")
	f.wantText("1", "select pg_sequence_last_value('penstock._skip_map_slot')::text")
	f.Exec("select penstock.ack('q', $1)", lease)
	f.rewrite(`perform penstock\._note_keys`, stopHere+` \&`)
	got := f.whileStopped(func() {
		f.Must(back.Commit(f.Ctx))
		f.Exec("update penstock._pair set again = null where name = '_skip_map'")
		f.Exec("select penstock._reclaim_skip_maps()") // truncates
		f.wantText("0", "select count(*)::text from penstock._skip_map_0")
	}, payloadsOf+"penstock.dequeue('q', 1, 'g')")
	f.wantText("a", "select $1::text", got)
	f.wantText("", payloadsOf+"penstock.dequeue('q', 1, 'g')")
	f.wantText("x", payloadsOf+"penstock.dequeue('q')")
}

// The ring of skip maps turns between the two reads of _where_to_begin.
func TestBeginningOfAKeyWhileItIsRead(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue('q', 'x', key => 'k')")
	f.Exec("select penstock.dead_letter('q', lease, 'broken') from penstock.claim('q')")
	lease := f.noteBeginnings("k")
	f.Exec("delete from penstock.q") // the others
	f.Exec("delete from penstock._scheduled where due = 'infinity'")
	f.Exec("select penstock.enqueue('q', 'a', key => 'k', group_key => 'g')")
	f.copySkipMaps()
	f.Exec("select penstock.retry_dead_jobs('q', '{1}')")
	f.Exec("select penstock.ack('q', $1)", lease)
	f.rewrite(`if m\.lo\[1\] is distinct`, stopHere+` \&`)
	got := f.whileStopped(func() {
		f.Exec("select penstock._reclaim_skip_maps()")
		f.wantText("1", "select pg_sequence_last_value('penstock._skip_map_slot')::text")
	}, payloadsOf+"penstock.claim('q', 1, group_key => 'g')")
	f.wantText("", "select $1::text", got)
	f.wantText("x", payloadsOf+"penstock.dequeue('q')")
}

// The counter of skip maps is set back: the next notes are hidden by older ones.
func TestBeginningOfAKeyAndSkipMapsSetBack(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue('q', 'x', key => 'k')")
	f.Exec("select penstock.dead_letter('q', lease, 'broken') from penstock.claim('q')")
	lease := f.noteBeginnings("k")
	f.Exec("select setval('penstock._skip_map_n', 10)")
	f.Exec("select penstock.retry_dead_jobs('q', '{1}')")
	f.wantClaim(10) // moves it
	f.wantText("true", "select exists (select from penstock._scheduled where id = 1)::text")
	f.Exec("select penstock.ack('q', $1)", lease)
	f.wantNextOfKey(1, 301, 302)
}

// Keys of no and of the most bytes, with which a queue also has groups; and a queue dropped and made again.
func TestBeginningOfOddKeys(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", strings.Repeat("é\U0001F600", 170) + "1234"} {
		f := newJobs(t, "fifo")
		f.Exec("select penstock.enqueue('q', 'x', key => $1)", key)
		f.Exec("select penstock.dead_letter('q', lease, 'broken') from penstock.claim('q')")
		lease := f.noteBeginnings(key)
		f.Exec("select penstock.retry_dead_jobs('q', '{1}')")
		f.wantClaim(10)
		f.Exec("select penstock.ack('q', $1)", lease)
		var got []int64
		for range 3 {
			f.Exec("select setval('penstock.\"_q.maintained\"', 0)")
			f.maintain()
			j := f.claim(1)[0]
			f.Exec("select penstock.ack('q', $1)", j.lease)
			got = append(got, j.id)
		}
		if !slices.Equal(got, []int64{1, 301, 302}) {
			t.Errorf("%q: %v", key, got)
		}
		f.Exec("select penstock.drop_queue('q')")
		f.Exec("select penstock.create_queue('q')")
		f.Exec("select penstock.enqueue('q', 'a', key => $1), penstock.enqueue('q', 'b', key => $1)", key)
		f.wantText("a", payloadsOf+"penstock.claim('q', 10)")
		f.wantText("", payloadsOf+"penstock.claim('q', 10)")
	}
}

// A dump, or a long transaction, has locked the segment that the ring of skip maps has left.
func TestNotesOfKeysWhileTheLeftSegmentIsLocked(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue('q', 'x', key => 'k')")
	f.Exec("select penstock.dead_letter('q', lease, 'broken') from penstock.claim('q')")
	f.copySkipMaps()
	dump := f.begin(f.Connect())
	f.run(dump, "lock table penstock._skip_map_0 in access share mode")
	for range 2 {
		f.Exec("select penstock._reclaim_skip_maps()")
	}
	f.wantText("1", "select pg_sequence_last_value('penstock._skip_map_slot')::text")
	lease := f.noteBeginnings("k")
	f.Exec("select penstock.retry_dead_jobs('q', '{1}')")
	f.Exec("select penstock.ack('q', $1)", lease)
	f.wantNextOfKey(1, 301, 302)
}
