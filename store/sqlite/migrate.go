package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/pressly/goose/v3"
	code "modernc.org/sqlite/lib"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/schema"
	"github.com/penstock/penstock/internal/shell"
)

// versionTable is goose's memory; named so that it does not meet the one of an
// application that uses goose too.
const versionTable = "penstock_schema"

// firstVersion is that of the file that makes the tables. Files of lower ones are of development only.
const firstVersion = 20

// Migrate implements driver.Store. It creates the file if there is none, and
// switches it to WAL.
func (s *Store) Migrate(ctx context.Context) error {
	if s.closed.Load() {
		return penstock.ErrClosed
	}
	if err := s.migrate(ctx); err != nil {
		return s.explain(err)
	}
	return s.checkSchema(ctx)
}

// migrate runs the missing migrations. Each migration is one BEGIN IMMEDIATE
// transaction. goose looks up the missing ones before it begins, so of two
// processes one finds its work done by the other and fails; it then looks again.
func (s *Store) migrate(ctx context.Context) error {
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
	newest, err := newestVersion()
	if err != nil {
		return err
	}
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	for {
		var made int // before the version: another process may migrate the file meanwhile
		if err := db.QueryRowContext(ctx, `select count(*) from sqlite_schema where type = 'table' and name = 'penstock_outboxes'`).Scan(&made); err != nil {
			return err
		}
		before, err := schemaVersion(ctx, db)
		if err != nil {
			return err
		}
		if before >= newest || before > 0 && before < firstVersion {
			return nil // for checkSchema to say
		}
		if before == 0 && made > 0 {
			return s.of(newest).Broken(0, "its version in "+versionTable)
		}
		provider, err := goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithTableName(versionTable), goose.WithDisableGlobalRegistry(true))
		if err != nil {
			return err
		}
		_, failed := provider.Up(ctx)
		after, err := schemaVersion(ctx, db)
		if failed != nil && (err != nil || after <= before) {
			return failed
		}
	}
}

// createFile makes the first connection, whose pragmas make the file. Switching
// to WAL needs the file for itself and does not wait by itself.
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
	return nil, s.checkSchema(ctx)
}

// checkSchema compares the file with this program.
func (s *Store) checkSchema(ctx context.Context) error {
	exists, err := s.exists()
	if err != nil {
		return err
	}
	if !exists {
		of := s.of(1)
		of.Where += ", which does not exist"
		return of.Check(0)
	}
	have, err := s.SchemaVersion(ctx)
	if err != nil {
		return err
	}
	want, err := newestVersion()
	if err != nil {
		return err
	}
	of := s.of(want)
	if have == want {
		rows, err := s.readers.QueryContext(ctx, schema.Probe(columns(), ""))
		if c, ok := resultCode(err); ok && c == code.SQLITE_ERROR {
			return of.Broken(have, "something: "+err.Error())
		}
		if err != nil {
			return s.explain(err)
		}
		if err := rows.Close(); err != nil {
			return s.explain(err)
		}
		s.migrated.Store(true)
	}
	return of.Check(have)
}

// columns are those of the tables that each file of this version has.
var columns = sync.OnceValue(func() []schema.Column {
	var text strings.Builder
	files, err := fs.Glob(migrations, "migrations/*.sql")
	for _, f := range files { // sorted by name
		var one []byte
		if one, err = fs.ReadFile(migrations, f); err == nil {
			text.Write(one)
		}
	}
	if err != nil {
		panic(err) // embedded
	}
	return schema.Columns(text.String())
})

func (s *Store) of(want int64) schema.Of {
	return schema.Of{Where: s.path, Want: want, Oldest: firstVersion, Migrate: "penstock migrate --database-url " + shell.Word("sqlite:"+s.path), Fresh: "use another file"}
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
func schemaVersion(ctx context.Context, db *sql.DB) (int64, error) {
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

// newestVersion is the version that the embedded migrations lead to.
func newestVersion() (int64, error) {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return 0, err
	}
	var newest int64
	for _, f := range files {
		v, err := goose.NumericComponent(f)
		if err != nil {
			return 0, err
		}
		newest = max(newest, v)
	}
	return newest, nil
}
