package adopt_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/store/postgres/adopt"
)

func failed(attempt int) []penstock.Failure {
	return []penstock.Failure{{Attempt: attempt, At: time.Now().UTC(), Err: "refused, and this is a long story of why"}}
}

func parked(attempt int, in time.Duration) driver.Verdict {
	return driver.Verdict{Outcome: driver.Parked, Failures: failed(attempt), RetryIn: in}
}

var (
	ok     = driver.Verdict{}
	behind = driver.Verdict{Outcome: driver.Parked}
)

// TestOnlyTheFirstOfALineIsDue: a message that is parked later, with its own time, waits for those
// before it all the same.
func TestOnlyTheFirstOfALineIsDue(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(keyedTable)
	c := keyedConfig()
	c.Batch = 1
	for _, row := range []string{"a1", "a2", "a3"} {
		f.insert("a", row)
	}
	src := f.subscribe(f.open(c))
	one, two, three := f.fetch(src), f.fetch(src), f.fetch(src)
	f.Must(storetest.Settle(f.Ctx, src, driver.Settled{Batch: one, Verdicts: []driver.Verdict{parked(1, 20*time.Millisecond)}},
		driver.Settled{Batch: two, Verdicts: []driver.Verdict{parked(1, 0)}}))
	f.settle(src, three, parked(1, 0))
	for _, want := range []string{"a1", "a2", "a3"} {
		b := f.fetch(src)
		f.want(b, want)
		f.settle(src, b)
	}
}

func TestVanishedRowLetsItsLineGoOn(t *testing.T) {
	t.Parallel()
	for _, c := range []adopt.Config{keyedConfig(), workers(2)} {
		f := newFixture(t)
		f.Exec(keyedTable)
		f.insert("a", "a1")
		f.insert("a", "a2")
		src := f.subscribe(f.open(c))
		f.settle(src, f.fetch(src), parked(1, 0), behind)
		f.Exec("delete from shop where payload = 'a1'")
		var got []string
		f.Eventually("a1 is forgotten, and a2 comes", func() bool {
			b, err := src.Fetch(f.Ctx, plenty)
			f.Must(err)
			got = append(got, payloads(b)...)
			f.settle(src, b)
			return slices.Equal(got, []string{"a2"}) && f.Number("select count(*) from penstock._adopt_row") == 0
		})
	}
}

// TestPoisonStopsNoOtherRow has a relay and one message that is never taken.
func TestPoisonStopsNoOtherRow(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 3} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.Exec(keyedTable)
			for i := range 50 {
				f.insert(fmt.Sprint(i%5), fmt.Sprint(i))
			}
			c := keyedConfig()
			c.Workers = workers
			table := f.open(c)
			sink := collector{refuse: func(m *penstock.Message) error {
				if string(m.Payload) == "13" {
					return errors.New("poison")
				}
				return nil
			}}
			f.relay(table, &sink, func(c *relay.Options) { c.ParkAfter, c.MaxAttempts = 2, 4 })
			f.Eventually("all others arrive", func() bool { return sink.count() == 49 })
			f.Eventually("the poison is a dead letter", func() bool {
				found, err := table.DeadLetters(f.Ctx, admin.DeadLetterQuery{})
				return err == nil && len(found) == 1 && string(found[0].Message.Payload) == "13" && len(found[0].Failures) == 4
			})
			f.Eventually("the others are settled", func() bool { return f.Number("select count(*) from shop where processed_at is null") == 1 })
		})
	}
}
