package postgres_test

import (
	"fmt"
	"strings"
	"testing"
)

// A released job counts as never tried, and the next of its key still waits for it.
func TestReleasedJobKeepsItsIDAndItsAttempts(t *testing.T) {
	t.Parallel()
	for _, ordering := range []string{"fifo", "lifo"} {
		t.Run(ordering, func(t *testing.T) {
			f := newJobs(t, ordering)
			f.Exec("select penstock.set_queue('q', max_attempts => 2)")
			f.Exec("select penstock.enqueue('q', 'first', key => 'k'), penstock.enqueue('q', 'second', key => 'k', priority => -3)")
			for range 4 { // more often than it may be tried
				f.Exec("select penstock.release('q', $1)", f.wantClaim(9, 1)[0].lease)
			}
			first := f.wantClaim(9, 1)[0]
			if first.attempt != 1 {
				t.Errorf("after four releases the attempt is %d, want 1", first.attempt)
			}
			f.wantText("{"+fmt.Sprint(first.lease)+"}", "select array(select penstock.release_many('q', array[$1, $1, 99]::bigint[]))::text", first.lease)
			f.Exec("select penstock.retry('q', $1, '0', 'no')", f.wantClaim(9, 1)[0].lease)
			f.Exec("select penstock.release('q', $1)", f.wantClaim(9, 1)[0].lease)
			again := f.wantClaim(9, 1)[0]
			if again.attempt != 2 {
				t.Errorf("the attempt after a retry and a release is %d, want 2", again.attempt)
			}
			f.Exec("select penstock.ack('q', $1)", again.lease)
			f.wantClaim(9, 2)
		})
	}
}

func TestReleaseOfALostLease(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue('q', 'x')")
	lease := f.wantClaim(1, 1)[0].lease
	f.Exec("select penstock.ack('q', $1)", lease)
	_, err := f.Conn.Exec(f.Ctx, "select penstock.release('q', $1)", lease)
	if err == nil || !strings.Contains(err.Error(), "PS001") {
		t.Errorf("got %v, want SQLSTATE PS001", err)
	}
	f.wantClaim(1)
}
