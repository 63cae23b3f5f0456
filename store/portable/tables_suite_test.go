package portable_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/tablestest"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/internal/test/wire"
	"github.com/penstock/penstock/store/portable"
)

func TestTables(t *testing.T) {
	t.Parallel()
	tablestest.Run(t, tablestest.Harness{
		Open:   onTables,
		Faults: faults,
		Clock: func(t testing.TB) tablestest.Clocked {
			server := testserver.StartPostgresWithClock(t)
			a := openStore(t, server.URL, portable.Options{})
			if err := a.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			return tablestest.Clocked{A: a, B: openStore(t, server.URL, portable.Options{}),
				Set: func(offset time.Duration) {
					if err := server.SetClock(offset); err != nil {
						t.Fatal(err)
					}
				},
				Exec: func(statement string) {
					exec(t, server.URL, strings.ReplaceAll(statement, "{schema}", "penstock_portable"))
				},
			}
		},
		Named: func(t testing.TB, schema string) tablestest.Store {
			return openStore(t, testserver.Database(t, testserver.PostgresURL(t)), portable.Options{Schema: schema})
		},
		Trips: func(call string) []tablestest.Trip {
			commit := tablestest.Trip{Text: "commit", Under: true}
			switch call {
			case "Publish":
				return []tablestest.Trip{{Text: `insert into "penstock_portable"."outbox_orders"`}}
			case "Enqueue":
				return []tablestest.Trip{{Text: `insert into "penstock_portable"."queue_jobs"`}}
			case "Dedup": // its transaction has several
				return []tablestest.Trip{commit}
			case "Claim":
				return []tablestest.Trip{{Text: `insert into "penstock_portable".leases`}}
			case "Ack", "AckClaim":
				return []tablestest.Trip{{Text: `delete from "penstock_portable"."queue_jobs"`}}
			case "Extend":
				return []tablestest.Trip{{Text: "set until"}}
			}
			return []tablestest.Trip{{Text: `delete from "penstock_portable".leases`, Under: true, IfHeld: true}, commit}
		},
	})
}

// faults are those after which everything continues.
var faults = []wire.Fault{wire.Refuse, wire.CutBefore, wire.CutAfter}

func onTables(t testing.TB) tablestest.Instance {
	f := newFixture(t, portable.Options{})
	f.must(f.store.CreateQueue(t.Context(), "jobs", penstock.FIFO))
	config, err := pgx.ParseConfig(f.url)
	f.must(err)
	app := stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = app.Close() })
	p := wire.New()
	return tablestest.Instance{Store: openStore(t, p.Postgres(t, f.url), portable.Options{}), Direct: f.store, Proxy: p, App: app, Key: "key", Schema: "penstock_portable",
		Ago: func(d time.Duration) string { return fmt.Sprintf("now() - interval '%d seconds'", int(d.Seconds())) },
		Gate: []string{"create table {schema}.gate (n int)", "insert into {schema}.gate values (1)",
			"create function {schema}.through() returns trigger language plpgsql as $$ begin perform 1 from {schema}.gate for update; return new; end $$",
			"create trigger through before insert on {schema}.leases for each row execute function {schema}.through()"},
		Waiting: "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'",
		UncheckHeaders: func(t testing.TB, table string) {
			exec(t, f.url, "alter table penstock_portable."+table+" drop constraint "+table+"_headers_check")
		},
	}
}
