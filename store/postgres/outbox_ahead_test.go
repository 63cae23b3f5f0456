package postgres_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/store/postgres"
)

var undecided = driver.Verdict{Outcome: driver.Undecided}

// The seqs settled ahead of a cursor are kept with it until the cursor has passed them, and no
// longer. There are seqs that were rolled back in between, and transactions in flight.
func TestAheadIsForgotten(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	ahead := func() string {
		var text string
		f.Must(f.Conn.QueryRow(f.Ctx, "select ahead::text from penstock._cursor order by epoch desc, n desc limit 1").Scan(&text))
		return text
	}
	src := f.subscribe()
	unrelated := f.Connect()
	tx, err := unrelated.Begin(f.Ctx)
	f.Must(err)
	f.insert(unrelated, "late", "late")
	var all []string
	for i := range 12 {
		f.insert(f.Conn, fmt.Sprint(i), fmt.Sprint(i))
		all = append(all, fmt.Sprint(i))
		f.Exec("begin; insert into penstock.orders (topic, payload) values ('t', ''); rollback")
	}
	var got []string
	for round := range 3 {
		for {
			b, err := src.Fetch(f.Ctx, driver.Limit{Messages: 5, Bytes: 1 << 20})
			f.Must(err)
			if len(b.Messages) == 0 {
				break
			}
			verdicts := slices.Repeat([]driver.Verdict{undecided}, len(b.Messages))
			for i, m := range b.Messages {
				if i%3 == 2-round {
					verdicts[i] = driver.Verdict{}
					got = append(got, string(m.Payload))
				}
			}
			f.Must(storetest.Settle(f.Ctx, src, driver.Settled{Batch: b, Verdicts: verdicts}))
		}
		if round == 0 && ahead() == "{}" {
			t.Fatal("nothing is ahead of the cursor")
		}
		f.Must(src.Close(f.Ctx))
		src = f.subscribe()
	}
	got = append(got, f.drain(src)...)
	f.Must(src.Renew(f.Ctx))
	if text := ahead(); text != "{}" {
		t.Errorf("all is settled, and the cursor has %s ahead", text)
	}
	f.Must(tx.Commit(f.Ctx))
	got = append(got, f.drain(src)...)
	slices.Sort(got)
	want := append(all, "late")
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want each once of %q", got, want)
	}
}

// A backlog that is read after a restore is not begun anew by each reader.
func TestAheadOfARestoredCursor(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	src := f.subscribe()
	for i := range 3 {
		f.insert(f.Conn, "k", fmt.Sprint("settled ", i))
	}
	f.drain(src)
	var want []string
	for i := range 9 {
		f.insert(f.Conn, fmt.Sprint(i), fmt.Sprint("open ", i))
		want = append(want, fmt.Sprint("open ", i))
	}
	f.Must(src.Close(f.Ctx))
	f.Exec("update penstock.orders set xid = (xid::text::bigint + 1000000000)::text::xid8")
	f.Exec("update penstock._cursor set system = system + 1")

	late := f.Connect()
	tx, err := late.Begin(f.Ctx)
	f.Must(err)
	f.insert(late, "late", "late")
	f.insert(f.Conn, "new", "new")
	var got []string
	for range 4 { // each settles a batch, and a part of another
		src = f.subscribe()
		for i := range 2 {
			b, err := src.Fetch(f.Ctx, driver.Limit{Messages: 2, Bytes: 1 << 20})
			f.Must(err)
			if len(b.Messages) == 0 {
				continue
			}
			verdicts := make([]driver.Verdict, len(b.Messages))
			if verdicts[0] = undecided; i == 0 || len(verdicts) == 1 {
				verdicts[0] = driver.Verdict{}
			}
			for i, m := range b.Messages {
				if verdicts[i].Outcome == driver.Delivered {
					got = append(got, string(m.Payload))
				}
			}
			f.Must(storetest.Settle(f.Ctx, src, driver.Settled{Batch: b, Verdicts: verdicts}))
		}
		f.Must(src.Close(f.Ctx))
		if tx != nil {
			f.Must(tx.Commit(f.Ctx))
			tx = nil
		}
	}
	src = f.subscribe()
	got = append(got, f.drain(src)...)
	slices.Sort(got)
	want = append(want, "late", "new")
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want each once of %q", got, want)
	}
}
