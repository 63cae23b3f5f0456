package main

import (
	"database/sql"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/mysql"
	"github.com/penstock/penstock/store/portable"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/store/sqlite"
)

// consuming is an application that receives with the inbox billing, on any database.
type consuming struct {
	t       *testing.T
	inOrder func(m penstock.Message, wait time.Duration) ([]penstock.Released, error)
	due     func() ([]penstock.Released, error)
}

// eachInbox runs a test over every store that has inboxes.
func eachInbox(t *testing.T, test func(t *testing.T, d *desk, c *consuming)) {
	t.Run("sqlite", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "test.db")
		d := urlDesk(t, "sqlite:"+file)
		db, err := sqlite.OpenDB(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		box := d.store.(*sqlite.Store).Inbox("billing")
		in := func(receive func(sqlite.Tx) ([]penstock.Released, error)) ([]penstock.Released, error) {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				return nil, err
			}
			defer func() { _ = tx.Rollback() }()
			all, err := receive(tx)
			if err != nil {
				return nil, err
			}
			return all, tx.Commit()
		}
		test(t, d, &consuming{t,
			func(m penstock.Message, wait time.Duration) ([]penstock.Released, error) {
				return in(func(tx sqlite.Tx) ([]penstock.Released, error) { return box.InOrder(t.Context(), tx, m, wait) })
			},
			func() ([]penstock.Released, error) {
				return in(func(tx sqlite.Tx) ([]penstock.Released, error) { return box.Due(t.Context(), tx, 100) })
			}})
	})
	t.Run("postgres", func(t *testing.T) {
		database := postgrestest.Database(t)
		d := urlDesk(t, database)
		conn := connect(t, database)
		box := d.store.(*postgres.Store).Inbox("billing")
		in := func(receive func(tx pgx.Tx) error) error { return pgx.BeginFunc(t.Context(), conn, receive) }
		test(t, d, &consuming{t,
			func(m penstock.Message, wait time.Duration) (all []penstock.Released, err error) {
				err = in(func(tx pgx.Tx) (err error) { all, err = box.InOrder(t.Context(), tx, m, wait); return err })
				return all, err
			},
			func() (all []penstock.Released, err error) {
				err = in(func(tx pgx.Tx) (err error) { all, err = box.Due(t.Context(), tx, 100); return err })
				return all, err
			}})
	})
	t.Run("portable", func(t *testing.T) {
		database := testserver.Database(t, testserver.PostgresURL(t))
		open := func() driver.Database {
			s, err := portable.Open(t.Context(), database, portable.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		store := open()
		d, conn, box := newDesk(t, store, open), connect(t, database), store.(*portable.Store).Inbox("billing")
		in := func(receive func(tx pgx.Tx) error) error { return pgx.BeginFunc(t.Context(), conn, receive) }
		test(t, d, &consuming{t,
			func(m penstock.Message, wait time.Duration) (all []penstock.Released, err error) {
				return all, in(func(tx pgx.Tx) error { all, err = box.InOrder(t.Context(), tx, m, wait); return err })
			},
			func() (all []penstock.Released, err error) {
				return all, in(func(tx pgx.Tx) error { all, err = box.Due(t.Context(), tx, 100); return err })
			}})
	})
	t.Run("mysql", func(t *testing.T) {
		database := testserver.MariaDBDatabase(t)
		u, err := url.Parse(database)
		if err != nil {
			t.Fatal(err)
		}
		schema := strings.TrimPrefix(u.Path, "/")
		open := func() driver.Database {
			s, err := mysql.Open(database, mysql.Options{Schema: schema})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		db, err := sql.Open("mysql", "root@tcp("+u.Host+")/")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		store := open()
		box := store.(*mysql.Store).Inbox("billing")
		in := func(receive func(*sql.Tx) ([]penstock.Released, error)) ([]penstock.Released, error) {
			tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
			if err != nil {
				return nil, err
			}
			defer func() { _ = tx.Rollback() }()
			all, err := receive(tx)
			if err != nil {
				return nil, err
			}
			return all, tx.Commit()
		}
		test(t, newDesk(t, store, open), &consuming{t,
			func(m penstock.Message, wait time.Duration) ([]penstock.Released, error) {
				return in(func(tx *sql.Tx) ([]penstock.Released, error) { return box.InOrder(t.Context(), tx, m, wait) })
			},
			func() ([]penstock.Released, error) {
				return in(func(tx *sql.Tx) ([]penstock.Released, error) { return box.Due(t.Context(), tx, 100) })
			}})
	})
}

func connect(t *testing.T, database string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}

// receives requires that a message hands over these messages.
func (c *consuming) receives(key, id, previous string, want string) {
	c.t.Helper()
	m := penstock.Message{ID: id, Key: key, Payload: []byte("of " + id), Headers: map[string]string{"trace": id}}
	if previous != "" {
		m.Headers[penstock.HeaderPrevious] = previous
	}
	released, err := c.inOrder(m, time.Hour)
	c.wants(released, err, want)
}

// isDue requires that these messages are due.
func (c *consuming) isDue(want string) {
	c.t.Helper()
	released, err := c.due()
	c.wants(released, err, want)
}

func (c *consuming) wants(released []penstock.Released, err error, want string) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
	var texts []string
	for _, r := range released {
		text := r.ID
		if r.Gap {
			text += " after " + r.Missing
		}
		if r.Late {
			text += " late"
		}
		texts = append(texts, text)
	}
	same(c.t, "handed over", strings.Join(texts, ", "), want)
}
