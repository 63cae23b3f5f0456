package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/mysql"
)

func TestInnoDB(t *testing.T) { suite(t, "InnoDB", nil) }

func TestMyRocks(t *testing.T) { suite(t, "RocksDB", storetest.Engine) }

// suite: a transaction of it may be open for as long as a test, so the margin is long.
func suite(t *testing.T, engine string, only storetest.Cases) {
	t.Parallel()
	has(t, engine)
	storetest.Run(t, storetest.Harness{
		Open: func(t testing.TB) storetest.Instance {
			return instanceOn(t, testserver.MariaDBDatabase(t), mysql.Options{Engine: engine, Margin: time.Hour})
		},
		// Not Reclaim: plain tables do not shrink.
		Features: storetest.Features{ConcurrentWriters: true, Outage: true, Lose: true, Versions: true},
		Only:     only,
	})
}

// engines are those of the server that all tests share. MySQL has no MyRocks.
func engines(t testing.TB) []string {
	if ofMySQL(t) {
		return []string{"InnoDB"}
	}
	return []string{"InnoDB", "RocksDB"}
}

// has leaves a test out on a server without the engine.
func has(t testing.TB, engine string) {
	if !slices.Contains(engines(t), engine) {
		t.Skipf("this server has no %s", engine)
	}
}

func ofMySQL(t testing.TB) (is bool) {
	if err := application(t, testserver.MariaDBURL(t)).QueryRow("select version() not like '%MariaDB%'").Scan(&is); err != nil {
		t.Fatal(err)
	}
	return is
}

// dropCheck drops a check of a table by how its name begins.
func dropCheck(t testing.TB, db *sql.DB, table, name string) {
	if err := db.QueryRow("select constraint_name from information_schema.table_constraints where table_schema = database() and table_name = ? and constraint_name like concat(?, '%')", table, name).Scan(&name); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("alter table " + table + " drop constraint " + name); err != nil {
		t.Fatal(err)
	}
}

// databaseOf is the database that a test has for itself.
func databaseOf(t testing.TB, of string) (schema, host string) {
	u, err := url.Parse(of)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(u.Path, "/"), u.Host
}

func openStore(t testing.TB, of string, opts mysql.Options) *mysql.Store {
	store, err := mysql.Open(of, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// application is the business's own pool, in which a transaction has the server's default isolation level. With MyRocks it waits
// longer for a row than the second that is the default, which a busy machine takes.
func application(t testing.TB, of string, engine ...string) *sql.DB {
	schema, host := databaseOf(t, of)
	config := mysqldriver.NewConfig()
	config.User, config.Net, config.Addr, config.DBName = "root", "tcp", host, schema
	config.Logger = &mysqldriver.NopLogger{} // errors are returned too
	if slices.Contains(engine, "RocksDB") {
		config.Params = map[string]string{"rocksdb_lock_wait_timeout": "120"}
	}
	connector, err := mysqldriver.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func instanceOn(t testing.TB, direct string, opts mysql.Options) storetest.Instance {
	db := application(t, direct, opts.Engine)
	schema, host := databaseOf(t, direct)
	if _, err := db.Exec("create table counter (name varbinary(100) primary key, n bigint not null) engine = " + opts.Engine); err != nil {
		t.Fatal(err)
	}
	opts.Schema = schema
	counter, level := &counters{db: db}, levelOf(t, db, opts.Engine)
	proxy := tcpproxy.New(t, host)
	store := openStore(t, "mysql://root@"+proxy.Addr()+"/", opts)
	return storetest.Instance{
		Store:   store,
		Another: func(t testing.TB) driver.Store { return openStore(t, direct, opts) },
		Begin: func(ctx context.Context) (storetest.Tx, error) {
			tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
			return &businessTx{tx, store, counter}, err
		},
		Outage: func(t testing.TB) (down, up func()) {
			t.Cleanup(proxy.Resume)
			return proxy.Refuse, proxy.Resume
		},
		SetVersion: func(t testing.TB, version int64) {
			exec(t, db, fmt.Sprintf("update version set version = %d", version))
		},
		Spoil: func(t testing.TB) { exec(t, db, "alter table inboxes drop column keep") },
		Lose: func(t testing.TB) {
			for _, statement := range []string{"delete from outbox_" + storetest.Outbox, "alter table outbox_" + storetest.Outbox + " auto_increment = 1"} {
				if _, err := db.Exec(statement); err != nil {
					t.Fatal(err)
				}
			}
		},
	}
}

// levelOf is the server's default but where that refuses to change what has changed since the snapshot: in MyRocks, and with innodb_snapshot_isolation.
func levelOf(t testing.TB, db *sql.DB, engine string) sql.IsolationLevel {
	var name, is string
	err := db.QueryRow("show variables like 'innodb_snapshot_isolation'").Scan(&name, &is)
	if err != nil && !errors.Is(err, sql.ErrNoRows) { // MySQL has none
		t.Fatal(err)
	}
	if engine == "RocksDB" || is == "ON" {
		return sql.LevelReadCommitted
	}
	return sql.LevelDefault
}

// counters makes the rows that are counted in, outside of the transactions, which would lock the gap where there is none, and each other.
type counters struct {
	sync.Mutex
	db   *sql.DB
	made map[string]bool
}

func (c *counters) make(ctx context.Context, name string) error {
	c.Lock()
	defer c.Unlock()
	if c.made[name] {
		return nil
	}
	if c.made == nil {
		c.made = map[string]bool{}
	}
	_, err := c.db.ExecContext(ctx, "insert into counter values (?, 0)", name)
	c.made[name] = err == nil
	return err
}

type businessTx struct {
	*sql.Tx
	store    *mysql.Store
	counters *counters
}

func (b *businessTx) Publish(ctx context.Context, outbox string, msgs ...penstock.Message) error {
	return b.store.Outbox(outbox).PublishTx(ctx, b.Tx, msgs...)
}

func (b *businessTx) Count(ctx context.Context, name string) (n int64, err error) {
	if err := b.counters.make(ctx, name); err != nil {
		return 0, err
	}
	if _, err := b.ExecContext(ctx, "update counter set n = n + 1 where name = ?", name); err != nil {
		return 0, err
	}
	return n, b.QueryRowContext(ctx, "select n from counter where name = ?", name).Scan(&n)
}

func (b *businessTx) Commit(context.Context) error { return b.Tx.Commit() }

func (b *businessTx) Rollback(context.Context) error { return b.Tx.Rollback() }
