package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/retry"
	"github.com/penstock/penstock/internal/test/inboxtest"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/mysql"
)

func TestInboxInnoDB(t *testing.T) { inboxSuite(t, "InnoDB") }

func TestInboxMyRocks(t *testing.T) { inboxSuite(t, "RocksDB", inboxtest.Engine...) }

func inboxSuite(t *testing.T, engine string, only ...string) {
	t.Parallel()
	has(t, engine)
	inboxtest.Run(t, func(t testing.TB) inboxtest.Instance {
		url := testserver.MariaDBDatabase(t)
		schema, _ := databaseOf(t, url)
		s := openStore(t, url, mysql.Options{Schema: schema, Engine: engine})
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		app := application(t, url, engine)
		exec := func(statement string) {
			if _, err := app.Exec(statement); err != nil {
				t.Fatal(err)
			}
		}
		exec("create table effects (n bigint auto_increment primary key, msgkey varbinary(100), place varbinary(100)) engine = " + engine)
		level := levelOf(t, app, engine)
		i := inboxtest.Receiving(inboxtest.Instance{
			Store: s,
			Age: func(testing.TB) {
				for _, table := range []string{"received", "key_heads", "gaps", "progress", "attempts"} {
					exec("update " + table + " set at = at - interval 25 hour")
				}
			},
			Another: func(t testing.TB) driver.Store {
				return openStore(t, url, mysql.Options{Schema: schema, Engine: engine})
			},
			Tables: func(t testing.TB) []string {
				return column[string](t, app, "select table_name from information_schema.tables where table_schema = database()")
			},
			Count: func(t testing.TB, of string) int { return column[int](t, app, "select count(*) from "+of)[0] },
			Effects: func(t testing.TB, key string) []string {
				return column[string](t, app, "select place from effects where msgkey = ? order by n", key)
			},
		}, s.Inbox, inboxtest.App[mysql.Tx, *sql.Tx, mysql.Begin]{
			Pool: app,
			Away: func() (mysql.Begin, *tcpproxy.Proxy) {
				_, host := databaseOf(t, url)
				proxy := tcpproxy.New(t, host)
				return application(t, "mysql://root@"+proxy.Addr()+"/"+schema, engine), proxy
			},
			Begin: func(ctx context.Context) (*sql.Tx, error) { return app.BeginTx(ctx, &sql.TxOptions{Isolation: level}) },
			Query: func(tx *sql.Tx) mysql.Tx { return tx },
			Exec: func(ctx context.Context, tx *sql.Tx, statement string) error {
				_, err := tx.ExecContext(ctx, statement)
				return err
			},
			Commit:   (*sql.Tx).Commit,
			Rollback: (*sql.Tx).Rollback,
		})
		process := i.Process
		i.Process = func(ctx context.Context, consumer string, m penstock.Message, wait time.Duration, h inboxtest.Handler) error {
			// MyRocks waits for a lock for a second only: a message is delivered again then.
			return retry.Few(ctx, func() error { return process(ctx, consumer, m, wait, h) })
		}
		return i
	}, only...)
}

// column reads one column.
func column[T any](t testing.TB, db *sql.DB, query string, args ...any) (all []T) {
	rows, err := db.Query(query, args...)
	must(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		all = append(all, *new(T))
		must(t, rows.Scan(&all[len(all)-1]))
	}
	must(t, rows.Err())
	return all
}

// A transaction may see an older state than the one that it has waited for, unless it is READ COMMITTED. In that case InOrder refuses it. So
// does MariaDB itself with innodb_snapshot_isolation, the default since 11.6.
func TestInboxRefusesAnOldSnapshot(t *testing.T) {
	t.Parallel()
	settings := []string{"set session innodb_snapshot_isolation = off", "set session innodb_snapshot_isolation = on"}
	if ofMySQL(t) {
		settings = []string{"do 0"}
	}
	for _, engine := range engines(t) {
		for _, setting := range settings {
			for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead} {
				url := testserver.MariaDBDatabase(t)
				schema, _ := databaseOf(t, url)
				s := openStore(t, url, mysql.Options{Schema: schema, Engine: engine})
				for _, err := range []error{s.Migrate(t.Context()), s.CreateInbox(t.Context(), "billing", 0)} {
					if err != nil {
						t.Fatal(err)
					}
				}
				app, box := application(t, url), s.Inbox("billing")
				conn, err := app.Conn(t.Context())
				must(t, err)
				exec(t, conn, setting)
				tx, err := conn.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
				if err != nil {
					t.Fatal(err)
				}
				if err := tx.QueryRow("select count(*) from held").Scan(new(int)); err != nil { // its snapshot
					t.Fatal(err)
				}
				first := penstock.Message{ID: "1", Key: "k"}
				if err := box.Process(t.Context(), app, first, 0, func(context.Context, *sql.Tx, penstock.Released) error { return nil }); err != nil {
					t.Fatal(err)
				}
				got, err := box.InOrder(t.Context(), tx, penstock.Message{ID: "2", Key: "k", Headers: map[string]string{penstock.HeaderPrevious: "1"}}, time.Hour)
				must(t, tx.Rollback(), conn.Close())
				if level == sql.LevelReadCommitted {
					if err != nil || len(got) != 1 {
						t.Errorf("%s, read committed: %v, %v, want the message", engine, got, err)
					}
					continue
				}
				var hinted *penstock.HintError
				if err == nil || engine == "InnoDB" && !errors.As(err, &hinted) {
					t.Errorf("%s, repeatable read: %v, %v, want an error with a hint", engine, got, err)
				}
			}
		}
	}
}
