package postgres_test

import "testing"

// A standby that is promoted without the last of what the primary had written has the jobs and the
// sequences of before: a late ack of a lease that only the primary gave must not end another worker's job.
func TestLeaseNumbersDoNotComeAgain(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue('q', x::text) from generate_series(1, 20) x")
	claim := func() (leases []int64) {
		f.Must(f.Conn.QueryRow(f.Ctx, "select array_agg(lease) from penstock.claim('q', 20)").Scan(&leases))
		if len(leases) != 20 {
			t.Fatalf("claimed %v", leases)
		}
		return leases
	}
	f.Exec("begin")
	lost := claim()
	f.Exec("rollback")
	f.Exec("select setval('penstock._lease_n', 1, false)")
	held := claim()
	if n := f.Number("select count(*) from penstock.ack_many('q', $1)", lost); n != 0 {
		t.Errorf("late acks ended %d jobs of another worker", n)
	}
	if n := f.Number("select count(*) from penstock.ack_many('q', $1)", held); n != 20 {
		t.Errorf("%d of 20 leases were held", n)
	}
}
