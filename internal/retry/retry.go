// Package retry knows which errors of a database mean: run the transaction again.
package retry

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
)

// Reason is why a transaction is to be run again.
type Reason int

// The reasons there are. After each of them nothing was changed.
const (
	None          Reason = iota
	Serialization        // 40001, with any text: "could not serialize access", "Restart read required"
	Deadlock             // 40P01
	Expired              // the server has ended the transaction, whatever code it gives that
	reasons
)

// Of an error; None: another try would not help, or it is not known what has happened.
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
	case strings.Contains(strings.ToLower(e.Message), "current transaction is expired or aborted"):
		return Expired
	}
	return None
}

// ofMySQL is what the numbers of MySQL's and MariaDB's errors mean: the record has changed since the snapshot (1020), a lock that
// was not given in time (1205), a deadlock, which is also a refused certification on Galera (1213).
var ofMySQL = map[uint16]Reason{1020: Serialization, 1205: Deadlock, 1213: Deadlock}

// Counter says how often transactions were run again.
type Counter [reasons]atomic.Int64

// tries are those of Few, which wait for a fifth of a second in all.
const tries = 7

// Few runs fn as Do does, but gives up after some tries: where others wait for it, and it may be what fn writes that fails.
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

// Do runs fn, a transaction, until it succeeds, fails for good, or ctx ends.
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
