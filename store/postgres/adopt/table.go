package adopt

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/adopted"
	"github.com/penstock/penstock/internal/pg"
	"github.com/penstock/penstock/internal/pgerror"
)

// DefaultSchema holds Penstock's tables unless Options names another.
const DefaultSchema = "penstock"

// Options set where the table is and who reads it.
type Options struct {
	// URL of the database that has the table and Penstock's schema.
	URL string
	// Schema of Penstock's tables. Default "penstock".
	Schema string
	// Subscription is the name under which progress is kept.
	Subscription string
	// Config describes the table. Open sets its defaults.
	Config Config
	// Log gets warnings; default slog.Default().
	Log *slog.Logger
}

// Table is an adopted table and its subscription. Safe for concurrent use.
type Table struct {
	pool   *pgxpool.Pool
	schema string
	name   string
	config Config
	log    *slog.Logger
	claims atomic.Int64 // open ones, of all workers
}

// Open prepares a subscription over a table. It does not connect: the table is looked
// at by Check and by Subscribe, so that a database that is down is an error that
// passes. A config that cannot be used is a *penstock.FieldError.
func Open(ctx context.Context, o Options) (*Table, error) {
	if err := o.Config.Prepare(o.Subscription); err != nil {
		return nil, err
	}
	return connect(ctx, o)
}

// connect opens the pool. The config may be missing.
func connect(ctx context.Context, o Options) (*Table, error) {
	o.Schema = cmp.Or(o.Schema, DefaultSchema)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	config, err := pg.PoolConfig(o.URL)
	if err != nil {
		return nil, err
	}
	// One to read, one to settle, one to look back, one for operators; and a
	// transaction per claim.
	config.MaxConns, config.MinConns = int32(4+2*max(0, o.Config.Workers)), 0
	config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, settings, pgx.QueryExecModeSimpleProtocol)
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, pgerror.Explain(err, hints)
	}
	return &Table{pool: pool, schema: o.Schema, name: o.Subscription, config: o.Config,
		log: o.Log.With("subscription", o.Subscription, "table", o.Config.Table)}, nil
}

// settings of every connection: plans must not depend on statistics, which a queue's
// table never has right, and values must read back as they were written. Disabled
// plans look so expensive that they would be compiled; hence jit.
const settings = `
	set enable_seqscan = off; set enable_bitmapscan = off; set enable_sort = off; set enable_hashjoin = off; set enable_mergejoin = off;
	set max_parallel_workers_per_gather = 0; set jit = off; set plan_cache_mode = force_generic_plan;
	set synchronous_commit = on; set default_transaction_isolation = 'read committed';
	set statement_timeout = 0; set lock_timeout = '10s'; set idle_session_timeout = 0; set idle_in_transaction_session_timeout = 0; set timezone = 'UTC'; set extra_float_digits = 1; set bytea_output = 'hex'`

// Close closes the connections. Close Sources before.
func (t *Table) Close() error {
	t.pool.Close()
	return nil
}

// querier has the methods that a pool, a connection and a transaction share.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// fenced is the SQLSTATE of _adopt_fence.
const fenced = "PS001"

// hints by SQLSTATE, where they are about the adopted table.
var hints = map[string]string{
	"42501": "grant the role the missing rights on the adopted table; on Penstock's own tables its owner can: select penstock.grant_adopt('ROLE')",
	"55P03": "another transaction holds locks on rows of the adopted table, or on the table: pg_locks and pg_blocking_pids show which; it is tried again",
	"42P01": gone, "3F000": gone, "42883": gone,
	"42703": "a column of the adopted table was dropped or renamed: correct the mapping and start again",
}

const gone = "the adopted table was dropped or renamed: correct the configuration and start again"

// explain adds the next step to an error, and after one that is not the server's lets
// go of idle connections, which have probably died with the one that failed.
func (t *Table) explain(err error) error {
	if err != nil && pgerror.State(err) == "" && !errors.Is(err, context.Canceled) && !errors.Is(err, pgx.ErrNoRows) {
		t.pool.Reset()
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch {
		case pg.Code == fenced:
			return penstock.ErrFenced
		case hints[pg.Code] == gone && strings.Contains(pg.Message, "_adopt_"):
			return penstock.WithHint(penstock.ErrNotMigrated, "run: penstock migrate, or in Go call Migrate")
		}
	}
	with := maps.Clone(hints)
	with["42501"] = strings.Replace(hints["42501"], "penstock.grant_adopt('ROLE')", t.ownName("grant_adopt")+"("+pg.Literal(t.pool.Config().ConnConfig.User)+")", 1)
	return pgerror.Explain(err, with)
}

// own loads a statement about Penstock's own tables.
func (t *Table) own(name string) string {
	return strings.ReplaceAll(pg.Statement(sqlFiles, name), "{schema}", pgx.Identifier{t.schema}.Sanitize())
}

func (t *Table) ownName(name string) string { return pgx.Identifier{t.schema, name}.Sanitize() }

// Check compares the config with the table as it is: *penstock.FieldError where they
// do not fit, or where another subscription would settle the same rows. It changes
// nothing.
func (t *Table) Check(ctx context.Context) error {
	m, err := t.compare(ctx)
	if err != nil {
		return err
	}
	f, err := t.find(ctx, t.pool)
	if err == nil {
		err = t.conflict(ctx, t.pool, m, f.name)
	}
	return t.explain(err)
}

// compare looks at Penstock's tables before: a database that is not migrated is the error then.
func (t *Table) compare(ctx context.Context) (*mapping, error) {
	if _, err := t.find(ctx, t.pool); err != nil {
		return nil, t.explain(err)
	}
	m, err := newMapping(ctx, t.pool, t.config)
	return m, t.explain(err)
}

// conflict is an error if another subscription than name would settle the same rows.
func (t *Table) conflict(ctx context.Context, q querier, m *mapping, name string) error {
	var other, mark string
	err := q.QueryRow(ctx, t.own("conflict"), name, m.Source, m.config.Marks()).Scan(&other, &mark)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	return m.config.Shares(m.Source, other, mark)
}

// register makes the subscription known and returns its id.
func (t *Table) register(ctx context.Context, tx pgx.Tx, m *mapping) (id int64, err error) {
	// One at a time, so that two that would share rows see each other.
	if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock($1, 0)", leaseLock); err != nil {
		return 0, err
	}
	f, err := t.find(ctx, tx)
	if err == nil {
		err = t.conflict(ctx, tx, m, f.name)
	}
	if err != nil {
		return 0, err
	}
	if f.id != 0 && f.source != m.Source {
		var outOfBand bool
		if err := tx.QueryRow(ctx, "select exists (select from "+t.ownName("_adopt_row")+" where subscription = $1)", f.id).Scan(&outOfBand); err != nil {
			return 0, err
		}
		if outOfBand {
			return 0, adopted.Moves(f.name, f.source, m.Source)
		}
	}
	err = tx.QueryRow(ctx, t.own("register"), f.name, m.Source, m.config.Marks()).Scan(&id)
	return id, err
}
