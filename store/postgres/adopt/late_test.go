package adopt_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock/store/postgres/adopt"
)

// TestLevelsLeaveOutWhatIsInFlight: they would list it again and again.
func TestLevelsLeaveOutWhatIsInFlight(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(keyedTable)
	f.Exec("insert into shop (payload) select n from generate_series(1, 3) n")
	c := keyedConfig()
	c.Batch = 1
	src := f.subscribe(f.open(c))
	first, second := f.fetch(src), f.fetch(src)
	if n := adopt.Within(src, time.Hour); n > 0 {
		t.Errorf("with nothing settled, a look covers %d batches", n)
	}
	f.settle(src, second)
	if n := adopt.Within(src, time.Hour); n > 0 {
		t.Errorf("with the first in flight, a look covers %d batches", n)
	}
	third := f.fetch(src)
	f.settle(src, first)
	if n := adopt.Within(src, time.Hour); n != 2 {
		t.Errorf("with two settled, a look covers %d batches", n)
	}
	f.settle(src, third)
	if n := adopt.Within(src, time.Hour); n != 3 {
		t.Errorf("with all settled, a look covers %d batches", n)
	}
}

// TestLagOfABacklog: full pages of old rows are a backlog, and its end is its end.
func TestLagOfABacklog(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(messageTable)
	f.Exec("insert into outbox (ts, message) select now() - interval '1 hour', n from generate_series(1, 5) n")
	src := f.subscribe(f.open(adopt.Config{Preset: "message", Batch: 2}))
	for range 2 {
		f.settle(src, f.fetch(src))
		if lag := adopt.Lags(src); lag < 59*time.Minute || lag > 2*time.Hour {
			t.Errorf("rows of an hour ago, and the lag is %v", lag)
		}
	}
	f.settle(src, f.fetch(src))
	if lag := adopt.Lags(src); lag != 0 {
		t.Errorf("the last page was not full, and the lag is %v", lag)
	}
}
