package mysql_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/mysql"
)

// A row that comes later may have the lower number, because each node of a cluster has its own numbers. Messages come in order of their times,
// which a batch carries with them, and so do parked messages of a key.
func TestNumbersThatFall(t *testing.T) {
	t.Parallel()
	for _, engine := range engines(t) {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			url := testserver.MariaDBDatabase(t)
			app := application(t, url)
			schema, _ := databaseOf(t, url)
			s := openStore(t, url, mysql.Options{Schema: schema, Engine: engine})
			must(t, s.Migrate(t.Context()))
			src := reader(t, s, "orders")
			for _, seq := range []int{900, 500, 100} {
				exec(t, app, fmt.Sprintf("insert into outbox_orders (seq, `key`, topic, payload) values (%d, 'k', '', '')", seq))
			}
			want := []int64{900, 500, 100}
			ordered := func(b driver.Batch) {
				t.Helper()
				var seqs []int64
				for _, m := range b.Messages {
					seqs = append(seqs, m.Seq)
				}
				if !slices.Equal(seqs, want) || len(b.Places) != len(seqs) || !slices.IsSorted(b.Places) || len(slices.Compact(slices.Clone(b.Places))) != len(seqs) {
					t.Fatalf("fetched %d at the places %d, want %d at places that grow", seqs, b.Places, want)
				}
				if !b.Place(1).Before(b.Place(2)) || b.Place(2).Before(b.Place(1)) {
					t.Errorf("%v is not before %v", b.Place(1), b.Place(2))
				}
			}
			b := fetch(t, src, 10)
			ordered(b)
			verdicts := make([]driver.Verdict, 3)
			for i := range verdicts {
				verdicts[i] = driver.Verdict{Outcome: driver.Parked}
			}
			verdicts[0].Failures = []penstock.Failure{{Attempt: 1, At: time.Now(), Err: "no"}}
			must(t, storetest.Settle(t.Context(), src, driver.Settled{Batch: b, Verdicts: verdicts}))
			var again []int64
			for deadline := time.Now().Add(time.Minute); len(again) < 3 && time.Now().Before(deadline); {
				b := fetch(t, src, 10) // of a key that has failed the first comes alone
				for _, m := range b.Messages {
					again = append(again, m.Seq)
				}
				must(t, src.Settle(t.Context(), b.Number, driver.Settled{Batch: b}))
			}
			if !slices.Equal(again, want) {
				t.Errorf("parked messages came as %d, want %d", again, want)
			}
			if b := fetch(t, src, 10); len(b.Messages) > 0 {
				t.Errorf("%d messages came again", len(b.Messages))
			}
		})
	}
}
