package portable

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/retry"
)

// version of the tables that this program makes.
const version = 5

// Migrate implements penstock.Store. Every statement is by itself and may run again, so whoever comes later, or
// after one that died, goes on where it is.
func (s *Store) Migrate(ctx context.Context) error {
	have, err := s.SchemaVersion(ctx)
	if err != nil {
		return err
	}
	if have >= version {
		return s.check(have)
	}
	for _, statement := range strings.Split(strings.ReplaceAll(s.sql(schemaSQL, ""), "{version}", strconv.Itoa(version)), ";\n\n") {
		if err := s.define(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// define runs a statement that defines something, unless that is there, until nobody else is doing the same.
func (s *Store) define(ctx context.Context, statement string) error {
	deadline := time.Now().Add(time.Minute)
	for {
		_, err := s.pool.Exec(ctx, statement)
		if !retry.Collided(err) || time.Now().After(deadline) {
			return s.explain(err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// SchemaVersion is the version of the tables in the database, 0 without any.
func (s *Store) SchemaVersion(ctx context.Context) (have int64, err error) {
	if s.closed.Load() {
		return 0, penstock.ErrClosed
	}
	if err := s.detect(ctx); err != nil {
		return 0, err
	}
	err = s.pool.QueryRow(ctx, s.sql("select coalesce(max(version), 0) from {schema}.version", "")).Scan(&have)
	if state := pgerror.State(err); state == "42P01" || state == "3F000" {
		return 0, nil
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
		err = s.check(have)
	}
	if err == nil {
		s.checked.Store(true)
	}
	return err
}

func (s *Store) check(have int64) error {
	switch {
	case have > version:
		return penstock.WithHint(fmt.Errorf("%w: it has version %d of the tables, this program knows %d", penstock.ErrNewerSchema, have, version), "use the newer penstock")
	case have < version:
		return penstock.WithHint(fmt.Errorf("%w: there are no tables of this version in schema %s", penstock.ErrNotMigrated, s.schema), "run: penstock migrate --profile portable")
	}
	return nil
}

// CheckSchema compares the version of the tables with this program's: the error is ErrNotMigrated or
// ErrNewerSchema if it is another one.
func (s *Store) CheckSchema(ctx context.Context) (differences []string, err error) {
	have, err := s.SchemaVersion(ctx)
	if err == nil {
		err = s.check(have)
	}
	return nil, err
}

// DropSchema removes the schema with every outbox in it, and whatever else
// somebody put there. For schemas made for a test, a demo or a benchmark.
func (s *Store) DropSchema(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, "drop schema if exists "+s.schema+" cascade")
	s.checked.Store(false)
	return s.explain(err)
}

// isNoRows: the row is not there.
func isNoRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }
