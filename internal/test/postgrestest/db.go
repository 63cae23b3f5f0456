package postgrestest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Deadline ends a test whose condition never came. It is far longer than any condition takes, so a
// slow machine fails nothing.
const Deadline = 5 * time.Minute

// DB is a database of one test with a session in it. Its methods end the test on an error.
type DB struct {
	testing.TB
	Ctx  context.Context // ends after a few deadlines, or with the test
	URL  string
	Conn *pgx.Conn // of the database's owner, for looking and for business
}

// New is a migrated database.
func New(tb testing.TB) *DB {
	tb.Helper()
	return On(tb, Database(tb))
}

// On is the database at the URL, as it is.
func On(tb testing.TB, url string) *DB {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*Deadline)
	tb.Cleanup(cancel)
	db := &DB{TB: tb, Ctx: ctx, URL: url}
	db.Conn = db.Connect()
	return db
}

// Connect opens another session.
func (db *DB) Connect() *pgx.Conn {
	db.Helper()
	conn, err := pgx.Connect(db.Ctx, db.URL)
	db.Must(err)
	db.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (db *DB) Must(err error) {
	db.Helper()
	if err != nil {
		db.Fatal(err)
	}
}

func (db *DB) Exec(sql string, args ...any) {
	db.Helper()
	if _, err := db.Conn.Exec(db.Ctx, sql, args...); err != nil {
		db.Fatalf("%s: %v", sql, err)
	}
}

// Number is the result of a query of one number.
func (db *DB) Number(sql string, args ...any) (n int64) {
	db.Helper()
	if err := db.Conn.QueryRow(db.Ctx, sql, args...).Scan(&n); err != nil {
		db.Fatalf("%s: %v", sql, err)
	}
	return n
}

// Eventually waits until ok.
func (db *DB) Eventually(what string, ok func() bool) {
	db.Helper()
	for end := time.Now().Add(Deadline); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			db.Fatalf("it never came to be that %s", what)
		}
	}
}
