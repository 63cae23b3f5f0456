package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	code "modernc.org/sqlite/lib"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/schema"
	"github.com/penstock/penstock/internal/shell"
)

// versionTable has a row for each file that was run.
const versionTable = "penstock_schema"

// firstVersion is that of the file that makes the tables. Files of lower ones are of development only.
const firstVersion = 20

// Migrate implements driver.Store. It creates the file if there is none, and
// switches it to WAL.
func (s *Store) Migrate(ctx context.Context) error {
	if s.guard.Closed.Load() {
		return penstock.ErrClosed
	}
	if err := s.makeFile(ctx); err != nil {
		return s.explain(err)
	}
	if err := s.commit(ctx, s.raise); err != nil {
		return err
	}
	return s.guard.Check(ctx)
}

// makeFile makes the file if there is none.
func (s *Store) makeFile(ctx context.Context) error {
	private(s.path)
	db, err := sql.Open(driverName, dsn(s.path, "rwc", []string{
		fmt.Sprintf("busy_timeout(%d)", s.busy.Milliseconds()),
		"auto_vacuum(incremental)", // heeded only in a file without tables
		"journal_mode(wal)",
		"synchronous(full)",
	}))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if err := createFile(ctx, db, s.busy); err != nil {
		return err
	}
	var mode string
	if err := db.QueryRowContext(ctx, `pragma journal_mode`).Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return penstock.WithHint(fmt.Errorf("%s: the journal mode stays %q", s.path, mode),
			"put the file on a local disk: WAL does not work on network file systems")
	}
	return nil
}

// raise runs the missing files, in one BEGIN IMMEDIATE transaction: of two processes one finds its work done.
func (s *Store) raise(ctx context.Context, tx *sql.Tx) error {
	have, err := schemaVersion(ctx, tx)
	if err != nil || have > 0 && have < firstVersion { // the latter is for the guard to say
		return err
	}
	var made bool
	if err := tx.QueryRowContext(ctx, `select exists (select 1 from sqlite_schema where type = 'table' and name = 'penstock_outboxes')`).Scan(&made); err != nil {
		return err
	}
	if have == 0 && made {
		return s.of().Broken(0, "its version in "+versionTable)
	}
	if _, err := tx.ExecContext(ctx, `create table if not exists `+versionTable+` (id integer primary key autoincrement, version_id integer not null, is_applied integer not null, tstamp timestamp default (datetime('now')))`); err != nil {
		return err
	}
	for _, f := range migrationFiles {
		if f.version <= have {
			continue
		}
		if _, err := tx.ExecContext(ctx, f.text); err != nil {
			return fmt.Errorf("migrating %s to version %d: %w", s.path, f.version, err)
		}
		if _, err := tx.ExecContext(ctx, `insert into `+versionTable+` (version_id, is_applied) values (?, 1)`, f.version); err != nil {
			return err
		}
	}
	return nil
}

// migrationFile is one of migrations/: NNNNN_subject.sql makes version NNNNN.
type migrationFile struct {
	version int64
	text    string
}

// migrationFiles are in order.
var migrationFiles = func() (all []migrationFile) {
	names, _ := fs.Glob(migrations, "migrations/*.sql")
	for _, name := range names {
		text, _ := migrations.ReadFile(name)
		digits, _, _ := strings.Cut(path.Base(name), "_")
		version, _ := strconv.ParseInt(digits, 10, 64)
		all = append(all, migrationFile{version, string(text)})
	}
	return all
}()

// newestVersion is the version that the files lead to.
func newestVersion() int64 { return migrationFiles[len(migrationFiles)-1].version }

// createFile makes the first connection, whose pragmas make the file. Switching
// to WAL needs the file for itself and does not wait.
func createFile(ctx context.Context, db *sql.DB, patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for {
		err := db.PingContext(ctx)
		if !isBusy(err) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// CheckSchema compares the tables with this program's. If they differ, the error is a *penstock.SchemaError.
func (s *Store) CheckSchema(ctx context.Context) (differences []string, err error) {
	return nil, s.guard.Check(ctx)
}

// lacks names a part of the tables of this version that is missing, "" if all are there.
func (s *Store) lacks(ctx context.Context) (string, error) {
	rows, err := s.readers.QueryContext(ctx, schema.Probe(columns(), ""))
	if c, ok := resultCode(err); ok && c == code.SQLITE_ERROR {
		return "something: " + err.Error(), nil
	}
	if err == nil {
		err = rows.Close()
	}
	return "", s.explain(err)
}

// columns are those of the tables that each file of this version has.
var columns = sync.OnceValue(func() []schema.Column {
	var text strings.Builder
	for _, f := range migrationFiles {
		text.WriteString(f.text)
	}
	return schema.Columns(text.String())
})

func (s *Store) of() schema.Of {
	of := schema.Of{Where: s.path, Want: newestVersion(), Oldest: firstVersion, Migrate: "penstock migrate --database-url " + shell.Word("sqlite:"+s.path), Fresh: "use another file"}
	if exists, err := s.exists(); err == nil && !exists {
		of.Where += ", which does not exist"
	}
	return of
}

// SchemaVersion returns the version of the tables in the file, or 0 if there are none or
// there is no file.
func (s *Store) SchemaVersion(ctx context.Context) (int64, error) {
	exists, err := s.exists()
	if err != nil || !exists {
		return 0, err
	}
	version, err := schemaVersion(ctx, s.readers)
	return version, s.explain(err)
}

// schemaVersion is the same on a connection to a file that is there.
func schemaVersion(ctx context.Context, db querier) (int64, error) {
	var found int
	err := db.QueryRowContext(ctx, `select 1 from sqlite_schema where type = 'table' and name = ?`, versionTable).Scan(&found)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var version sql.NullInt64
	err = db.QueryRowContext(ctx, `select max(version_id) from `+versionTable+` where is_applied`).Scan(&version)
	return version.Int64, err
}
