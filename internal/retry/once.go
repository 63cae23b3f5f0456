package retry

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
)

// patience is how long Once tries to find out the result of a transaction: as long as a server takes to restart.
const patience = 15 * time.Second

// Lost is an error after which the result of a request is unknown: the connection was lost, or the server says that it does not know. If
// there was no connection, because no server could be reached, nothing has happened.
func Lost(err error) bool {
	if err == nil || unreachable(err) {
		return false
	}
	var op *net.OpError
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code == "40003" || strings.HasPrefix(e.Code, "08") || strings.HasPrefix(e.Code, "57P0") // ends of the server, or of the session
	}
	var m *mysql.MySQLError
	if errors.As(err, &m) {
		return m.Number == 1053 || m.Number == 1927 // the same in MySQL and MariaDB
	}
	return errors.As(err, &op) || pgconn.SafeToRetry(err) || slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, mysql.ErrInvalidConn, driver.ErrBadConn}, func(is error) bool { return errors.Is(err, is) })
}

// unreachable is an error of connecting to the server.
func unreachable(err error) bool {
	var none *pgconn.ConnectError
	var op *net.OpError
	return errors.As(err, &none) || errors.As(err, &op) && op.Op == "dial"
}

// Once runs fn, a transaction that leaves its number in the database, as Do does. If the connection is lost meanwhile, happened finds out whether the attempt
// with that number has happened, and keeps it from happening later. If it has not, the next attempt follows, also while no server can be reached.
func (c *Counter) Once(ctx context.Context, fn func(number int64) error, happened func(ctx context.Context, number int64) (bool, error)) error {
	until, lost := time.Now().Add(patience), false
	for wait := 2 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		number := rand.Int64N(1<<53-1) + 1
		err := c.Do(ctx, func() error { return fn(number) })
		lost = lost || Lost(err)
		if !Lost(err) && !(lost && unreachable(err)) || ctx.Err() != nil || time.Now().After(until) {
			return err
		}
		done, unknown := c.look(ctx, until, number, happened)
		if unknown != nil {
			return fmt.Errorf("%w; it is unknown whether it was committed, because looking that up failed: %w", err, unknown)
		}
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}

// look asks for the result of a transaction, and again until the database answers.
func (c *Counter) look(ctx context.Context, until time.Time, number int64, happened func(ctx context.Context, number int64) (bool, error)) (done bool, err error) {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	for wait := 2 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		c.Looked()
		if done, err = happened(ctx, number); err == nil {
			return done, nil
		}
		select {
		case <-ctx.Done():
			return false, err
		case <-time.After(wait):
		}
	}
}
