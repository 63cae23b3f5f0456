// Package postgres keeps outboxes, queues and inboxes in PostgreSQL 14 to 18.
// DESIGN.md explains the rings, the snapshot cursor and the cursor log, and why a
// queue does not read rows of jobs that were taken from it.
package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/messageid"
	"github.com/penstock/penstock/internal/pg"
	"github.com/penstock/penstock/internal/quietconn"
	"github.com/penstock/penstock/internal/shell"
)

// DefaultSchema holds Penstock's tables unless Options names another.
const DefaultSchema = "penstock"

const oldestServer = 140000 // server_version_num

// Options of a Store. The zero value is usable.
type Options struct {
	// Schema of Penstock's tables. Default "penstock".
	Schema string
	// Segments in the ring of a new outbox or queue, 2 to 1000. Default 8 for an
	// outbox, 3 for a queue.
	Segments int
	// SegmentBytes is after how many bytes of heap an outbox's segment is sealed.
	// A queue's is sealed at half of that. Default 128 MiB.
	SegmentBytes int64
	// Log gets warnings. Default slog.Default().
	Log *slog.Logger
}

// Store is a driver.Store and a driver.QueueStore on PostgreSQL. Safe for concurrent use.
type Store struct {
	config *pgxpool.Config
	pool   *pgxpool.Pool
	close  func()
	schema string
	opts   Options
	log    *slog.Logger

	checked atomic.Bool // the schema is of this version
	closed  atomic.Bool

	mu     sync.Mutex
	care   map[string]*caretaker // by outbox
	parked parkedCare

	samplesAfter time.Time
}

var _ driver.Store = (*Store)(nil)

// Open prepares a store with its own pool. It does not connect. If the database is down, the first call
// returns an error, and later calls work once it is up.
func Open(ctx context.Context, url string, opts Options) (*Store, error) {
	config, err := pg.PoolConfig(url)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.DialFunc = quietconn.Wrap(config.ConnConfig.DialFunc)
	config.AfterConnect = setDefaults
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, explain(err)
	}
	s := New(pool, opts)
	s.close = pool.Close
	return s, nil
}

// New returns a store on the caller's pool, which Close leaves open. The default isolation level of its connections
// must be READ COMMITTED, as it is in PostgreSQL. Relays and WorkTx open more connections with the same configuration.
func New(pool *pgxpool.Pool, opts Options) *Store {
	opts.Schema = cmp.Or(opts.Schema, DefaultSchema)
	opts.SegmentBytes = cmp.Or(opts.SegmentBytes, 128<<20)
	opts.Log = cmp.Or(opts.Log, slog.Default())
	return &Store{config: pool.Config(), pool: pool, close: func() {}, schema: opts.Schema, opts: opts, log: opts.Log, care: map[string]*caretaker{}}
}

// Close closes the connections of Open. Close each Source before it.
func (s *Store) Close() error {
	s.closed.Store(true)
	s.close()
	return nil
}

// Schema returns the name of the schema with Penstock's tables.
func (s *Store) Schema() string { return s.schema }

// table quotes the name of one of Penstock's own tables or functions.
func (s *Store) table(name string) string { return pgx.Identifier{s.schema, name}.Sanitize() }

// CreateOutbox implements driver.Store. The outbox has Options.Segments segments.
func (s *Store) CreateOutbox(ctx context.Context, name string) error {
	if err := penstock.ValidateOutboxName(name); err != nil {
		return err
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	_, err := s.pool.Exec(ctx, "select "+s.table("create_outbox")+"($1, $2, $3)", name, cmp.Or(s.opts.Segments, 8), s.opts.SegmentBytes)
	if sqlState(err) == "42P07" || sqlState(err) == "23505" {
		if _, missing := s.outboxIDs(ctx, s.pool, name); missing != nil {
			if s.hasQueue(ctx, name) == nil {
				return penstock.WithHint(fmt.Errorf("outbox %q: a queue has this name: %w", name, penstock.ErrQueueExists), "outboxes and queues share their names: choose another")
			}
			return penstock.WithHint(err, "another table or index of schema %s has that name: choose another", s.schema)
		}
		return fmt.Errorf("%w: %q", penstock.ErrOutboxExists, name)
	}
	return s.explain(err)
}

// DropOutbox implements driver.Store.
func (s *Store) DropOutbox(ctx context.Context, name string) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	err := s.drop(ctx, "drop_outbox", name)
	if sqlState(err) == "42P01" {
		return noOutbox(name)
	}
	return s.explain(err)
}

// DropSchema removes the schema with all that is in it, also tables that are not Penstock's. It is for schemas of a
// test, a demo or a benchmark.
func (s *Store) DropSchema(ctx context.Context) error {
	err := pg.DropSchema(ctx, s.pool, pgx.Identifier{s.schema}.Sanitize())
	s.checked.Store(false)
	return s.explain(err)
}

// ready checks once that the server and the schema can be used.
func (s *Store) ready(ctx context.Context) error {
	if s.checked.Load() {
		return nil
	}
	if err := checkServer(ctx, s.pool); err != nil {
		return s.explain(err)
	}
	err := s.checkVersion(ctx)
	if sqlState(err) == "42501" {
		return nil // the request fails, unless the role may do it: that shows which right is missing
	}
	if err != nil {
		return err
	}
	s.checked.Store(true)
	return nil
}

// checkServer looks whether the server is one that this store can use: others speak its protocol, and have no transaction ids that would do.
func checkServer(ctx context.Context, q querier) error {
	var number, version string
	if err := q.QueryRow(ctx, "select current_setting('server_version_num'), version()").Scan(&number, &version); err != nil {
		return err
	}
	if engine := pg.EngineOf(version); engine != pg.PostgreSQL {
		return penstock.WithHint(fmt.Errorf("the server is %s, which the profile postgres cannot use", engine), "use the portable profile: --profile portable, or profile: portable in the file; auto asks the server which one it needs")
	}
	if server, err := strconv.Atoi(number); err != nil || server < oldestServer {
		return penstock.WithHint(fmt.Errorf("the server is PostgreSQL %d", server/10000), "Penstock needs PostgreSQL 14 or newer")
	}
	return nil
}

func noOutbox(name string) error {
	return penstock.WithHint(fmt.Errorf("%w: %q", penstock.ErrNoOutbox, name),
		"create it with CreateOutbox or penstock outbox create %s; if it is a queue, use EnqueueTx; in a new database begin with Migrate or penstock migrate", shell.Word(name))
}

// outboxIDs reads the parts of which the derived message ids of an outbox are made.
func (s *Store) outboxIDs(ctx context.Context, q querier, name string) (ids messageid.Outbox, err error) {
	err = q.QueryRow(ctx, "select uid from "+s.table("_outbox")+" where name = $1", name).Scan(&ids.UID)
	if errors.Is(err, pgx.ErrNoRows) {
		return ids, noOutbox(name)
	}
	return ids, s.explain(err)
}
