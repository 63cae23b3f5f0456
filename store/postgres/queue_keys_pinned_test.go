package postgres_test

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
)

// endJobs ends the next jobs of a key, one after the other, until that with the id last has been leased. It returns the lease of that.
func (f *fixture) endJobs(last int64) (lease int64) {
	f.Helper()
	for ends := []int64{}; ; ends = []int64{lease} {
		var id int64
		f.Must(f.Conn.QueryRow(f.Ctx, "select id, lease from penstock.ack_claim('q', $1, 1, '1 h') where id is not null", ends).Scan(&id, &lease))
		if id == last {
			return lease
		}
	}
}

func (f *fixture) wantNotes() {
	f.Helper()
	if f.Number("select count(*) from penstock._skip_map where queue < 0 and priority = 0 and base > 1") == 0 {
		f.Fatalf("no call noted where to begin with the key")
	}
}

// While a snapshot is pinned, the entries of all jobs of a key that have ended are still in the indexes.
func TestKeyWhileASnapshotIsPinned(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	pin := f.Connect()
	f.exec(pin, "begin isolation level repeatable read")
	f.exec(pin, "select count(*) from penstock._queue")
	const jobs = 1500
	const read = `select coalesce(sum(pg_stat_get_xact_tuples_returned(c.oid)), 0)::bigint from pg_class c
		where c.relnamespace = 'penstock'::regnamespace and c.relkind = 'i' and c.relname ~ '_key_(id|lease)'`
	f.Exec("select count(*) from generate_series(1, $1) i, lateral penstock.enqueue('q', i::text, key => 'k')", jobs)
	for id := int64(1); id < jobs; id += 100 {
		lease := f.endJobs(id)
		tx := f.begin(f.Conn)
		var before, after int64
		f.Must(tx.QueryRow(f.Ctx, read).Scan(&before))
		f.run(tx, "select penstock.ack('q', $1)", lease)
		f.run(tx, "select penstock.claim('q', 1)")
		f.Must(tx.QueryRow(f.Ctx, read).Scan(&after))
		f.Must(tx.Commit(f.Ctx))
		t.Logf("after %d jobs an ack and a claim read %d entries", id, after-before)
		if after-before > 3000 {
			t.Errorf("after %d jobs an ack and a claim read %d entries of the key, want at most 3000", id, after-before)
		}
		f.Exec("select penstock.ack('q', lease) from penstock._lease")
	}
}

// A job with a smaller id than where a search for jobs of its key begins comes late, or comes back. It is the next one, also if it had to wait for another.
func TestJobBeforeTheBeginningOfItsKey(t *testing.T) {
	t.Parallel()
	const enqueue = "select penstock.enqueue('q', 'x', key => 'k')"
	cases := map[string]struct {
		first func(f *fixture, tx pgx.Tx) // makes the job with id 1
		comes func(f *fixture, tx pgx.Tx)
	}{
		"CommitsLate": {
			func(f *fixture, tx pgx.Tx) { f.run(tx, enqueue) },
			func(f *fixture, tx pgx.Tx) { f.Must(tx.Commit(f.Ctx)) },
		},
		"WasDelayed": {
			func(f *fixture, _ pgx.Tx) {
				f.Exec("select penstock.enqueue('q', 'x', key => 'k', not_before => now() + interval '1 h')")
			},
			func(f *fixture, _ pgx.Tx) { f.ripen() },
		},
		"WasADeadLetter": {
			func(f *fixture, _ pgx.Tx) {
				f.Exec(enqueue)
				f.Exec("select penstock.dead_letter('q', lease, 'broken') from penstock.claim('q')")
			},
			func(f *fixture, _ pgx.Tx) { f.Exec("select penstock.retry_dead_jobs('q', '{1}')") },
		},
		"WasADeadLetterRetriedBefore": {
			func(f *fixture, tx pgx.Tx) {
				f.Exec(enqueue)
				f.Exec("select penstock.dead_letter('q', lease, 'broken') from penstock.claim('q')")
				f.run(tx, "select penstock.retry_dead_jobs('q', '{1}')")
			},
			func(f *fixture, tx pgx.Tx) { f.Must(tx.Commit(f.Ctx)) },
		},
		"WaitedForABarrier": {
			func(f *fixture, _ pgx.Tx) {
				f.Exec("select penstock.enqueue('q', 'x', key => 'k', waits_for => array[penstock.barrier('q')])")
			},
			func(f *fixture, _ pgx.Tx) { f.Exec("select penstock.seal('q', 1)") },
		},
	}
	for name, c := range cases {
		for _, ordering := range []string{"fifo", "lifo"} {
			for _, waits := range []bool{false, true} {
				t.Run(name+ordering+map[bool]string{true: "Waits"}[waits], func(t *testing.T) {
					t.Parallel()
					f := newJobs(t, ordering)
					tx := f.begin(f.Connect())
					c.first(f, tx)
					f.Exec("select count(*) from generate_series(2, 400) i, lateral penstock.enqueue('q', i::text, key => 'k')")
					lease := f.endJobs(200)
					for id := int64(201); id <= 300; id++ {
						f.Exec(`select penstock."_q.skip_map"('', 0::smallint)`)
						f.Exec("select penstock.ack('q', $1)", lease)
						lease = f.wantClaim(1, id)[0].lease
					}
					f.wantNotes()
					if waits {
						c.comes(f, tx)
						f.wantClaim(10) // moves it
						f.wantText("true", "select exists (select from penstock._scheduled where id = 1)::text")
						f.Exec("select penstock.ack('q', $1)", lease)
					} else { // 301 is ready, and those between that and 1 are more than a claim reads
						f.Exec("select penstock.ack('q', $1)", lease)
						f.Exec("select count(*) from generate_series(1, 200) i, lateral penstock.enqueue('q', i::text)")
						c.comes(f, tx)
					}
					var got []int64
					for len(got) < 3 {
						j := f.claim(1)[0]
						if f.Exec("select penstock.ack('q', $1)", j.lease); j.key != "" {
							got = append(got, j.id)
						}
					}
					if want := []int64{1, 301, 302}; !slices.Equal(got, want) {
						t.Errorf("%v are the next of the key, want %v", got, want)
					}
				})
			}
		}
	}
}
