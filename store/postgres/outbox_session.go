package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/pg"
	"github.com/penstock/penstock/internal/seqset"
)

// session is a pair of connections: one reads, one writes the cursor, so that neither waits for the
// other. They live and die together, which makes a snapshot in memory safe to store. A server that
// crashes hands out again the xids that it had not yet written to the log. So a snapshot taken
// before a crash says nothing about transactions after it. A crash ends both connections; the
// writer, opened before the snapshot was taken, cannot have outlived it.
type session struct {
	read, write *pgx.Conn
	reader      backend
	writer      backend
	outbox      string
	seq         string // the outbox's sequence, quoted, as a literal
	system      int64  // the cluster's identifier
	timeline    int64  // of its log, 0: not known
	oid         string // the outbox's
	dead        atomic.Bool
	n           int64 // of the cursor log's row that this session wrote last, 0: none. Used with Source.writing

	// The reader's side of the session, used by Fetch only.
	at        position
	settled   seqset.Set // not to be returned again
	found     int64      // messages of that that were read
	idle      bool       // the last poll found nothing
	decoder   decoder
	outOfBand outOfBand
}

// settings of the reading and the writing connection. Plans must not depend on statistics, which
// TRUNCATE resets. A cursor must be on disk when it is written, because its flush keeps xids from
// coming again.
const settings = `
	set enable_seqscan = off; set enable_bitmapscan = off; set enable_sort = off;
	set max_parallel_workers_per_gather = 0; set jit = off;
	set plan_cache_mode = force_generic_plan;
	set synchronous_commit = on; set default_transaction_isolation = 'read committed';
	set statement_timeout = 0; set lock_timeout = 0; set idle_session_timeout = 0; set idle_in_transaction_session_timeout = 0`

// statements that a session prepares, by name.
const (
	stmtPeek        = "penstock_peek"
	stmtPoll        = "penstock_poll"
	stmtPage        = "penstock_page"
	stmtRebase      = "penstock_rebase"
	stmtDue         = "penstock_due"
	stmtReplay      = "penstock_replay"
	stmtWriteCursor = "penstock_write_cursor"
)

func (s *Store) newSession(ctx context.Context, outbox string) (*session, error) {
	read, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	write, err := s.connect(ctx)
	if err != nil {
		closeConn(read)
		return nil, err
	}
	sess := &session{read: read, write: write, outbox: outbox,
		seq: pg.Literal(pgx.Identifier{s.schema, "_" + outbox + ".seq"}.Sanitize())}
	if err := sess.takeOver(ctx); err != nil {
		sess.close()
		return nil, explain(err)
	}
	if err := sess.prepare(ctx, s.schema, outbox); err != nil {
		sess.close()
		return nil, err
	}
	return sess, nil
}

func (s *Store) connect(ctx context.Context) (*pgx.Conn, error) {
	if s.closed.Load() {
		return nil, penstock.ErrClosed
	}
	conn, err := pgx.ConnectConfig(ctx, s.config.ConnConfig.Copy())
	return conn, explain(err)
}

// takeOver makes the connections the session's own. Nothing is set before it is known that no other
// session sees it.
func (sess *session) takeOver(ctx context.Context) (err error) {
	if sess.reader, sess.writer, err = ownBackends(ctx, sess.read, sess.write); err != nil {
		return err
	}
	for _, conn := range []*pgx.Conn{sess.read, sess.write} {
		if _, err := conn.Exec(ctx, settings, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
	}
	return nil
}

func (sess *session) prepare(ctx context.Context, schema, outbox string) error {
	if err := sess.write.QueryRow(ctx, "select system_identifier, coalesce(to_regclass($1)::oid::text, '') from pg_control_system()",
		pgx.Identifier{schema, outbox}.Sanitize()).Scan(&sess.system, &sess.oid); err != nil {
		if sqlState(err) == "42501" && strings.Contains(err.Error(), "pg_control_system") {
			return penstock.WithHint(err, "grant execute on function pg_control_system() to the relay's role; by it the relay detects that a database was restored into another cluster")
		}
		return explain(err)
	}
	if sess.oid == "" {
		return noOutbox(outbox)
	}
	if err := sess.checkServers(ctx); err != nil {
		return err
	}
	// Not the one in pg_control_checkpoint(), which follows a failover with the next checkpoint.
	err := sess.write.QueryRow(ctx, "select ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint").Scan(&sess.timeline)
	if err != nil && sqlState(err) == "" { // who hides its log has no timeline
		return explain(err)
	}
	for _, p := range []struct {
		conn *pgx.Conn
		name string
		sql  string
	}{
		{sess.read, stmtPeek, statement("peek", schema, outbox)},
		{sess.read, stmtPoll, statement("poll", schema, outbox)},
		{sess.read, stmtPage, statement("page", schema, outbox)},
		{sess.read, stmtRebase, statement("rebase", schema, outbox)},
		{sess.read, stmtDue, statement("due", schema, outbox)},
		{sess.read, stmtReplay, statement("replay", schema, outbox)},
		{sess.write, stmtWriteCursor, statement("write_cursor", schema, outbox)},
	} {
		if _, err := p.conn.PgConn().Prepare(ctx, p.name, p.sql, nil); err != nil {
			if state := sqlState(err); state == "42P01" || state == "42703" { // a queue has other columns
				return noOutbox(outbox)
			}
			return fmt.Errorf("prepare %s: %w", p.name, explain(err))
		}
	}
	return nil
}

// checkServers makes sure that both connections lead to the same running primary: a
// standby's snapshots do not list the transactions in flight.
func (sess *session) checkServers(ctx context.Context) error {
	var started [2]time.Time
	for i, conn := range []*pgx.Conn{sess.read, sess.write} {
		var standby, may bool
		err := conn.QueryRow(ctx, "select pg_is_in_recovery(), pg_postmaster_start_time(), has_sequence_privilege("+sess.seq+", 'select')").Scan(&standby, &started[i], &may)
		switch {
		case err != nil:
			return explain(err)
		case standby:
			return penstock.Unavailable(penstock.WithHint(errors.New("the server is a standby"), "connect to the primary: with several hosts in the URL, or target_session_attrs=read-write, it is picked"))
		case !may: // newer servers would say 0 instead of an error
			return penstock.WithHint(&pgconn.PgError{Severity: "ERROR", Code: "42501", Message: "permission denied for the sequence of outbox " + sess.outbox}, "%s", granted("penstock outbox grant ROLE --relay"))
		}
	}
	if !started[0].Equal(started[1]) {
		return penstock.Unavailable(penstock.WithHint(errors.New("two connections with the same URL reached two servers"), "the URL must lead to one primary"))
	}
	return nil
}

// failed looks at an error of one of the connections. Whatever is not the
// server's word on the statement leaves the connection in doubt, and the pair
// with it.
func (sess *session) failed(err error) error {
	if err == nil {
		return nil
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Severity != "ERROR" {
		sess.kill()
	}
	if sqlState(err) == "42P01" {
		return noOutbox(sess.outbox)
	}
	return explain(err)
}

// kill ends both connections, also while another goroutine uses one: that one
// gets an error.
func (sess *session) kill() {
	if sess.dead.CompareAndSwap(false, true) {
		_ = sess.read.PgConn().Conn().Close()
		_ = sess.write.PgConn().Conn().Close()
	}
}

// close ends the session when no call uses it.
func (sess *session) close() {
	sess.dead.Store(true)
	closeConn(sess.read)
	closeConn(sess.write)
}

func closeConn(c *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.Close(ctx)
}

// freshBound takes a snapshot with a bound that is true of it: read the sequence,
// use up an xid, and only then take the snapshot (see snapshotBound).
func (sess *session) freshBound(ctx context.Context) (m snapshotBound, high int64, err error) {
	if err := sess.write.QueryRow(ctx, "select coalesce(pg_sequence_last_value("+sess.seq+"), 0)").Scan(&m.low); err != nil {
		return m, 0, err
	}
	if _, err := sess.write.Exec(ctx, "select pg_current_xact_id()"); err != nil {
		return m, 0, err
	}
	err = sess.write.QueryRow(ctx, "select pg_current_snapshot()::text, coalesce(pg_sequence_last_value("+sess.seq+"), 0)").Scan(&m.snap, &high)
	return m, high, err
}
