package adopt_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/store/postgres/adopt"
)

func workers(n int) adopt.Config {
	c := keyedConfig()
	c.Workers, c.Batch, c.Sweep = n, 10, 50*time.Millisecond
	return c
}

func TestWorkersShareTheRows(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(keyedTable)
	f.Exec("insert into shop (payload) select n from generate_series(1, 500) n")
	sources := []driver.Source{f.subscribe(f.open(workers(3))), f.subscribe(f.open(workers(3))), f.subscribe(f.open(workers(2)))}
	got := map[string]int{}
	var open []func()
	for i := 0; len(got) < 500; i++ {
		src := sources[i%len(sources)]
		b, err := src.Fetch(f.Ctx, plenty)
		f.Must(err)
		for _, p := range payloads(b) {
			if got[p]++; got[p] > 1 {
				t.Fatalf("%s came twice", p)
			}
		}
		if len(b.Messages) > 0 {
			open = append(open, func() { f.settle(src, b) })
		}
		if len(open) > 4 { // claims of several are open at once
			open[0]()
			open = open[1:]
		}
	}
	for _, settle := range open {
		settle()
	}
	if n := f.Number("select count(*) from shop where processed_at is null"); n != 0 {
		t.Errorf("%d rows are pending", n)
	}
	table := f.open(workers(3))
	for _, src := range sources {
		f.Must(src.Renew(f.Ctx))
	}
	status, err := table.Status(f.Ctx)
	f.Must(err)
	if status.Settled != 500 || status.Holder != "3 workers" {
		t.Errorf("status %+v", status)
	}
	if _, err := f.open(keyedConfig()).Subscribe(f.Ctx, driver.Subscribe{Holder: "reader"}); !errors.Is(err, penstock.ErrHeld) {
		t.Errorf("a single reader came beside workers: %v", err)
	}
}

// TestDeadLettersOfWorkersHaveNumbersOfTheirOwn: an operator who discards one by its number, which
// dead show prints, discards no other.
func TestDeadLettersOfWorkersHaveNumbersOfTheirOwn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(keyedTable)
	f.Exec("insert into shop (payload) select n from generate_series(1, 20) n")
	table := f.open(workers(2))
	first, second := f.subscribe(table), f.subscribe(f.open(workers(2)))
	for _, src := range []driver.Source{first, second} {
		b := f.fetch(src)
		verdicts := make([]driver.Verdict, len(b.Messages))
		verdicts[0] = driver.Verdict{Outcome: driver.Dead, Failures: failed(1)}
		f.settle(src, b, verdicts...)
	}
	found, err := table.DeadLetters(f.Ctx, admin.DeadLetterQuery{})
	f.Must(err)
	if len(found) != 2 || found[0].Message.Seq == found[1].Message.Seq {
		t.Fatalf("dead letters %+v", found)
	}
	n, err := table.DiscardDeadLetters(f.Ctx, admin.DeadLetterQuery{Seqs: []int64{found[0].Message.Seq}})
	f.Must(err)
	left, err := table.DeadLetters(f.Ctx, admin.DeadLetterQuery{})
	f.Must(err)
	if n != 1 || len(left) != 1 || left[0].Message.Seq != found[1].Message.Seq {
		t.Errorf("%d were discarded, left %+v", n, left)
	}
}

