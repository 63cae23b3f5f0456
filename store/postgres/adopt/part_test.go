package adopt_test

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/driver"
)

var undecided = driver.Verdict{Outcome: driver.Undecided}

// A batch is settled as its verdicts come, and what has none comes to the next reader.
func TestPartOfABatch(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(keyedTable)
	for _, row := range []string{"a1", "b1", "c1", "a2", "d1", "b2"} {
		f.insert(row[:1], row)
	}
	src := f.subscribe(f.open(keyedConfig()))
	b := f.fetch(src)
	f.settle(src, b, undecided, ok, ok, undecided, parked(1, 0), undecided)
	f.settle(src, b, undecided, ok, ok, undecided, parked(1, 0), undecided) // passed over
	if n := f.Number("select count(*) from shop where processed_at is not null"); n != 2 {
		t.Errorf("%d rows are settled, want b1 and c1", n)
	}
	d := f.fetch(src)
	f.want(d, "d1")
	f.settle(src, d)
	f.settle(src, b, undecided, ok, ok, undecided, parked(1, 0), ok)
	f.Must(src.Close(f.Ctx))
	src = f.subscribe(f.open(keyedConfig()))
	b = f.fetch(src)
	f.want(b, "a1", "a2")
	f.settle(src, b)
	f.Must(src.Renew(f.Ctx))
	status, err := f.open(keyedConfig()).Status(f.Ctx)
	f.Must(err)
	if n := f.Number("select count(*) from shop where processed_at is null"); n != 0 || status.Settled != 6 {
		t.Errorf("%d rows are pending, %d settled", n, status.Settled)
	}
}

// The later messages of a parked key stay in the reader's hands.
func TestPartOfALine(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(keyedTable)
	for _, row := range []string{"a1", "a2", "a3", "a4"} {
		f.insert("a", row)
	}
	src := f.subscribe(f.open(keyedConfig()))
	b := f.fetch(src)
	f.settle(src, b, behind, behind, behind, behind)
	b = f.fetch(src)
	f.want(b, "a1", "a2", "a3", "a4")
	f.settle(src, b, ok, ok, undecided, undecided)
	again, err := src.Fetch(f.Ctx, plenty)
	f.Must(err)
	f.want(again)
	f.settle(src, b, ok, ok, ok, undecided)
	f.Must(src.Close(f.Ctx))
	src = f.subscribe(f.open(keyedConfig()))
	b = f.fetch(src)
	f.want(b, "a4")
	f.settle(src, b)
	if n := f.Number("select count(*) from shop where processed_at is null"); n != 0 {
		t.Errorf("%d rows are pending", n)
	}
}

// A worker that closes, or whose claim grows old, settles what has a verdict.
func TestPartOfAClaim(t *testing.T) {
	t.Parallel()
	for _, old := range []bool{false, true} {
		f := newFixture(t)
		f.Exec(keyedTable)
		f.Exec("insert into shop (payload) select n from generate_series(1, 5) n")
		c := workers(2)
		if old {
			c.ClaimTimeout = 300 * time.Millisecond
		}
		src := f.subscribe(f.open(c))
		b := f.fetch(src)
		f.settle(src, b, undecided, ok, undecided, ok, parked(1, 0))
		if !old {
			f.Must(src.Close(f.Ctx))
		}
		f.Eventually("the claim is over", func() bool {
			return f.Number("select count(*) from shop where processed_at is not null") == 2
		})
		other := f.subscribe(f.open(workers(2)))
		var got []string
		f.Eventually("the rest comes to another worker", func() bool {
			b, err := other.Fetch(f.Ctx, plenty)
			f.Must(err)
			if got = append(got, payloads(b)...); len(b.Messages) > 0 {
				f.settle(other, b)
			}
			return len(got) >= 3
		})
		slices.Sort(got)
		if !slices.Equal(got, []string{"1", "3", "5"}) {
			t.Errorf("the other worker got %q", got)
		}
	}
}

// Claims of a sink that is fast grow to the whole batch, and with one that is slow they
// are as large as it takes in about a second.
func TestClaimsFollowTheSinksPace(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(keyedTable)
	f.Exec("insert into shop (payload) select n from generate_series(1, 3000) n")
	c := workers(2)
	c.Batch = 1000
	src := f.subscribe(f.open(c))
	f.Eventually("claims grow", func() bool {
		b := f.fetch(src)
		f.settle(src, b)
		return len(b.Messages) > 100
	})
	b := f.fetch(src)
	time.Sleep(1500 * time.Millisecond) // the sink's pace
	f.settle(src, b)
	if n := len(f.fetch(src).Messages); n >= len(b.Messages) {
		t.Errorf("after a claim of %d rows that took 1.5 s the next has %d", len(b.Messages), n)
	}
}
