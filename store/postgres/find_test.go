package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/store/postgres"
)

// The state of a message is read for exactly those that are shown. One that is parked or dead does not count as settled because more of
// its key, or newer ones of other keys, are parked or dead too.
func TestFindSaysSettledOfNothingParkedOrDead(t *testing.T) {
	f := newFixture(t, postgres.Options{})
	src := f.subscribe()
	f.Exec("insert into penstock.orders (key, payload) select 'many', 'x' from generate_series(1, 60)")
	f.Exec("insert into penstock.orders (key, payload) values ('gone', 'x'), ('alone', 'x'), ('fine', 'x')")
	failure := []penstock.Failure{{Attempt: 1, At: time.Now(), Err: "no route"}}
	settled, firstID := 0, ""
	for settled < 63 {
		b, err := src.Fetch(f.Ctx, plenty)
		f.Must(err)
		if settled == 0 {
			firstID = b.Messages[0].ID
		}
		verdicts := make([]driver.Verdict, len(b.Messages))
		for i, m := range b.Messages {
			switch m.Key {
			case "many":
				verdicts[i] = driver.Verdict{Outcome: driver.Parked, RetryIn: time.Hour}
				if settled+i == 0 {
					verdicts[i].Failures = failure
				}
			case "gone":
				verdicts[i] = driver.Verdict{Outcome: driver.Dead, Failures: failure}
			}
		}
		f.Must(storetest.Settle(f.Ctx, src, driver.Settled{Batch: b, Verdicts: verdicts}))
		settled += len(b.Messages)
	}
	f.Exec(`insert into penstock._dead_letter (subscription, seq, topic, payload, created_at, attempt, failures)
	        select d.subscription, d.seq + 1000 + i, 't', 'x', now(), 1, '[]' from penstock._dead_letter d, generate_series(1, 20000) i`) // of other keys, newer
	for key, want := range map[string]string{"many": "25 parked", "gone": "1 dead", "alone": "1 settled", "fine": "1 settled", "none": "0 "} {
		found, err := f.store.FindMessages(f.Ctx, admin.Find{In: "orders", Key: key, Limit: 25})
		f.Must(err)
		count, state, last := 0, "", int64(1)<<62
		for _, one := range found {
			w := one.Where[0]
			if count++; state != "" && state != w.State {
				t.Errorf("of %s, %d is %s, those after it are %s", key, one.Message.Seq, w.State, state)
			}
			if state = w.State; one.Message.Seq >= last {
				t.Errorf("%d of %s comes after %d: the newest is first", one.Message.Seq, key, last)
			}
			last = one.Message.Seq
			byID, err := f.store.FindMessages(f.Ctx, admin.Find{In: "orders", ID: one.Message.ID, Limit: 25})
			f.Must(err)
			if len(byID) != 1 || byID[0].Where[0].State != state || byID[0].Message.Seq != last {
				t.Errorf("by its id, %d of %s is %+v", last, key, byID)
			}
		}
		if got := fmt.Sprint(count, " ", state); got != want {
			t.Errorf("of %s there are %s, want %s", key, got, want)
		}
		if key == "many" && last <= 25 { // 60 are parked, the first of them 1
			t.Errorf("the newest of %s that are shown begin with %d", key, last)
		}
	}
	f.Exec(`insert into penstock._parked (subscription, p, seq, created_at, parked_key, id, key, topic, payload)
	        select m.subscription, m.p + i, m.seq + 50000 + i, m.created_at, m.parked_key, 'later ' || i, m.key, m.topic, m.payload
	          from (select * from penstock._parked where parked_key like '%many' order by p desc limit 1) m, generate_series(1, 20000) i`) // behind them
	first, err := f.store.FindMessages(f.Ctx, admin.Find{In: "orders", ID: firstID, Limit: 25})
	f.Must(err)
	if len(first) != 1 || first[0].Where[0].State == "settled" {
		t.Errorf("of a key with 20,060 parked messages the first is %+v", first)
	}
}
