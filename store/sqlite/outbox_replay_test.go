package sqlite_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/store/sqlite"
)

// An application deletes three messages: one must be delivered again, one is the first of a parked key, and one is a dead letter that a key waits
// for. Housekeeping ends the replay, and the keys continue.
func TestEntriesOfWhatIsGone(t *testing.T) {
	defer sqlite.SweepEvery(0)()
	_, s, app := newFile(t, sqlite.Options{})
	ctx := t.Context()
	must(t, s.SetRetention(ctx, "orders", admin.Retention{Age: time.Hour}))
	src := subscribe(t, s, "billing")
	must(t, s.Publish(ctx, "orders", penstock.Message{}, penstock.Message{Key: "parked"}, penstock.Message{Key: "parked", Payload: []byte("parked")},
		penstock.Message{Key: "held"}, penstock.Message{Key: "held", Payload: []byte("held")}))
	_, batches := fetchAll(t, src)
	refused := []penstock.Failure{{Attempt: 1, At: time.Now(), Err: "no"}}
	batches[0].Verdicts = []driver.Verdict{{}, {Outcome: driver.Parked, Failures: refused, RetryIn: time.Hour}, {Outcome: driver.Parked},
		{Outcome: driver.Dead, Failures: refused, Hold: true}, {Outcome: driver.Parked}}
	must(t, storetest.Settle(ctx, src, batches...))
	if n, err := s.Replay(ctx, admin.Replay{Outbox: "orders", Subscription: "billing"}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	mustExec(t, app, `delete from penstock_outbox_orders where length(payload) = 0`)
	if got, _ := fetchAll(t, src); len(got) != 0 {
		t.Errorf("got %v", got)
	}
	must(t, s.Maintain(ctx, "orders"))
	got, _ := fetchAll(t, src)
	var payloads []string
	for _, m := range got {
		payloads = append(payloads, string(m.Payload))
	}
	if slices.Sort(payloads); fmt.Sprint(payloads) != "[held parked]" {
		t.Errorf("got %v, want what was parked behind", payloads)
	}
	if n := scan[int](t, app, `select count(*) from penstock_entries`); n != 2 {
		t.Errorf("there are %d entries, want those in flight", n)
	}
}
