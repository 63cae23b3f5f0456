package tables

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/retry"
)

// A sweep is over once it has read as far as the mark, however much waits behind that. Each walks over all rows that were deleted while
// a snapshot was open. It continues while there is more before the mark, and the longer it took the later is the next one.
func TestSweeps(t *testing.T) {
	t.Parallel()
	const limit, margin, sweep = 10, time.Second, 15 * time.Second
	synctest.Test(t, func(t *testing.T) {
		r := NewReader(nil, nil, nil, nil, driver.Subscribe{})
		r.ID, r.Box.Buckets = 1, 1
		start := time.Now()
		var seq int64
		// look finds rows of some times after the start, and reports whether it was a sweep.
		look := func(took time.Duration, rows int, from time.Duration) bool {
			p := &Page{Limit: driver.Limit{Messages: limit, Bytes: 1 << 20}}
			l := r.Look(p, r.Box.Buckets, sweep)
			time.Sleep(took)
			for i := range rows {
				seq++
				if err := l.Found(func(dest ...any) error {
					*dest[1].(*time.Time), *dest[2].(*int64) = start.Add(from+time.Duration(i)*time.Millisecond), seq
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			l.Done(margin)
			l.taken()
			return l.From.IsZero() && !r.Low.IsZero()
		}
		for i, step := range []struct {
			wait, took, from time.Duration
			rows             int
			sweeps           bool
		}{
			{0, 0, time.Minute, limit + 1, false},
			{0, 0, time.Minute, limit + 1, false},
			{sweep + 1, 0, time.Minute, limit + 1, true}, // more than fits waits, but none before the mark
			{0, 0, time.Minute, limit + 1, false},
			{sweep + 1, 0, time.Second, limit + 1, true}, // before the mark is more than fits
			{0, 0, time.Second, limit + 1, true},
			{0, 0, time.Second, 2, true},
			{0, 0, time.Minute, limit, false},
			{sweep + 1, 2 * sweep / sweepPart, 0, 0, true}, // so slow that there may be another in half a minute only
			{sweep + 1, 0, 0, 0, false},
			{sweep, 0, 0, 0, true},
			{sweep + 1, 0, 0, 0, true},
		} {
			time.Sleep(step.wait)
			if got := look(step.took, step.rows, step.from); got != step.sweeps && i > 0 {
				t.Errorf("look %d was a sweep: %v, want %v", i, got, step.sweeps)
			}
		}
	})
}

// there is a database that is there.
type there struct{ OutboxDB }

func (there) Ready(context.Context) error { return nil }

func (there) Missing(error) bool { return false }

// failing is a store whose transactions fail after their rows were read, as when the server is killed then.
type failing struct {
	Reading
	reader *Reader
	asked  []time.Time
	fails  error // of every call
}

func (f *failing) subscribe() {
	f.reader = NewReader(f, there{}, func(err error) error { return err }, &retry.Counter{}, driver.Subscribe{})
	f.reader.ID, f.reader.Box.Buckets = 1, 1
}

func (f *failing) ReadPage(_ context.Context, p *Page) error {
	l := f.reader.Look(p, 1, time.Hour)
	f.asked = append(f.asked, l.From)
	err := l.Found(func(dest ...any) error {
		*dest[1].(*time.Time), *dest[2].(*int64) = time.Now(), 1
		return nil
	})
	l.Done(time.Second)
	return cmp.Or(f.fails, err)
}

func (f *failing) Write(context.Context, []*Part) error { return f.fails }

// Messages of a page that was not had are looked for again: the mark stays before them.
func TestAPageThatFailsMovesNothing(t *testing.T) {
	t.Parallel()
	f := &failing{fails: errors.New("the server is gone")}
	f.subscribe()
	limit := driver.Limit{Messages: 10, Bytes: 1 << 20}
	if _, err := f.reader.Fetch(t.Context(), limit); err == nil {
		t.Fatal("the first Fetch does not fail")
	}
	f.fails = nil
	if b, err := f.reader.Fetch(t.Context(), limit); err != nil || len(b.Messages) != 1 || !f.asked[1].IsZero() {
		t.Errorf("got %d messages from %v on, %v; want the one, looked for from the beginning", len(b.Messages), f.asked[1], err)
	}
	if f.reader.Low.IsZero() {
		t.Error("the mark has not moved with the page that was had")
	}
}

// After a failed call the reader looks everywhere once. A promoted server may have forgotten the note about a message that the
// mark has passed by now.
func TestAnErrorIsDoubted(t *testing.T) {
	t.Parallel()
	limit := driver.Limit{Messages: 10, Bytes: 1 << 20}
	for what, call := range map[string]func(r *Reader, b driver.Batch) error{
		"fetched": func(r *Reader, _ driver.Batch) error { _, err := r.Fetch(t.Context(), limit); return err },
		"settled": func(r *Reader, b driver.Batch) error {
			return r.Settle(t.Context(), b.Number, driver.Settled{Batch: b})
		},
	} {
		f := &failing{}
		f.subscribe()
		b, err := f.reader.Fetch(t.Context(), limit)
		if err != nil {
			t.Fatal(err)
		}
		f.fails = errors.New("the server is gone")
		if call(f.reader, b) == nil {
			t.Fatalf("%s, and no error", what)
		}
		f.fails, f.asked = nil, nil
		for range 2 {
			if _, err := f.reader.Fetch(t.Context(), limit); err != nil {
				t.Fatal(err)
			}
		}
		if !f.asked[0].IsZero() || f.asked[1].IsZero() {
			t.Errorf("%s: looked from %v and %v on, want everywhere and then from the mark on", what, f.asked[0], f.asked[1])
		}
	}
}

// A message that is in flight at the very mark is not settled.
func TestInFlightAtTheMark(t *testing.T) {
	t.Parallel()
	r := NewReader(nil, nil, nil, nil, driver.Subscribe{})
	r.Low = time.Now().Truncate(time.Microsecond)
	r.Passes(1, Flight{TS: r.Low})
	if got := r.SettledTo(); !got.Before(r.Low) {
		t.Errorf("settled to %v, with a message of %v in flight", got, r.Low)
	}
}
