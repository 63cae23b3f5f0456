package main

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/penstock/penstock/store/sqlite"
)

const setupSQLite = `
create table account (key text primary key, n integer not null default 0);
create table fact (id text primary key, key text, n integer not null, topic text not null, own_id boolean not null);
create table unrelated (id integer primary key autoincrement, at text not null default current_timestamp);`

// setUpSQLite makes the file, the business's tables and the outbox.
func (r *rig) setUpSQLite(ctx context.Context) error {
	r.file = filepath.Join(r.dir, "shop.db")
	r.database = "sqlite:" + r.file
	if _, err := r.penstock(ctx, "migrate"); err != nil {
		return err
	}
	err := r.withSQLite(func(db *sql.DB) error {
		if _, err := db.ExecContext(ctx, setupSQLite); err != nil {
			return err
		}
		for _, key := range append(quickKeys, lateKeys...) {
			if _, err := db.ExecContext(ctx, "insert into account (key) values (?)", key); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	_, err = r.penstock(ctx, "outbox", "create", outbox)
	return err
}

func (r *rig) withSQLite(fn func(*sql.DB) error) error {
	db, err := sqlite.OpenDB(r.file)
	if err != nil {
		return err
	}
	defer db.Close()
	return fn(db)
}

// sqliteFacts is facts. The producers are goroutines, and have ended.
func (r *rig) sqliteFacts(ctx context.Context) (map[string]message, error) {
	facts := map[string]message{}
	err := r.withSQLite(func(db *sql.DB) error {
		return readFacts(ctx, db, "fact", facts)
	})
	return facts, err
}

// sqliteFaults are the faults of a file. Its only writer keeps all others waiting, so a relay may lose its lease.
func (r *rig) sqliteFaults() []fault {
	all := subscriptions(routeNames("")...)
	return []fault{
		r.sqliteTransaction("snapshot_pinned", blast{}, "begin", "select count(*) from fact"),
		r.sqliteTransaction("writer_held", all, "begin immediate", "insert into unrelated default values"),
		{"writer_killed", "writer", all, 4, r.killSQLiteWriter},
	}
}

// sqliteTransaction holds one open, as transaction does.
func (r *rig) sqliteTransaction(name string, b blast, begin, statement string) fault {
	return fault{name, name, b, 2, func(ctx context.Context, random *rand.Rand, _ func()) (bool, error) {
		err := r.withSQLite(func(db *sql.DB) error {
			for _, statement := range []string{begin, statement} {
				if _, err := db.ExecContext(ctx, statement); err != nil {
					return err
				}
			}
			sleep(ctx, between(random, lease/4, 2*lease))
			_, err := db.ExecContext(context.WithoutCancel(ctx), "commit")
			return err
		})
		if err != nil {
			r.chronicle.printf("%s ended early: %v", name, err)
		}
		return err == nil, nil
	}}
}

// killedWriterCommand makes this program a process that writes messages and never commits.
const killedWriterCommand = "write-until-killed"

// killSQLiteWriter kills a process in its transaction, which has spilled pages into the write-ahead log. A message of it that arrives is a phantom.
func (r *rig) killSQLiteWriter(ctx context.Context, random *rand.Rand, struck func()) (bool, error) {
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	writer := exec.Command(self, killedWriterCommand, r.file)
	if err := writer.Start(); err != nil {
		return false, err
	}
	sleep(ctx, between(random, 50*time.Millisecond, lease/2))
	if err := writer.Process.Kill(); err != nil {
		return false, err
	}
	struck()
	return writer.Wait() != nil, nil
}

// writeUntilKilled writes in one transaction until the process is killed.
func writeUntilKilled(file string) error {
	db, err := sqlite.OpenDB(file)
	if err != nil {
		return err
	}
	defer db.Close()
	for _, statement := range []string{"pragma cache_size = 10", "begin immediate"} {
		if _, err := db.Exec(statement); err != nil {
			return err
		}
	}
	for n := 0; ; n++ {
		if _, err := db.Exec("insert into penstock_outbox_shop (id, key, topic, payload) values (?, ?, ?, randomblob(5000))", fmt.Sprintf("killed-%d-%d", os.Getpid(), n), quickKeys[n%len(quickKeys)], topicPlaced); err != nil {
			return err
		}
	}
}

// sqliteConn is a producer's connection.
type sqliteConn struct{ sqlConn }

func connectSQLite(file string) (database, error) {
	db, err := sqlite.OpenDB(file)
	if err != nil {
		return nil, err
	}
	return &sqliteConn{sqlConn{db: db, facts: "fact", outbox: "penstock_outbox_shop", queue: "penstock_queue_tasks", milliseconds: true}}, nil
}

func (c *sqliteConn) mark(ctx context.Context) error {
	_, err := c.tx.ExecContext(ctx, "insert into unrelated default values")
	return err
}

func (c *sqliteConn) count(ctx context.Context, key string) (n int64, err error) {
	return n, c.tx.QueryRowContext(ctx, "update account set n = n + 1 where key = ? returning n", key).Scan(&n)
}
