package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"io/fs"
	"os"
	"sync/atomic"
	"time"

	sqlite "modernc.org/sqlite"
)

// mostPrepared is how many statements a connection keeps. A file with more queues and outboxes than that begins anew now and then.
const mostPrepared = 256

// connector opens connections that parse each statement once. The driver parses anew for each call, which takes as long as most statements run.
type connector struct {
	path, dsn string
	replaced  *atomic.Int64 // when a connection last found that the file is another one, in nanoseconds
}

// Connect implements driver.Connector.
func (c connector) Connect(context.Context) (driver.Conn, error) {
	file, _ := os.Stat(c.path) // before it is opened: one that comes in between is taken for a replaced one, and opened again
	conn, err := c.Driver().Open(c.dsn)
	if err != nil {
		return nil, err
	}
	return &preparedConn{conn.(driverConn), map[string]driver.Stmt{}, c, file, time.Now()}, nil
}

// Driver implements driver.Connector.
func (c connector) Driver() driver.Driver { return &sqlite.Driver{} }

// driverConn has the methods that database/sql calls of the driver's connection.
type driverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// preparedConn keeps parsed statements, by text; those in use are not there.
type preparedConn struct {
	driverConn
	prepared map[string]driver.Stmt

	of     connector
	file   fs.FileInfo // as it was opened
	looked time.Time
}

// lookEvery is how often a connection looks whether its file is still the one of that name.
const lookEvery = 100 * time.Millisecond

// ResetSession implements driver.SessionResetter. A connection to a file that was replaced or deleted is not used again. It would read and
// write a file that has no name any more, without an error. Once one connection has found that, each other one looks too.
func (c *preparedConn) ResetSession(ctx context.Context) error {
	if now := time.Now(); c.file != nil && (now.Sub(c.looked) > lookEvery || c.looked.UnixNano() <= c.of.replaced.Load()) {
		c.looked = now
		is, err := os.Stat(c.of.path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(is, c.file) {
			c.of.replaced.Store(now.UnixNano())
			return driver.ErrBadConn
		}
	}
	return c.driverConn.ResetSession(ctx)
}

func (c *preparedConn) take(ctx context.Context, text string) (driver.Stmt, error) {
	if s, ok := c.prepared[text]; ok {
		delete(c.prepared, text)
		return s, nil
	}
	return c.PrepareContext(ctx, text)
}

func (c *preparedConn) keep(text string, s driver.Stmt) {
	if len(c.prepared) >= mostPrepared {
		c.forget()
	}
	if before, ok := c.prepared[text]; ok { // both were in use at the same time
		_ = before.Close()
	}
	c.prepared[text] = s
}

func (c *preparedConn) forget() {
	for _, s := range c.prepared {
		_ = s.Close()
	}
	clear(c.prepared)
}

// ExecContext implements driver.ExecerContext.
func (c *preparedConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	s, err := c.take(ctx, text)
	if err != nil {
		return nil, err
	}
	done, err := s.(driver.StmtExecContext).ExecContext(ctx, args)
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	c.keep(text, s)
	return done, nil
}

// QueryContext implements driver.QueryerContext.
func (c *preparedConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	s, err := c.take(ctx, text)
	if err != nil {
		return nil, err
	}
	rows, err := s.(driver.StmtQueryContext).QueryContext(ctx, args)
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	return &preparedRows{rows, func() { c.keep(text, s) }}, nil
}

// Close implements driver.Conn.
func (c *preparedConn) Close() error {
	c.forget()
	return c.driverConn.Close()
}

// preparedRows gives its statement back.
type preparedRows struct {
	driver.Rows
	back func()
}

// Close implements driver.Rows.
func (r *preparedRows) Close() error {
	err := r.Rows.Close()
	if r.back != nil {
		r.back()
	}
	r.back = nil
	return err
}
