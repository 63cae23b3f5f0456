package mysql_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/tablestest"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/internal/test/wire"
	"github.com/penstock/penstock/store/mysql"
)

func TestTablesInnoDB(t *testing.T) { tables(t, "InnoDB") }

func TestTablesMyRocks(t *testing.T) { tables(t, "RocksDB", tablestest.Engine...) }

func tables(t *testing.T, engine string, only ...string) {
	t.Parallel()
	has(t, engine)
	tablestest.Run(t, tablestest.Harness{
		Open:   func(t testing.TB) tablestest.Instance { return onTables(t, engine) },
		Faults: []wire.Fault{wire.CutBefore, wire.CutAfter},
		Clock:  func(t testing.TB) tablestest.Clocked { return clocked(t, engine) },
		Named: func(t testing.TB, schema string) tablestest.Store {
			s := openStore(t, testserver.MariaDBURL(t), mysql.Options{Schema: schema, Engine: engine})
			t.Cleanup(func() { _ = s.DropSchema(context.Background()) })
			return s
		},
		Only: only,
		Trips: func(call string) []tablestest.Trip {
			commit := tablestest.Trip{Text: "commit", Under: true}
			switch call {
			case "Publish":
				return []tablestest.Trip{{Text: "`outbox_orders`"}}
			case "Enqueue", "Dedup":
				return []tablestest.Trip{{Text: "insert into `"}, commit}
			case "Claim":
				return []tablestest.Trip{{Text: ".leases ("}}
			case "Ack", "Extend":
				return []tablestest.Trip{{Text: "commit"}}
			}
			return []tablestest.Trip{{Text: "begin"}, commit}
		},
	})
}

func onTables(t testing.TB, engine string) tablestest.Instance {
	url := testserver.MariaDBDatabase(t)
	schema, host := databaseOf(t, url)
	opts := mysql.Options{Schema: schema, Engine: engine}
	p, app := wire.New(), application(t, url)
	s := openStore(t, "mysql://root@"+p.MySQL(t, host)+"/", opts)
	must(t, s.Migrate(t.Context()), s.CreateOutbox(t.Context(), "orders"), s.CreateQueue(t.Context(), "jobs", penstock.FIFO))
	return tablestest.Instance{Store: s, Direct: openStore(t, url, opts), Proxy: p, App: app, Key: "`key`", Schema: "`" + schema + "`",
		Ago: func(d time.Duration) string {
			return fmt.Sprintf("utc_timestamp() - interval %d second", int(d.Seconds()))
		},
		Gate: []string{"create table {schema}.gate (n int primary key)", "insert into {schema}.gate values (1)",
			"create trigger {schema}.through before insert on {schema}.leases for each row begin declare x int; select n into x from {schema}.gate for update; end"},
		Waiting:        "select count(*) from information_schema.innodb_trx x join information_schema.processlist p on p.id = x.trx_mysql_thread_id where x.trx_state = 'LOCK WAIT' and p.db = '" + schema + "'",
		UncheckHeaders: func(t testing.TB, table string) { dropCheck(t, app, table, "headers_") },
	}
}

// clocked has a server whose sessions are told the time as they begin, but for those of a superuser. It stands still for them.
func clocked(t testing.TB, engine string) tablestest.Clocked {
	server := testserver.StartMariaDB(t)
	root := application(t, server.URL+"mysql")
	const user = "worker@'127.0.0.1'"
	exec(t, root, "create database clocked", "create user "+user, "grant all on clocked.* to "+user)
	u := strings.Replace(server.URL, "root@", "worker@", 1) + "clocked"
	opts := mysql.Options{Schema: "clocked", Engine: engine}
	a := openStore(t, u, opts)
	must(t, a.Migrate(t.Context()))
	return tablestest.Clocked{A: a, B: openStore(t, u, opts),
		Set: func(offset time.Duration) {
			exec(t, root, fmt.Sprintf("set global init_connect = 'set timestamp = %d'", time.Now().Add(offset).Unix()))
			for _, id := range column[int64](t, root, "select id from information_schema.processlist where user = 'worker'") {
				_, _ = root.Exec(fmt.Sprint("kill ", id)) // if it has not ended by itself
			}
		},
		Exec: func(statement string) { exec(t, root, strings.ReplaceAll(statement, "{schema}", "clocked")) },
	}
}

// A job that is cancelled between the two round trips of a claim is not handed over.
func TestCancelledWhileClaimed(t *testing.T) {
	t.Parallel()
	i := onTables(t, "InnoDB")
	q := i.Store.DriverQueue("jobs")
	made, err := q.Enqueue(t.Context(), penstock.NewJob{Payload: []byte("1")}, penstock.NewJob{Payload: []byte("2")})
	must(t, err)
	i.Proxy.Decide(func(trip []byte) wire.Fault {
		if bytes.Contains(trip, []byte(".leases (")) {
			exec(t, i.App, fmt.Sprint("delete from queue_jobs where seq = ", made[0].ID))
		}
		return wire.Pass
	})
	jobs, err := q.Claim(t.Context(), driver.Claim{Jobs: 2, Lease: time.Hour})
	if err != nil || len(jobs) != 1 || jobs[0].ID != made[1].ID || string(jobs[0].Payload) != "2" {
		t.Errorf("claimed %+v, %v, want the second job", jobs, err)
	}
}

// Each call that a relay makes all the time is one round trip; an enqueue is two.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	i := onTables(t, "InnoDB")
	q := i.Store.DriverQueue("jobs")
	src := reader(t, i.Store.(*mysql.Store), "shipped")
	trips := func(what string, want int64, errs ...error) {
		t.Helper()
		must(t, errs...)
		if n := i.Proxy.Trips.Swap(0); n != want {
			t.Errorf("%s took %d round trips, want %d", what, n, want)
		}
	}
	_, err := q.Enqueue(t.Context(), penstock.NewJob{})
	must(t, err)
	_, err = q.Claim(t.Context(), driver.Claim{Jobs: 1, Lease: time.Hour}) // which asks for the table's engine
	must(t, err)
	i.Proxy.Trips.Store(0)
	trips("Publish", 1, i.Store.Publish(t.Context(), "shipped", penstock.Message{Key: "k"}))
	b, err := src.Fetch(t.Context(), driver.Limit{Messages: 10, Bytes: 1 << 20})
	trips("Fetch", 1, err)
	trips("Settle", 1, src.Settle(t.Context(), b.Number, driver.Settled{Batch: b}))
	_, err = q.Enqueue(t.Context(), make([]penstock.NewJob, 3)...)
	trips("Enqueue", 2, err)
	jobs, err := q.Claim(t.Context(), driver.Claim{Jobs: 2, Lease: time.Hour})
	trips("Claim", 2, err)
	_, err = q.Ack(t.Context(), jobs[0].Lease)
	trips("Ack", 1, err)
}