// TestNumbersNeverComeTwice, whichever process reads: workers at the same time, one that comes
// again, and a single reader after them, whose numbers are higher.
func TestNumbersNeverComeTwice(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(keyedTable)
	f.Exec("insert into shop (payload) select n from generate_series(1, 20000) n")
	c := workers(8)
	c.Batch = 1000
	seen, highest := map[int64]bool{}, int64(0)
	read := func(src driver.Source, messages int) {
		t.Helper()
		lowest := int64(math.MaxInt64)
		for n := 0; n < messages; {
			b := f.fetch(src)
			for _, m := range b.Messages {
				if seen[m.Seq] {
					t.Fatalf("%d came twice", m.Seq)
				}
				seen[m.Seq] = true
				lowest = min(lowest, m.Seq)
			}
			f.settle(src, b)
			n += len(b.Messages)
		}
		if _, worker := src.(*adopt.Worker); !worker && lowest <= highest {
			t.Errorf("a reader that came later begins with %d, after %d", lowest, highest)
		}
		for seq := range seen {
			highest = max(highest, seq)
		}
	}
	first, second := f.subscribe(f.open(c)), f.subscribe(f.open(c))
	for range 3 {
		read(first, 2000)
		read(second, 2000)
	}
	f.Must(first.Close(f.Ctx))
	again := f.subscribe(f.open(c))
	read(again, 1000)
	f.Must(second.Close(f.Ctx))
	f.Must(again.Close(f.Ctx))
	for range 2 {
		single := f.subscribe(f.open(keyedConfig()))
		read(single, 1000)
		f.Must(single.Close(f.Ctx))
	}
}

func TestClaimsAreBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(keyedTable)
	f.Exec("insert into shop (payload) select n from generate_series(1, 100) n")
	src := f.subscribe(f.open(workers(2)))
	a := f.fetch(src)
	f.fetch(src)
	b, err := src.Fetch(f.Ctx, plenty)
	f.Must(err)
	if len(b.Messages) != 0 {
		t.Fatal("a third claim")
	}
	f.settle(src, a)
	f.fetch(src)
}

func TestSourcesOfATableShareItsClaims(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(keyedTable)
	f.Exec("insert into shop (payload) select n from generate_series(1, 100) n")
	table := f.open(workers(2))
	first, second := f.subscribe(table), f.subscribe(table)
	a := f.fetch(first)
	f.fetch(second)
	for _, src := range []driver.Source{first, second} {
		if b, err := src.Fetch(f.Ctx, plenty); err != nil || len(b.Messages) != 0 {
			t.Fatalf("a third claim: %v %v", payloads(b), err)
		}
	}
	f.settle(first, a)
	f.fetch(second)
}

func TestOldClaimsAreGivenUp(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(keyedTable)
	f.Exec("insert into shop (payload) select n from generate_series(1, 25) n")
	c := workers(2)
	c.ClaimTimeout = 100 * time.Millisecond
	src := f.subscribe(f.open(c))
	a, b := f.fetch(src), f.fetch(src)
	f.Eventually("no transaction is open", func() bool {
		return f.Number("select count(*) from pg_stat_activity where datname = current_database() and application_name = 'penstock' and xact_start is not null") == 0
	})
	f.Must(storetest.Settle(f.Ctx, src, driver.Settled{Batch: a}, driver.Settled{Batch: b})) // passed over
	if n := f.Number("select count(*) from shop where processed_at is not null"); n != 0 {
		t.Fatalf("%d rows are settled", n)
	}
	got, rewound := map[string]bool{}, false
	f.Eventually("all come again", func() bool {
		b, err := src.Fetch(f.Ctx, plenty)
		f.Must(err)
		rewound = rewound || b.Rewound
		if len(b.Messages) > 0 {
			f.settle(src, b)
		}
		for _, p := range payloads(b) {
			got[p] = true
		}
		return len(got) == 25
	})
	if !rewound {
		t.Error("the source did not say that it went back")
	}
}

func TestWorkerThatDiesLeavesItsRows(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(keyedTable)
	f.Exec("insert into shop (payload) select n from generate_series(1, 20) n")
	first, second := f.subscribe(f.open(workers(2))), f.subscribe(f.open(workers(2)))
	f.fetch(first)
	b := f.fetch(second)
	if got := fmt.Sprint(payloads(b)[0]); got != "11" {
		t.Fatalf("the second begins with %s", got)
	}
	f.settle(second, b)
	f.Must(first.Close(f.Ctx))
	b = f.fetch(second)
	if len(b.Messages) != 10 {
		t.Errorf("%d rows", len(b.Messages))
	}
}
