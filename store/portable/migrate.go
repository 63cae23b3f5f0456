package portable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/pg"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/schema"
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
		return s.check(ctx, have)
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
	if s.closed.Load() {
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

// ready checks once that the tables can be used.
func (s *Store) ready(ctx context.Context) error {
	if s.closed.Load() {
		return penstock.ErrClosed
	}
	if s.checked.Load() {
		return ctx.Err()
	}
	have, err := s.SchemaVersion(ctx)
	if err == nil {
		err = s.check(ctx, have)
	}
	if err == nil {
		s.checked.Store(true)
	}
	return err
}

// migrated returns the error of a statement, or, if it was refused because a newer program has migrated the tables since they were checked, the
// error that says so.
func (s *Store) migrated(ctx context.Context, err error) error {
	if state := pgerror.State(err); state != "" && (strings.HasPrefix(state, "23") || strings.HasPrefix(state, "42")) {
		if have, failed := s.SchemaVersion(ctx); failed == nil && have > version {
			s.checked.Store(false)
			return fmt.Errorf("%w: %w", s.of().Check(have), err)
		}
	}
	return err
}

var present = sync.OnceValue(func() []schema.Column { return schema.Columns(schemaSQL) })

func (s *Store) check(ctx context.Context, have int64) error {
	if have == version {
		if lacks, err := pg.Lacking(ctx, s.pool, s.opts.Schema, present()); err != nil || lacks != "" {
			return cmp.Or(s.explain(err), s.of().Broken(have, lacks))
		}
	}
	return s.of().Check(have)
}

func (s *Store) of() schema.Of {
	return schema.Of{Where: "schema " + s.schema, Want: version, Oldest: version, Migrate: "penstock migrate --profile portable", Fresh: schema.Drop}
}

// CheckSchema compares the tables with this program's. If they differ, the error is a *penstock.SchemaError.
func (s *Store) CheckSchema(ctx context.Context) (differences []string, err error) {
	have, err := s.SchemaVersion(ctx)
	if err == nil {
		err = s.check(ctx, have)
	}
	return nil, err
}

// DropSchema removes the schema with all that is in it, also tables that are not Penstock's. It is for schemas of a
// test, a demo or a benchmark.
func (s *Store) DropSchema(ctx context.Context) error {
	err := pg.DropSchema(ctx, s.pool, s.schema)
	s.checked.Store(false)
	return s.explain(err)
}

// isNoRows: the row is not there.
func isNoRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }
