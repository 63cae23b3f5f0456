package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
)

// backend is the server process that a connection leads to. Behind a pooler in transaction mode it
// is another one for every transaction, and only its name survives a crash of the server. A
// snapshot that was taken on the one before says nothing there.
type backend struct {
	pid    int64
	direct bool // no pooler between: the server sent its number at the start
}

// backendOf asks which it is now. It sets nothing and prepares nothing.
func backendOf(ctx context.Context, conn *pgx.Conn) (b backend, err error) {
	err = conn.QueryRow(ctx, "select pg_backend_pid()", pgx.QueryExecModeExec).Scan(&b.pid)
	b.direct = b.pid == int64(conn.PgConn().PID())
	return b, err
}

// probePatience is how long a pooler may take to find a server for a second connection.
const probePatience = 10 * time.Second

// ownBackends makes sure that two connections have a server process each, which stays with them. A
// transaction on one keeps its process from the other meanwhile. So a pooler that hands them out by
// transaction shows itself, also if it has no other client.
func ownBackends(ctx context.Context, one, two *pgx.Conn) (first, second backend, err error) {
	ctx, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	if first, err = backendOf(ctx, one); err == nil {
		second, err = backendOf(ctx, two)
	}
	if err != nil || first.direct && second.direct {
		return first, second, err
	}
	stays := first.pid != second.pid
	look := func(conn *pgx.Conn, want backend) {
		if b, e := backendOf(ctx, conn); e != nil {
			err = errors.Join(err, e)
		} else {
			stays = stays && b.pid == want.pid
		}
	}
	if stays {
		if _, err = one.Exec(ctx, "begin", pgx.QueryExecModeSimpleProtocol); err != nil {
			return first, second, err
		}
		look(one, first)
		look(two, second)
		if _, e := one.Exec(ctx, "commit", pgx.QueryExecModeSimpleProtocol); e != nil {
			return first, second, errors.Join(err, e)
		}
		for range 3 {
			look(two, second)
		}
	}
	if err == nil && !stays {
		err = errPooled
	}
	return first, second, err
}

// errPooled is the error of a relay whose connections do not keep their server processes.
var errPooled = penstock.WithHint(errors.New("the database URL points to a connection pooler in transaction mode, which a relay cannot use"),
	"connect the relay to PostgreSQL directly or to a pool in session mode; producers, workers and other commands may use this pooler")

// stays compares the process that ran a statement with the connection's own.
func (b backend) stays(pid int64) error {
	if pid != b.pid {
		return errPooled
	}
	return nil
}

func (b backend) param() []byte { return strconv.AppendInt(nil, b.pid, 10) }

// setDefaults makes read committed a new connection's default, whatever the database's: some functions look
// again after they have waited. And the server must not end it for being idle: the next caller that takes it
// from the pool would get that as an error. Behind a pooler nothing is set that others would find there.
func setDefaults(ctx context.Context, conn *pgx.Conn) error {
	var pid int64
	var isolation, idle, role string
	if err := conn.QueryRow(ctx, "select pg_backend_pid(), current_setting('default_transaction_isolation'), current_setting('idle_session_timeout'), session_user", pgx.QueryExecModeExec).
		Scan(&pid, &isolation, &idle, &role); err != nil {
		return err
	}
	pooled := pid != int64(conn.PgConn().PID())
	if isolation == "read committed" && (idle == "0" || pooled) {
		return nil
	}
	if pooled {
		return penstock.WithHint(fmt.Errorf("the default isolation level is %s, and the URL points to a pooler, where Penstock does not change it", isolation),
			"give Penstock a separate role: alter role %s set default_transaction_isolation = 'read committed', and let the pooler connect anew; or connect to PostgreSQL itself", pgx.Identifier{role}.Sanitize())
	}
	_, err := conn.Exec(ctx, "set default_transaction_isolation = 'read committed'; set idle_session_timeout = 0", pgx.QueryExecModeSimpleProtocol)
	return err
}
