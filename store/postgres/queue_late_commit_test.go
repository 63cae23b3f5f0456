package postgres_test

import (
	"fmt"
	"slices"
	"testing"
)

// What commits late is taken next, wherever the skip map is, and whatever else was in
// flight.
func TestLateCommitIsTakenNext(t *testing.T) {
	t.Parallel()
	for _, few := range []bool{true, false} {
		t.Run(fmt.Sprintf("few=%t", few), func(t *testing.T) {
			t.Parallel()
			f := newQueueFixture(t)
			n := 300
			if few {
				n = 2
			}
			late := f.Connect()
			tx := f.begin(late)
			f.enqueue(late, "fifo", 1, n)
			f.enqueue(f.Conn, "fifo", 10_001, 11_000)
			for range 500 {
				if got := f.take(f.Conn, "fifo", 1); len(got) != 1 || got[0] < 10_000 {
					t.Fatalf("got %v before the commit", got)
				}
			}
			f.Must(tx.Commit(f.Ctx))
			f.later("fifo")
			f.wantTake("fifo", 2, 1, 2)
			all := f.takeAll("fifo")
			if len(all) != n-2+500 || !slices.IsSorted(all) {
				t.Errorf("got %d jobs after that, sorted: %t; want %d", len(all), slices.IsSorted(all), n-2+500)
			}
		})
	}
}

// The transaction with the highest xid of all is in no snapshot's list. A skip map must
// not take what it has written for gone.
func TestLateCommitWithTheHighestXid(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t)
	f.enqueue(f.Conn, "fifo", 2, 2)
	late := f.Connect()
	tx := f.begin(late)
	f.enqueue(late, "fifo", 1, 1) // seq 2, and the highest xid
	// A reader that draws no xid before it looks, as often as it takes for skip maps to be made.
	for range 50 {
		f.Exec("select penstock.\"_fifo.skip_map\"('', 0::smallint)")
		f.take(f.Conn, "fifo", 1)
	}
	f.Must(tx.Commit(f.Ctx))
	f.wantTake("fifo", 1, 1)
}

// Nor may the second skip map of one transaction: the first one's xid has not ended, so it
// does not lie between what was drawn and the snapshot.
func TestLateCommitAndTwoSkipMapsOfATransaction(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t)
	f.enqueue(f.Conn, "fifo", 2, 2)
	late, reader := f.Connect(), f.Connect()
	lateTx := f.begin(late)
	f.enqueue(late, "fifo", 3, 202) // more than a skip map leaves to be walked
	tx := f.begin(reader)
	for range 3 {
		_, err := reader.Exec(f.Ctx, "select penstock.\"_fifo.skip_map\"('', 0::smallint)")
		f.Must(err)
	}
	f.Must(tx.Commit(f.Ctx))
	f.Must(lateTx.Commit(f.Ctx))
	if got := f.takeAll("fifo"); len(got) != 201 {
		t.Errorf("got %d jobs, want 201", len(got))
	}
}
