package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/tables"
)

// batch is statements that go to the server in one round trip.
type batch struct {
	text  strings.Builder
	args  []any
	size  int                     // of the text and the arguments, about
	reads []func(*sql.Rows) error // one for each statement that returns rows
}

// add has a statement executed that returns no rows.
func (b *batch) add(statement string, args ...any) {
	if b.text.Len() > 0 {
		b.text.WriteString(";\n")
	}
	b.text.WriteString(statement)
	b.args = append(b.args, args...)
	b.size += len(statement)
	for _, a := range args {
		if bytes, is := a.([]byte); is {
			b.size += len(bytes)
		}
	}
}

// read has a statement executed that returns rows; each is called for each of them.
func (b *batch) read(each func(rows *sql.Rows) error, statement string, args ...any) {
	b.add(statement, args...)
	b.reads = append(b.reads, func(rows *sql.Rows) error {
		for rows.Next() {
			if err := each(rows); err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *batch) run(ctx context.Context, conn *sql.Conn) error {
	rows, err := conn.QueryContext(ctx, b.text.String(), b.args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for i, read := range b.reads {
		if i > 0 && !rows.NextResultSet() {
			break // after an error
		}
		if err := read(rows); err != nil {
			return err
		}
		if err := rows.Err(); err != nil {
			return err
		}
	}
	for rows.NextResultSet() { // and what follows the last that returns rows
	}
	return rows.Err()
}

// send runs a batch as one transaction, in one round trip.
func (s *Store) send(ctx context.Context, all *tables.Batch) error {
	b := &batch{}
	b.add("begin")
	for _, st := range *all {
		b.put(s, st)
	}
	b.add("commit")
	return s.on(ctx, func(conn *sql.Conn) error { return b.run(ctx, conn) })
}

// ask runs a batch that reads, each statement with its own snapshot.
func (s *Store) ask(ctx context.Context, all *tables.Batch) error {
	return s.on(ctx, func(conn *sql.Conn) error {
		b := &batch{}
		for i, st := range *all {
			if b.put(s, st); b.size < packet && i < len(*all)-1 {
				continue
			}
			if err := b.run(ctx, conn); err != nil {
				return err
			}
			b = &batch{}
		}
		return nil
	})
}

// on lends a connection. After an error nothing stays open in it, and one that does not answer is closed.
func (s *Store) on(ctx context.Context, fn func(conn *sql.Conn) error) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err = fn(conn); err == nil {
		return nil
	}
	short, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if _, undone := conn.ExecContext(short, "rollback"); undone != nil {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	return err
}

// tx is a transaction of several round trips.
type tx struct {
	*sql.Conn
	store   *Store
	began   bool
	patient bool // the session waits for one that is paused in it, for as long as there is such a session
}

// run sends a batch; the transaction begins with the first.
func (t *tx) run(ctx context.Context, b *batch) error {
	if t.began {
		return b.run(ctx, t.Conn)
	}
	t.began = true
	all := batch{reads: b.reads}
	all.add("begin")
	all.add(b.text.String(), b.args...)
	return all.run(ctx, t.Conn)
}

// packet is how many bytes a round trip carries before another one begins. Written as text it may be twice as many,
// and max_allowed_packet is usually 1 MiB at least.
const packet = 1 << 18

// empty sends a batch that has become large, and has the next begin.
func (t *tx) empty(ctx context.Context, b *batch) error {
	if b.size < packet {
		return nil
	}
	err := t.run(ctx, b)
	*b = batch{}
	return err
}

// finish sends the last batch with the commit.
func (t *tx) finish(ctx context.Context, b *batch) error {
	b.add("commit")
	err := t.run(ctx, b)
	if err == nil {
		t.began = false
	}
	return err
}

// tx runs fn in a transaction, again where the database asks for that.
func (s *Store) tx(ctx context.Context, fn func(t *tx) error) error {
	if err := s.guard.Ready(ctx); err != nil {
		return err
	}
	return s.explain(s.guard.Newer(ctx, s.retries.Do(ctx, func() error { return s.once(ctx, fn) })))
}

func (s *Store) once(ctx context.Context, fn func(t *tx) error) error {
	return s.on(ctx, func(conn *sql.Conn) error {
		t := &tx{Conn: conn, store: s}
		err := fn(t)
		if err == nil && t.began {
			_, err = conn.ExecContext(ctx, "commit")
		}
		if t.patient { // others get a session that is not
			_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		}
		return err
	})
}

// number is the server's of an error, 0 if it is not the server's.
func number(err error) uint16 {
	var refused *mysql.MySQLError
	if errors.As(err, &refused) {
		return refused.Number
	}
	return 0
}

// The errors that mean something here.
const (
	noSuchTable    = 1146
	noSuchDatabase = 1049
	noSuchColumn   = 1054
	duplicate      = 1062
	tooLarge       = 1153
	changed        = 1020 // since the transaction's snapshot
)

const grantMore = "grant the user the rights that penstock needs: create, alter, drop, index, select, insert, update and delete on the database penstock; on an adopted table select, and update or delete"

// hints by number, for errors that mean the same to every caller.
var hints = map[uint16]string{
	changed:        "run the transaction again, and begin it with READ COMMITTED",
	1040:           "raise max_connections or close other connections",
	1044:           "grant the user the rights that penstock needs: create, alter, drop, index, select, insert, update and delete on the database penstock",
	1045:           "check user and password",
	noSuchDatabase: "run: penstock migrate, or in Go call Migrate, or correct the URL",
	1142:           grantMore,
	1143:           grantMore, // on a column
	1114:           "the server's disk is full: free space and it continues; nothing is lost",
	tooLarge:       "raise max_allowed_packet on the server, or publish smaller messages",
	1286:           "the server has no such storage engine: name another, or install its plugin",
	1047:           "this node of the cluster does not take part in it now: connect to another, or wait until it does",
	1290:           "the server is read-only: connect to the primary",
	1665:           "set binlog_format to ROW or MIXED on the server",
	1836:           "the server is read-only: connect to the primary",
}

// explain adds the operator's next step to the message of the server or the network.
func (s *Store) explain(err error) error {
	var hinted *penstock.HintError
	if err == nil || errors.As(err, &hinted) || errors.Is(err, context.Canceled) {
		return err
	}
	if s.guard.Closed.Load() {
		return penstock.ErrClosed
	}
	n := number(err)
	if errors.Is(err, mysql.ErrPktTooLarge) || n == 1105 && strings.Contains(err.Error(), "max_allowed_packet") {
		n = tooLarge
	}
	if refused, ok := errors.AsType[*mysql.MySQLError](err); ok && n == 1142 && strings.HasPrefix(refused.Message, "SELECT ") && strings.Contains(refused.Message, quoted(s.opts.Schema)+".") {
		return penstock.WithHint(err, "an administrator can grant it: grant select on %s.* to the user, or on that table only", quoted(s.opts.Schema))
	}
	if hint := hints[n]; hint != "" {
		return penstock.WithHint(err, "%s", hint)
	}
	if isDial(err) {
		return penstock.WithHint(err, "is the database running there and reachable?")
	}
	return err
}
