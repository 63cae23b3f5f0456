// Package retry knows which database errors mean that the transaction should run again.
package retry

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
)

// Reason is why a transaction must run again.
type Reason int

// The reasons. Nothing was changed after any of them except Unknown.
const (
	None          Reason = iota
	Serialization        // 40001, with any text: "could not serialize access", "Restart read required"
	Deadlock             // 40P01
	Expired              // the server has ended the transaction, with any code
	Unknown              // not a reason to run it again: its result is unknown, and is looked up first
	reasons
)

// String is the label of the metric.
func (r Reason) String() string {
	return [reasons]string{"none", "serialization", "deadlock", "expired", "unknown"}[r]
}

// Of returns the reason of an error. It returns None if another try would not help, or if the result is unknown. The latter
// is so if the connection was lost, the context has ended, or the server itself does not know (CockroachDB's 40003).
func Of(err error) Reason {
	var m *mysql.MySQLError
	if errors.As(err, &m) {
		return ofMySQL[m.Number]
	}
	var e *pgconn.PgError
	switch {
	case !errors.As(err, &e):
		return None
	case e.Code == "40001":
		return Serialization
	case e.Code == "40P01":
		return Deadlock
	case e.Code == "25P03" || e.Code == "YB001" || strings.Contains(strings.ToLower(e.Message), "current transaction is expired or aborted"):
		return Expired // it was left idle; YugabyteDB: XX000 in older releases, YB001 in later ones
	}
	return None
}

// collided are errors of statements that define the same thing at the same time: another has written a row of the catalogue, or is
// writing it. XX000 is YugabyteDB's "Catalog Version Mismatch". The numbers of MySQL mean a table, a key and a row that are there.
var (
	collided      = []string{"23505", "42P07", "42P06", "42710", "XX000"}
	collidedMySQL = []uint16{1050, 1061, 1062}
)

// Collided reports an error of a statement that defines something while another defines the same, or after it. The statement must run
// again if it may.
func Collided(err error) bool {
	var m *mysql.MySQLError
	var e *pgconn.PgError
	return Of(err) != None || errors.As(err, &m) && slices.Contains(collidedMySQL, m.Number) || errors.As(err, &e) && slices.Contains(collided, e.Code)
}

// ofMySQL maps the error numbers of MySQL and MariaDB. They mean a record that has changed since the
// snapshot (1020), and a lock that was not granted in time (1205). Number 1213 is a deadlock or, on
// Galera, a refused certification.
var ofMySQL = map[uint16]Reason{1020: Serialization, 1205: Deadlock, 1213: Deadlock}

// Counter counts how often transactions ran again, and how often the result of one was looked up.
type Counter [reasons]atomic.Int64

// Looked counts one lookup.
func (c *Counter) Looked() { c[Unknown].Add(1) }

// Counts are those of each reason, by its label.
func (c *Counter) Counts() map[string]int64 {
	all := map[string]int64{}
	for r := None + 1; r < reasons; r++ {
		all[r.String()] = c[r].Load()
	}
	return all
}

// tries are those of Few, which wait for a fifth of a second in all.
const tries = 7

// Few runs fn as Do does, but gives up after some tries, because others wait for it and the failure may come from its
// writes.
func Few(ctx context.Context, fn func() error) error {
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	n := 0
	return new(Counter).Do(ctx, func() error {
		if n++; n == tries {
			enough()
		}
		return fn()
	})
}

// Do runs fn, a transaction, until it succeeds, fails permanently, or ctx ends.
func (c *Counter) Do(ctx context.Context, fn func() error) error {
	for wait := 2 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		err := fn()
		reason := Of(err)
		if reason == None {
			return err
		}
		c[reason].Add(1)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}
