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
	"github.com/penstock/penstock/internal/tables"
)

// version of the tables that this program makes.
const version = 6

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
	if err := s.alter(ctx); err != nil {
		return err
	}
	for _, statement := range strings.Split(strings.ReplaceAll(s.sql(schemaSQL, ""), "{version}", strconv.Itoa(version)), ";\n\n") {
		if err := s.define(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// Since version 5 an index is of all states.
var alterations = []tables.Alteration{
	{Table: "subscriptions", Column: "keeps_settled", Statements: []string{"alter table {schema}.subscriptions rename column marks to keeps_settled"}},
	{Table: "entries", Column: "row_id", Statements: []string{"drop index if exists {schema}.entries_state", "alter table {schema}.entries add column if not exists row_id text"}},
	{Table: "entries", Column: "parked_key", Statements: []string{"alter index if exists {schema}.entries_line rename to entries_parked_key", "alter table {schema}.entries rename column line to parked_key"}},
	{Table: "leases", Column: "claim", Statements: []string{"alter table {schema}.leases add column if not exists claim bigint not null default 0"}},
}

func (s *Store) alter(ctx context.Context) error {
	const lacks = "select exists (select from information_schema.tables t where t.table_schema = $1 and t.table_name = $2 and not exists (select from information_schema.columns c where c.table_schema = t.table_schema and c.table_name = t.table_name and c.column_name = $3))"
	return s.explain(tables.Alter(ctx, alterations, func(a tables.Alteration) (old bool, err error) {
		return old, s.pool.QueryRow(ctx, lacks, s.opts.Schema, a.Table, a.Column).Scan(&old)
	}, func(statement string) error {
		_, err := s.pool.Exec(ctx, s.sql(statement, ""))
		return err
	}, func(err error) bool { return retry.Collided(err) || pgerror.State(err) == "42703" })) // the column has another name by now
}

// define runs a statement that defines something, unless that is there, until nobody else is doing the same.
func (s *Store) define(ctx context.Context, statement string) error {
	deadline := time.Now().Add(time.Minute)
	for {
		_, err := s.pool.Exec(ctx, statement)
		if !retry.Collided(err) || time.Now().After(deadline) {
			return s.explain(err)
		}
		if err := tables.Pause(ctx); err != nil {
			return err
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
	var err error
	for range 6 { // what a caller that was interrupted had under way may end only now, after a deadlock with it
		if _, err = s.pool.Exec(ctx, "drop schema if exists "+s.schema+" cascade"); pgerror.State(err) != "40P01" {
			break
		}
	}
	s.checked.Store(false)
	return s.explain(err)
}

// isNoRows: the row is not there.
func isNoRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }
