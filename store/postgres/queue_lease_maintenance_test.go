package postgres_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock"
)

// A claim does maintenance when it commits. Its leases last as long as it asked for from then on, though the maintenance had to wait,
// here for a session that has dead letters locked. So do leases of a claim behind another one in its transaction.
func TestLeaseBeginsAfterMaintenance(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	f.Must(f.store.SetQueue(f.Ctx, "jobs", penstock.QueueSettings{MaxAttempts: new(1)}))
	f.enqueue(texts("dies", "is claimed", "is claimed, too")...)
	f.Exec("select penstock.claim('jobs', 1, '1 h')")
	f.Exec("update penstock._lease set lease_until = now() - interval '1 s'")
	f.Exec(`select setval('penstock."_jobs.maintained"', 0)`)
	holder := f.begin(f.Connect())
	_, err := holder.Exec(f.Ctx, "lock table penstock._dead_job in exclusive mode")
	f.Must(err)
	type claim struct {
		lease int64
		until time.Time
	}
	claimer, claims := f.begin(f.Connect()), make([]claim, 2)
	for i := range claims {
		f.Must(claimer.QueryRow(f.Ctx, "select lease, lease_until from penstock.claim('jobs', 1, '1 h')").Scan(&claims[i].lease, &claims[i].until))
	}
	committed := make(chan error)
	go func() { committed <- claimer.Commit(f.Ctx) }()
	f.Eventually("the claim waits", func() bool {
		return f.Number("select count(*) from pg_locks where relation = 'penstock._dead_job'::regclass and not granted") == 1
	})
	var waited time.Duration
	f.Must(holder.QueryRow(f.Ctx, "with s as materialized (select clock_timestamp() as began, pg_sleep(0.2)) select clock_timestamp() - s.began from s").Scan(&waited))
	f.Must(holder.Commit(f.Ctx))
	f.Must(<-committed)
	for i, c := range claims {
		var until time.Time
		f.Must(f.Conn.QueryRow(f.Ctx, "select lease_until from penstock._lease where lease = $1", c.lease).Scan(&until))
		if want := c.until.Add(waited); until.Before(want) {
			t.Errorf("lease %d lasts until %s, want %s at least, as maintenance waited for %s", i, until, want, waited)
		}
	}
	f.wantText("1", "select count(*)::text from penstock._dead_job")
}
