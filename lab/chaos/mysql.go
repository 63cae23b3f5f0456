package main

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"time"

	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/mysql"
)

//go:embed setup_mysql.sql
var setupMySQL string

// startMySQL starts the server and a way to it that is never disturbed.
func (r *rig) startMySQL() (err error) {
	if r.mysql, err = testserver.NewMariaDB(); err != nil {
		return err
	}
	r.closers = append(r.closers, r.mysql.Close)
	r.database = r.mysql.URL + "?engine=" + r.engine
	return nil
}

// setUpMySQL makes the business's tables and the outbox.
func (r *rig) setUpMySQL(ctx context.Context) error {
	if _, err := r.penstock(ctx, "migrate"); err != nil {
		return err
	}
	return r.withMySQL(r.database, func(db *sql.DB) error {
		statements := strings.Split(strings.ReplaceAll(setupMySQL, "{engine}", r.engine), ";\n")
		for _, key := range append(quickKeys, lateKeys...) {
			statements = append(statements, fmt.Sprintf("insert into business.account (`key`) values ('%s')", key))
		}
		for _, statement := range statements {
			if strings.TrimSpace(statement) == "" {
				continue
			}
			if _, err := db.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		_, err := r.penstock(ctx, "outbox", "create", outbox)
		return err
	})
}

// asProducer is the database's URL for producers, which their sessions are known by.
func asProducer(database string) (string, error) {
	u, err := url.Parse(database)
	if err != nil {
		return "", err
	}
	u.User = url.User("producer")
	return u.String(), nil
}

func (r *rig) withMySQL(url string, fn func(*sql.DB) error) error {
	db, err := mysql.Connect(url)
	if err != nil {
		return err
	}
	defer db.Close()
	return fn(db)
}

// mysqlFacts is facts.
func (r *rig) mysqlFacts(ctx context.Context) (map[string]message, error) {
	facts := map[string]message{}
	err := r.withMySQL(r.database, func(db *sql.DB) error {
		for writing := 1; writing > 0; sleep(ctx, 50*time.Millisecond) {
			err := db.QueryRowContext(ctx, "select count(*) from information_schema.processlist where user = 'producer'").Scan(&writing)
			if err != nil || ctx.Err() != nil {
				return errors.Join(err, ctx.Err())
			}
		}
		return readFacts(ctx, db, "business.fact", facts)
	})
	return facts, err
}

// mysqlTransaction holds one open, as transaction does.
func (r *rig) mysqlTransaction(name, begin, statement string) fault {
	return fault{name, name, blast{}, 2, func(ctx context.Context, random *rand.Rand, _ func()) (happened bool, err error) {
		err = r.withMySQL(r.database, func(db *sql.DB) error {
			conn, err := db.Conn(ctx)
			if err != nil {
				return err
			}
			defer conn.Close()
			for _, statement := range []string{"set session transaction isolation level repeatable read", begin, statement} {
				if _, err := conn.ExecContext(ctx, statement); err != nil {
					return err
				}
			}
			happened = true
			sleep(ctx, between(random, lease, 5*lease))
			_, err = conn.ExecContext(context.WithoutCancel(ctx), "commit")
			return err
		})
		if err != nil { // the server was killed meanwhile, or just now
			r.chronicle.printf("%s ended early: %v", name, err)
		}
		return happened, nil
	}}
}

// isMySQLCommit finds the producers' COMMIT: a command of a query.
func isMySQLCommit(said []byte) bool { return strings.Contains(string(said), "\x03COMMIT") }

// mysqlConn is a producer's connection.
type mysqlConn struct{ sqlConn }

func connectMySQL(_ context.Context, url string) (database, error) {
	db, err := mysql.Connect(url)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return &mysqlConn{sqlConn{db: db, facts: "business.fact", outbox: "penstock.outbox_shop", queue: "penstock.queue_tasks"}}, nil
}

// mark: a transaction has no number before it writes.
func (c *mysqlConn) mark(ctx context.Context) error {
	_, err := c.tx.ExecContext(ctx, "insert into business.unrelated () values ()")
	return err
}

func (c *mysqlConn) count(ctx context.Context, key string) (n int64, err error) {
	result, err := c.tx.ExecContext(ctx, "update business.account set n = last_insert_id(n + 1) where `key` = ?", key)
	if err != nil {
		return 0, err
	}
	return result.LastInsertId()
}
