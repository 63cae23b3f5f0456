package portable

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/pg"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/schema"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/tables"
)

// version of the tables that this program makes. Those of lower ones are of development only.
const version = 12

// Migrate implements driver.Store. Every statement commits separately and may run again. So another process can
// continue where one died.
func (s *Store) Migrate(ctx context.Context) error {
	have, err := s.SchemaVersion(ctx)
	if err != nil {
		return err
	}
	if have > 0 {
		return s.guard.Check(ctx)
	}
	for _, statement := range strings.Split(strings.ReplaceAll(s.sql(schemaSQL, ""), "{version}", strconv.Itoa(version)), ";\n\n") {
		if err := s.define(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// define runs a statement that defines something, unless that exists, until no other session does the same.
func (s *Store) define(ctx context.Context, statement string) error {
	return s.explain(tables.Define(ctx, func() error {
		_, err := s.pool.Exec(ctx, statement)
		return err
	}))
}

// SchemaVersion returns the version of the tables in the database, or 0 if there are none.
func (s *Store) SchemaVersion(ctx context.Context) (have int64, err error) {
	if s.guard.Closed.Load() {
		return 0, penstock.ErrClosed
	}
	if err := s.detect(ctx); err != nil {
		return 0, err
	}
	err = s.pool.QueryRow(ctx, s.sql("select coalesce(max(version), 0) from {schema}.version", "")).Scan(&have)
	switch pgerror.State(err) {
	case "42P01", "3F000":
		return 0, nil
	case "42703":
		return 0, s.of().Broken(0, "the column version of version")
	}
	return have, s.explain(err)
}

var present = sync.OnceValue(func() []schema.Column { return schema.Columns(schemaSQL) })

func (s *Store) lacks(ctx context.Context) (string, error) {
	lacks, err := pg.Lacking(ctx, s.pool, s.opts.Schema, present())
	return lacks, s.explain(err)
}

// unlike: the error of a statement for other tables.
func unlike(err error) bool {
	state := pgerror.State(err)
	return strings.HasPrefix(state, "23") || strings.HasPrefix(state, "42")
}

func (s *Store) of() schema.Of {
	migrate := "penstock migrate --profile portable"
	if s.opts.Schema != DefaultSchema {
		migrate += " --schema " + shell.Word(s.opts.Schema)
	}
	return schema.Of{Where: "schema " + s.schema, Want: version, Oldest: version, Migrate: migrate, Fresh: schema.Drop}
}

// CheckSchema compares the tables with this program's. If they differ, the error is a *penstock.SchemaError.
func (s *Store) CheckSchema(ctx context.Context) (differences []string, err error) {
	return nil, s.guard.Check(ctx)
}

// DropSchema removes the schema with all that is in it, also tables that are not Penstock's. It is for schemas of a
// test, a demo or a benchmark.
func (s *Store) DropSchema(ctx context.Context) error {
	err := pg.DropSchema(ctx, s.pool, s.schema)
	s.guard.Forget()
	return s.explain(err)
}

// isNoRows: the row is not there.
func isNoRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }
