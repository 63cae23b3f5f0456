// Package portable keeps outboxes, queues and inboxes on plain tables, in databases that speak
// PostgreSQL's protocol. It does not need PostgreSQL's transaction ids, snapshots, advisory locks
// and LISTEN. It also works in PostgreSQL itself. DESIGN.md describes how, and the guarantees that it does not
// guarantee.
package portable

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/pg"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/quietconn"
	"github.com/penstock/penstock/internal/retry"
	"github.com/penstock/penstock/internal/schema"
	"github.com/penstock/penstock/internal/tables"
)

// DefaultSchema holds the tables unless Options names another. store/postgres has a different one, so
// a database may have both.
const DefaultSchema = "penstock_portable"

// Options of a Store. The zero value is usable.
type Options struct {
	// Schema of the tables. Default "penstock_portable".
	Schema string
	// Buckets of a new outbox, 1 to 1000. Messages of one key are in one bucket. Default 16.
	Buckets int
	// Margin is how long a transaction that publishes may stay open, with the skew of clocks. Messages of a
	// longer one are found by a sweep: late, and perhaps after later messages of their keys. Default 10 s.
	Margin time.Duration
	// Sweep is how often a reader looks for messages that committed later than the margin. Default 15 s.
	Sweep time.Duration
	// LookAgain is how soon a claim finds a job that committed late, behind jobs that were claimed. Each such
	// look reads rows that were deleted within the margin. Default 250 ms. A queue that finds no jobs looks ten
	// times as often.
	LookAgain time.Duration
}

// Store is a driver.Store. Safe for concurrent use.
type Store struct {
	pool   *pgxpool.Pool
	close  func()
	schema string // quoted
	opts   Options
	guard  schema.Guard

	retries  retry.Counter
	attempts tables.Attempts
	speaks   atomic.Pointer[dialect] // the server's kind, as it was found
	repeats  atomic.Bool             // sessions begin with REPEATABLE READ
	direct   atomic.Bool             // there is no pooler between, and the pool prepares nothing itself
	planned  sync.Map                // the texts of statements to prepare
	turn     func() int              // which a claim locks of a queue's
	*outboxes
	*queues
	*inboxes
}

var _ driver.Store = (*Store)(nil)

//go:embed schema.sql
var schemaSQL string

//go:embed sql/*.sql
var files embed.FS

// statements by name, as they are in sql/.
var statements = func() map[string]string {
	all := map[string]string{}
	entries, _ := files.ReadDir("sql")
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), path.Ext(e.Name()))
		all[name] = pg.Statement(files, name)
	}
	return all
}()

// Open prepares a store with its own pool. It does not connect. If the database is down, the first call
// returns an error, and later calls work once it is up.
func Open(ctx context.Context, url string, opts Options) (*Store, error) {
	config, err := pg.PoolConfig(url)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.DialFunc = quietconn.Wrap(config.ConnConfig.DialFunc)
	// No prepared statements: they are the session's, and a pooler gives every transaction another one.
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, pgerror.Explain(err, nil)
	}
	s := New(pool, opts)
	s.close = pool.Close
	return s, nil
}

// New returns a store on the caller's pool, which Close leaves open. Behind a pooler in transaction mode, the pool must not
// prepare statements: use pgx.QueryExecModeCacheDescribe.
func New(pool *pgxpool.Pool, opts Options) *Store {
	opts.Schema = cmp.Or(opts.Schema, DefaultSchema)
	opts.Buckets = cmp.Or(opts.Buckets, 16)
	opts.Margin = cmp.Or(opts.Margin, 10*time.Second)
	opts.Sweep = cmp.Or(opts.Sweep, 15*time.Second)
	opts.LookAgain = cmp.Or(opts.LookAgain, 250*time.Millisecond)
	s := &Store{pool: pool, close: func() {}, schema: pgx.Identifier{opts.Schema}.Sanitize(), opts: opts, turn: func() int { return rand.IntN(turns) }}
	s.guard = schema.Guard{Of: s.of, Version: s.SchemaVersion, Lacks: s.lacks, Unlike: unlike}
	s.outboxes, s.queues, s.inboxes = tables.NewOutboxes(onTables{s}), tables.NewQueues(onTables{s}, &s.retries, &s.attempts), tables.NewInboxes(onTables{s})
	return s
}

