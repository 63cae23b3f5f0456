package postgres_test

import "testing"

// A transaction that has replaced a job delays neither the other jobs of its queue nor the end of the one that the job waits for.
func TestReplacedJobDelaysNoOther(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("set statement_timeout = '20 s'") // a claim that waited would wait for ever
	f.Exec("select penstock.enqueue('q', 'a', unique_key => 'u')")
	running := f.wantClaim(1, 1)[0]
	for _, waits := range []string{"in the ring", "behind the first"} {
		tx := f.begin(f.Connect())
		if _, err := tx.Exec(f.Ctx, "select penstock.enqueue('q', 'b', unique_key => 'u', on_conflict => 'replace')"); err != nil {
			t.Fatal(err)
		}
		if waits == "in the ring" { // the first time it is new
			f.Must(tx.Commit(f.Ctx))
			tx = f.begin(f.Connect())
			if _, err := tx.Exec(f.Ctx, "select penstock.enqueue('q', 'c', unique_key => 'u', on_conflict => 'replace')"); err != nil {
				t.Fatal(err)
			}
		}
		f.Exec("select penstock.enqueue('q', 'other')")
		f.wantText("other", "select string_agg(convert_from(payload, 'UTF8'), ',') from penstock.claim('q', 10)")
		if waits == "in the ring" {
			f.Must(tx.Commit(f.Ctx))
			f.wantText("", "select coalesce(string_agg(convert_from(payload, 'UTF8'), ','), '') from penstock.claim('q', 10)") // moves it
			f.wantText("1", "select count(*)::text from penstock._scheduled where queue > 0 and due = 'infinity'")
			continue
		}
		f.Exec("select penstock.ack('q', $1)", running.lease)
		f.Must(tx.Commit(f.Ctx))
	}
	f.Eventually("the second job runs", func() bool {
		f.maintain()
		return f.Number("select count(*) from penstock.claim('q', 10) where convert_from(payload, 'UTF8') = 'b'") == 1
	})
}

// A job of an INSERT, with its key as header, is unique for the enqueues that follow. The INSERT itself looks for no twin.
func TestUniqueJobsByInsertAndBySQL(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec(`insert into penstock.q (key, payload, headers) values ('u', 'a', '{"penstock-unique-key": "u"}')`)
	f.wantText("1 true", "select e.id || ' ' || penstock.deduplicated() from penstock.enqueue('q', 'b', unique_key => 'u') e(id)")
	f.wantText("1t 2f 2t", `select string_agg(e.id || left(penstock.deduplicated(e.n)::text, 1), ' ' order by e.n)
		from penstock.enqueue_many('q', '{c,d,e}', unique_keys => '{u,v,v}', on_conflict => 'ignore', max_attempts => 3) with ordinality e(id, n)`)
	f.wantText("u a, v d 3", "select string_agg(concat_ws(' ', key, convert_from(payload, 'UTF8'), headers ->> 'penstock-max-attempts'), ', ' order by id) from penstock.claim('q', 10)")
}

// A schedule whose job replaces one that a transaction has taken waits for that. A claim that does the maintenance meanwhile does not.
func TestScheduleThatReplacesDelaysNoClaim(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("set statement_timeout = '20 s'") // a claim that waited would wait for ever
	f.Exec(`select penstock.enqueue('q', 'old', unique_key => 'u'),
		penstock.schedule('q', 's', '* * * * *', 'new', headers => '{"penstock-unique-key": "u", "penstock-on-conflict": "replace"}')`)
	tx := f.begin(f.Connect())
	_, err := tx.Exec(f.Ctx, "select penstock.dequeue('q')")
	f.Must(err)
	f.Exec("update penstock._schedule set next = now() - interval '1 s'")
	f.Exec("select penstock.enqueue('q', 'other'), penstock.maintain_queue('q')")
	f.wantText("other", "select string_agg(convert_from(payload, 'UTF8'), ',') from penstock.claim('q', 10)")
	f.Must(tx.Commit(f.Ctx))
	f.maintain()
	f.wantText("new", "select string_agg(convert_from(payload, 'UTF8'), ',') from penstock.claim('q', 10)")
}

// A unique job whose deadline has passed ends where another one is enqueued: it is counted, and the barrier that it holds does not wait for it.
func TestUniqueJobEndsALateOne(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	b := f.Number("select penstock.barrier('q')")
	f.Exec("select penstock.enqueue('q', 'late', unique_key => 'u', deadline => now() - interval '1 s', holds => $1)", b)
	f.Exec("select penstock.enqueue('q', 'done', waits_for => array[$1::bigint]), penstock.seal('q', $1)", b)
	f.wantText("false", "select coalesce(penstock.deduplicated(), false)::text from penstock.enqueue('q', 'a', unique_key => 'u')")
	f.wantText("2 1", "select concat_ws(' ', ready, expired) from penstock.queue_status('q')")
	if jobs := f.claim(5); len(jobs) != 2 {
		t.Errorf("%d jobs run, want the one that waits and the new one", len(jobs))
	}
}
