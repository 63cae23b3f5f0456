package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/schema"
	"github.com/penstock/penstock/internal/tables"
)

// version of the tables that this program makes. Those of lower ones are of development only.
const version = 11

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
	engine, err := s.engine(ctx)
	if err != nil {
		return err
	}
	if err := s.define(ctx, "create database if not exists "+quoted(s.opts.Schema)); err != nil {
		return err
	}
	text, _ := s.rendered(uncommented("schema.sql"), tables.Args{"version": version, "engine": engine})
	for _, statement := range strings.Split(text, ";\n\n") {
		if err := s.define(ctx, strings.TrimSuffix(statement, ";")); err != nil {
			return err
		}
	}
	return nil
}

// engine is the clause of a new table: the engine that was asked for, that the tables have, or that is the server's default. Without transactions nothing
// could be rolled back.
func (s *Store) engine(ctx context.Context) (clause tables.SQL, err error) {
	var name string
	err = s.ddl.QueryRowContext(ctx, `select e.engine from information_schema.engines e where e.transactions = 'YES' and e.support in ('YES', 'DEFAULT')
		and e.engine = case when ? <> '' then ? else coalesce((select t.engine from information_schema.tables t where t.table_schema = ? and t.table_name = 'version'), case when e.support = 'DEFAULT' then e.engine end) end`,
		s.opts.Engine, s.opts.Engine, s.opts.Schema).Scan(&name)
	if errors.Is(err, sql.ErrNoRows) {
		return "", penstock.WithHint(fmt.Errorf("the storage engine %s has no transactions, or is not there", cmp.Or(s.opts.Engine, "that is the server's default")), "name another in the URL, ?engine=InnoDB, or install its plugin")
	}
	return tables.SQL("engine = " + quoted(name)), s.explain(err)
}

// define runs a statement that defines something, unless that exists, until no other session does the same.
func (s *Store) define(ctx context.Context, statement string) error {
	return s.explain(tables.Define(ctx, func() error {
		_, err := s.ddl.ExecContext(ctx, statement)
		return err
	}))
}

// SchemaVersion returns the version of the tables in the database, or 0 if there are none.
func (s *Store) SchemaVersion(ctx context.Context) (have int64, err error) {
	if s.guard.Closed.Load() {
		return 0, penstock.ErrClosed
	}
	err = s.db.QueryRowContext(ctx, "select coalesce(max(version), 0) from "+quoted(s.opts.Schema)+".version").Scan(&have)
	if n := number(err); n == noSuchTable || n == noSuchDatabase {
		return 0, nil
	}
	if number(err) == noSuchColumn {
		return 0, s.of().Broken(0, "the column version of version")
	}
	return have, s.explain(err)
}

// unlike reports whether a statement failed because the tables are of another version. A table, column or key is missing, a row is there
// twice, or a column has no value.
func unlike(err error) bool {
	return slices.Contains([]uint16{noSuchTable, noSuchColumn, duplicate, 1048, 1136, 1176, 1364, 3819, 4025}, number(err))
}

var columns = sync.OnceValue(func() []schema.Column { return schema.Columns(uncommented("schema.sql")) })

// lacks names a missing part of the tables of this version, "" if all are there. information_schema shows a user only objects that it has a privilege on; where this one may not
// read all, the request fails.
func (s *Store) lacks(ctx context.Context) (string, error) {
	rows, err := s.db.QueryContext(ctx, schema.Probe(columns(), quoted(s.opts.Schema)+"."))
	switch number(err) {
	case noSuchTable, noSuchColumn:
		return "something: " + err.Error(), nil
	case 1142, 1143:
		return "", nil
	}
	if err != nil {
		return "", s.explain(err)
	}
	return "", s.explain(rows.Close())
}

func (s *Store) of() schema.Of {
	return schema.Of{Where: "the database " + s.opts.Schema, Want: version, Oldest: version, Migrate: "penstock migrate", Fresh: schema.Drop}
}

// CheckSchema compares the tables with this program's. If they differ, the error is a *penstock.SchemaError.
func (s *Store) CheckSchema(ctx context.Context) (differences []string, err error) {
	return nil, s.guard.Check(ctx)
}

// DropSchema removes the database with all that is in it, also tables that are not Penstock's. It is for databases of a
// test, a demo or a benchmark.
func (s *Store) DropSchema(ctx context.Context) error {
	_, err := s.db.ExecContext(ctx, "drop database if exists "+quoted(s.opts.Schema))
	s.guard.Forget()
	return s.explain(err)
}

func isDial(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial)
}
