package sqlite

import (
	"context"
	"database/sql/driver"

	sqlite "modernc.org/sqlite"
)

// mostPrepared is how many statements a connection keeps. A file with more queues and outboxes than that begins anew now and then.
const mostPrepared = 256

// connector opens connections that parse each statement once. The driver parses anew for each call, which takes as long as most statements run.
type connector struct{ dsn string }

// Connect implements driver.Connector.
func (c connector) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.Driver().Open(c.dsn)
	if err != nil {
		return nil, err
	}
	return &preparedConn{conn.(driverConn), map[string]driver.Stmt{}}, nil
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
