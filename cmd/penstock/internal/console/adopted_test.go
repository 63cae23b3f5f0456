package console_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/console"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/store/postgres/adopt"
)

// An adopted table is on the overview, or why it has no status. Its page has its parked keys and its dead letters, which operators retry or discard.
func TestAdoptedTables(t *testing.T) {
	url := postgrestest.Database(t)
	s, err := postgres.Open(t.Context(), url, postgres.Options{})
	must(t, err)
	must(t, s.Migrate(t.Context()))
	t.Cleanup(func() { s.Close() })
	db := postgrestest.On(t, url)
	db.Exec("create table shop (id bigint primary key generated always as identity, key text, topic text not null, payload text not null, processed_at timestamptz)")
	columns := adopt.Columns{ID: "id", Order: []string{"id"}, Key: "key", Topic: "topic", Payload: "payload", ProcessedAt: "processed_at"}
	tables := []console.Adopted{}
	for _, name := range []string{"shop", "missing"} {
		table, err := adopt.Open(t.Context(), adopt.Options{URL: url, Subscription: "of " + name, Config: adopt.Config{Table: name, Columns: columns}, Log: slog.New(slog.DiscardHandler)})
		must(t, err)
		t.Cleanup(func() { table.Close() })
		tables = append(tables, console.Adopted{Table: name, Subscription: "of " + name, Store: table})
		if name == "shop" {
			source, err := table.Subscribe(t.Context(), driver.Subscribe{Holder: "relay-1"})
			must(t, err)
			db.Exec("insert into shop (key, topic, payload) values ('ann', 't', '{\"password\": \"p\"}'), ('bob', 't', 'x'), ('eve', 't', 'x'), ('kim', 't', 'x')")
			for done := 0; done < 4; {
				b, err := source.Fetch(t.Context(), driver.Limit{Messages: 10, Bytes: 1 << 20})
				must(t, err)
				verdicts := make([]driver.Verdict, len(b.Messages))
				for i, m := range b.Messages {
					refused := []penstock.Failure{{Attempt: 1, At: time.Now(), Err: "refused " + m.Key}}
					switch m.Key {
					case "ann", "bob":
						verdicts[i] = driver.Verdict{Outcome: driver.Dead, Failures: refused}
					case "eve":
						verdicts[i] = driver.Verdict{Outcome: driver.Parked, Failures: refused, RetryIn: time.Hour}
					}
				}
				must(t, storetest.Settle(t.Context(), source, driver.Settled{Batch: b, Verdicts: verdicts}))
				done += len(b.Messages)
			}
			t.Cleanup(func() { _ = source.Close(t.Context()) })
		}
	}
	d := serveWith(t, s, func(o *console.Options) { o.Adopted = tables })
	page := func(path string) string {
		t.Helper()
		code, text := d.ask("o", "GET", path, "")
		if code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, code, text)
		}
		return string(text)
	}
	if text := page("/"); !strings.Contains(text, `<a href="/ops/tables/shop/of%20shop">shop</a>`) || !strings.Contains(text, ">relay-1<") || !strings.Contains(text, ">missing</a>") {
		t.Errorf("the overview is %s", text)
	}
	const at = "/tables/shop/of%20shop"
	if text := page(at); !strings.Contains(text, "refused ann") || !strings.Contains(text, "refused eve") || !strings.Contains(text, "[redacted]") || strings.Contains(text, `&#34;p&#34;`) {
		t.Errorf("the page is %s", text)
	}
	if text := page("/tables/missing/of%20missing"); !strings.Contains(text, "It has no status") {
		t.Errorf("the page of a missing table is %s", text)
	}
	letters := func() (l console.List[console.DeadLetter]) {
		t.Helper()
		must(t, json.Unmarshal([]byte(page("/api/v1"+at+"/dead?limit=1")), &l))
		if len(l.Items) == 1 {
			var more console.List[console.DeadLetter]
			must(t, json.Unmarshal([]byte(page("/api/v1"+at+"/dead?after="+l.After)), &more))
			l.Items = append(l.Items, more.Items...)
		}
		return l
	}
	dead := letters()
	if len(dead.Items) != 2 || dead.Items[0].Key != "ann" {
		t.Fatalf("dead are %+v", dead)
	}
	if code, _ := d.ask("r", "POST", "/api/v1"+at+"/dead/discard", fmt.Sprintf(`{"numbers": [%d]}`, dead.Items[0].Number)); code != http.StatusForbidden {
		t.Errorf("a reader may discard: %d", code)
	}
	for path, said := range map[string]string{
		fmt.Sprintf("/discard?number=%d", dead.Items[0].Number): "discarded: 1",
		fmt.Sprintf("/retry?number=%d", dead.Items[1].Number):   "sent back: 1",
		"/parked?key=eve": "tried at once: 1",
	} {
		if code, text := d.ask("o", "POST", at+path, ""); code != http.StatusOK || !strings.Contains(string(text), said) {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	if left := letters(); len(left.Items) != 0 {
		t.Errorf("left are %+v", left)
	}
	for _, path := range []string{"/dead/discard", "/dead/retry"} {
		if code, text := d.ask("o", "POST", "/api/v1"+at+path, "{}"); code != http.StatusBadRequest {
			t.Errorf("%s of no number: %d %s", path, code, text)
		}
	}
	if code, _ := d.ask("r", "GET", "/tables/shop/other", ""); code != http.StatusNotFound {
		t.Errorf("of another subscription: %d", code)
	}
}
