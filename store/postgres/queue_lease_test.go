package postgres_test

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
)

// A standby that is promoted without the last rows of the primary has the jobs and the sequences of
// before. A late ack of a lease that only the primary gave must not end another worker's job.
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

// ack_claim ends jobs and claims others: both, or neither.
func TestAckClaim(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue_many('q', '{a,b,c,d}')")
	call := func(leases []int64, n int) (payloads []string, claimed, acked []int64, err error) {
		rows, err := f.Conn.Query(f.Ctx, "select id, convert_from(payload, 'UTF8'), lease from penstock.ack_claim('q', $1, $2, '1 hour', worker => 'me')", leases, n)
		f.Must(err)
		var id *int64
		var payload *string
		var lease int64
		_, err = pgx.ForEachRow(rows, []any{&id, &payload, &lease}, func() error {
			if id == nil {
				acked = append(acked, lease)
				return nil
			}
			if len(acked) > 0 {
				t.Errorf("job %d comes behind what was ended", *id)
			}
			payloads, claimed = append(payloads, *payload), append(claimed, lease)
			return nil
		})
		slices.Sort(acked)
		return payloads, claimed, acked, err
	}
	payloads, first, acked, err := call(nil, 2)
	f.Must(err)
	if !slices.Equal(payloads, []string{"a", "b"}) || len(acked) != 0 {
		t.Fatalf("claimed %q, ended %v, want a and b, and nothing", payloads, acked)
	}
	if _, _, _, err := call(first, 0); state(err) != "22023" {
		t.Errorf("ack_claim of no jobs: got %v, want 22023", err)
	}
	f.Exec("begin")
	_, _, acked, err = call(first, 1)
	f.Must(err)
	f.Exec("rollback")
	if !slices.Equal(acked, first) {
		t.Errorf("ended %v in a transaction that rolls back, want %v", acked, first)
	}
	_, claimed, acked, err := call(append([]int64{1 << 60}, first...), 1)
	f.Must(err)
	if !slices.Equal(acked, first) {
		t.Errorf("ended %v, want those that were held, %v", acked, first)
	}
	for len(claimed) < 2 { // what was rolled back is there again within some calls
		_, more, acked, err := call(first, 2)
		f.Must(err)
		if len(acked) > 0 {
			t.Fatalf("ended %v once more", acked)
		}
		claimed = append(claimed, more...)
	}
	if _, _, acked, err = call(claimed, 1); err != nil || len(acked) != 2 {
		t.Errorf("ended %v, want the last two; error %v", acked, err)
	}
	f.wantText("(0,0,0,0,0)", "select (ready, running, delayed, waiting, dead)::text from penstock.queue_status('q')")
}
