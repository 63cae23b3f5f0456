package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/testserver"
)

// penstock explain prints its measurements as a table and as JSON, and exits with 3 if something reads too
// much.
func TestExplain(t *testing.T) {
	db := postgrestest.On(t, postgrestest.Database(t))
	for name, c := range map[string]struct{ url, text string }{
		"PostgreSQL": {db.URL, "subscription"},
		"portable":   {"portable+" + testserver.Database(t, testserver.PostgresURL(t)), "subscription"},
		"SQLite":     {"sqlite:" + t.TempDir() + "/test.db", "SEARCH"},
	} {
		t.Run(name, func(t *testing.T) {
			d := urlDesk(t, c.url)
			d.must("outbox", "create", "orders")
			d.must("queue", "create", "mails")
			d.must("enqueue", "mails", "hello")
			if out := d.must("explain", "orders"); !strings.Contains(out, c.text) {
				t.Errorf("of an outbox: %s", out)
			}
			var told struct{ Statements []doctor.Statement }
			out := d.must("explain", "mails", "--json")
			if err := json.Unmarshal([]byte(out), &told); err != nil || len(told.Statements) < 2 {
				t.Fatalf("%v: %s", err, out)
			}
			for _, s := range told.Statements {
				if s.Of != "mails" || s.Slow || s.Verdict == "" || s.Measured == (len(s.Plan) > 0) || s.Measured && s.Rows != 1 {
					t.Errorf("%+v", s)
				}
			}
			if o := d.cli("explain", "nothing"); o.code == 0 || !strings.Contains(o.stderr, "no outbox and no queue") {
				t.Errorf("%+v", o)
			}
		})
	}
}

// A statement that reads too much causes an exit code, and a finding of doctor.
func TestExplainSlow(t *testing.T) {
	db := postgrestest.On(t, postgrestest.Database(t))
	d := newPatient(t, db.URL)
	d.outbox("orders")
	src, err := d.store.Subscribe(t.Context(), driver.Subscribe{Outbox: "orders", Subscription: "billing", Holder: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if err := src.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	db.Exec("insert into penstock.orders (key, topic, payload) select 'k' || i, 't', 'p' from generate_series(1, 20000) i")
	db.Exec(`do $$ declare i regclass; begin for i in select indexrelid from pg_index where indrelid = 'penstock.orders'::regclass and indnkeyatts = 1 loop execute 'drop index ' || i || ' cascade'; end loop; end $$`)
	if o := d.cli("explain", "orders"); o.code != terminal.ExitCheck || !strings.Contains(o.stdout, "20000 for 1000 rows") || !strings.Contains(o.stderr, "reads far more") {
		t.Errorf("%+v", o)
	}
	if f := d.finds(doctor.CheckPlans, doctor.Warning, "orders/billing", "20000 for 1000 rows"); f.Next != "penstock explain orders" {
		t.Errorf("%+v", f)
	}
}
