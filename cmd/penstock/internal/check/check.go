// Package check examines an existing outbox table. It reports why the table is slow or unsafe,
// with the evidence and the statements that fix it.
//
// Run only reads. Fix creates the indexes that a report suggests, after asking. DESIGN.md explains
// each finding.
package check

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/adopted"
)

// Options bound a check and set when something is old. The zero value of a field is
// its default.
type Options struct {
	// Timeout of each of the about thirty queries. Default 5 s. The slowest of them run the read, once
	// for one row and once for a batch.
	Timeout time.Duration
	// OldSnapshot is the age from which a transaction is reported to hold back vacuum. Default 5
	// minutes.
	OldSnapshot time.Duration
	// OldTransactions is the same limit as a number of transactions that began since, for holders
	// without a time: replication slots, standbys, sessions of others. Default 1,000,000.
	OldTransactions int64
}

func (o *Options) setDefaults() {
	o.Timeout, o.OldSnapshot, o.OldTransactions = cmp.Or(o.Timeout, 5*time.Second), cmp.Or(o.OldSnapshot, 5*time.Minute), cmp.Or(o.OldTransactions, 1_000_000)
}

// Run looks at the table of cfg, whose defaults are set. It changes nothing: every query is a
// separate read-only transaction with a timeout. Report.Unseen lists the facts that the role or the server
// hides from it. It expects conn to be in no transaction, and leaves its settings as they are.
//
// An error means that there is no report: cfg is not valid (a
// *penstock.FieldError), there is no such table, the connection is lost, or ctx has
// ended.
func Run(ctx context.Context, conn *pgx.Conn, cfg adopted.Config, opts Options) (Report, error) {
	opts.setDefaults()
	if err := cfg.Validate(); err != nil {
		return Report{}, err
	}
	l := &looker{conn: conn, timeout: opts.Timeout}
	f := &facts{cfg: cfg, opts: opts}
	if err := l.gather(ctx, f); err != nil {
		return Report{}, err
	}
	r := Report{
		Table: Table{
			Schema: f.table.id[0], Name: f.table.id[1], Server: f.table.server,
			Rows: -1, DeadRows: -1, Bytes: f.sizes.rows, IndexBytes: f.sizes.indexes, TotalBytes: f.sizes.total,
		},
		Reading:  f.reads.sql,
		Findings: []Finding{}, // [] rather than null
		Unseen:   append([]Unseen{}, l.unseen...),
	}
	if f.stats != nil {
		r.Table.DeadRows = f.stats.dead
		if f.stats.known {
			r.Table.Rows = f.stats.rows
		}
	}
	for _, find := range finders {
		r.Findings = append(r.Findings, find(f)...)
	}
	r.sort()
	return r, nil
}

// Holders finds everything that holds back vacuum in the database, for any table: transactions, prepared ones, replication
// slots, standbys. Like Run, it changes nothing.
func Holders(ctx context.Context, conn *pgx.Conn, opts Options) ([]Finding, []Unseen, error) {
	opts.setDefaults()
	l := &looker{conn: conn, timeout: opts.Timeout}
	f := &facts{opts: opts}
	look := func(ctx context.Context, f *facts) error {
		return l.catalogue(ctx, "the role", func(tx pgx.Tx) error { return tx.QueryRow(ctx, "select current_user").Scan(&f.table.role) })
	}
	for _, look := range []func(context.Context, *facts) error{look, l.lookAtSessions, l.lookAtPrepared, l.lookAtSlots, l.lookAtStandbys} {
		if err := seen(look(ctx, f)); err != nil {
			return nil, nil, err
		}
	}
	return findHolders(f), l.unseen, nil
}

// finders derive the findings from the facts, in the order of a report.
var finders = []func(*facts) []Finding{
	findColumns, findPermissions, findStorage, findKey, findReferences,
	findReadIndex, findContents, findScan, findOrder,
	findIndexes, findTriggers,
	findSpace, findAutovacuum, findHolders,
}

//go:embed sql/*.sql
var sqlFiles embed.FS

// statement loads sql/NAME.sql.
func statement(name string) string {
	text, err := sqlFiles.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err) // embedded: missing only if the build is wrong
	}
	return string(text)
}

// looker queries the database, one small transaction at a time, and notes the facts that it could not see.
type looker struct {
	conn    *pgx.Conn
	timeout time.Duration
	unseen  []Unseen
	refusal string // SQLSTATE of the last query that the server refused
}

// errUnseen is the error of a query that the server refused. The subject and the reason are in
// looker.unseen.
var errUnseen = errors.New("not seen")

// look runs see in a read-only transaction. A refusal of the server is noted under what and
// returns errUnseen. Settings hold only for the transaction.
func (l *looker) look(ctx context.Context, what string, see func(tx pgx.Tx) error, settings ...string) error {
	err := l.transaction(ctx, see, settings)
	var refused *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !errors.As(err, &refused) || l.conn.IsClosed():
		return fmt.Errorf("looking at %s: %w", what, err)
	}
	l.refusal = refused.Code
	l.unseen = append(l.unseen, unseen(what, refused, l.timeout))
	return errUnseen
}

func (l *looker) transaction(ctx context.Context, see func(tx pgx.Tx) error, settings []string) error {
	tx, err := l.conn.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly, IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	// Reading a size waits for sessions that have locked the table, but not for long.
	limits := fmt.Sprintf("set local statement_timeout = %d; set local lock_timeout = %d", l.timeout.Milliseconds(), min(l.timeout/2, time.Second).Milliseconds())
	if _, err := tx.Exec(ctx, limits+strings.Join(append([]string{""}, settings...), "; set local "), pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	return see(tx)
}

// catalogue runs a query with only the system's search path. The server then writes names with
// their schema, and functions of other schemas do not replace its own.
func (l *looker) catalogue(ctx context.Context, what string, see func(tx pgx.Tx) error) error {
	return l.look(ctx, what, see, "search_path = pg_catalog")
}

// The conditions of PostgreSQL's appendix A that need a separate text.
const (
	noPrivilege   = "42501"
	tookTooLong   = "57014"
	tableIsLocked = "55P03"
)

func unseen(what string, err *pgconn.PgError, timeout time.Duration) Unseen {
	switch err.Code {
	case noPrivilege:
		return Unseen{what, err.Message, "grant the right, or run the check as the table's owner"}
	case tookTooLong:
		return Unseen{what, fmt.Sprintf("it took longer than %v", timeout), "allow a longer timeout"}
	case tableIsLocked:
		return Unseen{what, "the table is locked", "run the check again when that is over"}
	}
	return Unseen{What: what, Why: err.Message}
}

// seen drops errUnseen: the query was not essential.
func seen(err error) error {
	if errors.Is(err, errUnseen) {
		return nil
	}
	return err
}

func noTable(cfg *adopted.Config) error {
	return penstock.WithHint(fmt.Errorf("there is no table %s in this database", cfg.TableIdentifier().Sanitize()),
		"check the name and its case, write schema.table if it is not in the search path, and that this is the right database")
}