// Close closes the connections of Open. Close each Source before it.
func (s *Store) Close() error {
	if !s.guard.Closed.Swap(true) {
		s.close()
	}
	return nil
}

// Schema returns the name of the schema with the tables.
func (s *Store) Schema() string { return s.opts.Schema }

// sql is a statement of sql/, or one that is given, with the names of this schema's tables; of an outbox's if it has {table}.
func (s *Store) sql(statement, outbox string) string {
	statement = s.text(statement)
	return strings.NewReplacer("{schema}", s.schema, "{table}", pgx.Identifier{s.opts.Schema, tableOf(outbox)}.Sanitize(), "{buckets}", fmt.Sprint(s.opts.Buckets), "{ids}", pg.Literal(s.schema+".job_ids")).Replace(statement)
}

// tableOf is the table with an outbox's messages.
func tableOf(outbox string) string { return "outbox_" + outbox }

// tx runs fn in a transaction, again where the database asks for that.
func (s *Store) tx(ctx context.Context, fn func(tx pgx.Tx) error) error {
	if err := s.guard.Ready(ctx); err != nil {
		return err
	}
	return s.explain(s.guard.Newer(ctx, s.retries.Do(ctx, func() error { return s.begin(ctx, fn) })))
}

// begin runs fn in a transaction. Locks of a process that is paused or cut off in the middle of it end before its leases do.
func (s *Store) begin(ctx context.Context, fn func(tx pgx.Tx) error) error {
	begin := "begin; set local idle_in_transaction_session_timeout = '10s'"
	if s.repeats.Load() {
		begin = strings.Replace(begin, "begin", beginCommitted, 1)
	}
	return pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{BeginQuery: begin}, fn)
}

const beginCommitted = "begin isolation level read committed"

// send runs statements as one transaction, in one round trip: a process that is paused keeps nothing locked. A statement that has waited for a lock must
// see the writes of the lock's holder, which it would not under REPEATABLE READ.
func (s *Store) send(ctx context.Context, b *pgx.Batch) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if err := s.prepare(ctx, conn.Conn(), b); err != nil {
		return err
	}
	if s.repeats.Load() {
		all := &pgx.Batch{}
		all.Queue(beginCommitted)
		all.QueuedQueries = append(all.QueuedQueries, b.QueuedQueries...)
		all.Queue("commit") // after an error the pool closes the connection
		b = all
	}
	return conn.SendBatch(ctx, b).Close()
}

// explain adds the operator's next step to the message of the server or the network.
func (s *Store) explain(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	if s.guard.Closed.Load() {
		return penstock.ErrClosed
	}
	if pgerror.State(err) == "" && !errors.Is(err, pgx.ErrNoRows) {
		s.pool.Reset() // its idle connections have probably died with the one that failed
	}
	return pgerror.Explain(err, map[string]string{"42501": "the owner of the tables can grant it: grant usage on schema " + s.opts.Schema + " to ROLE, and grant select on all tables in schema " + s.opts.Schema + " to ROLE"})
}

// Retries returns how often transactions ran again because the database asked for it, by reason. "unknown" counts how often
// the store looked up whether one had committed.
func (s *Store) Retries() map[string]int64 { return s.retries.Counts() }

// bytes is the size of a table with its indexes, 0 where the engine does not report it.
func (s *Store) bytes(ctx context.Context, table string) (n int64, err error) {
	if !s.dialect().unsized {
		err = s.pool.QueryRow(ctx, "select pg_total_relation_size($1::regclass)", table).Scan(&n)
	}
	return n, err
}
