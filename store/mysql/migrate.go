package mysql

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock"
)

// version of the tables that this program makes.
const version = 4

// collided are what statements say that make the same thing at the same time: 1213 and 1205 while another one has it
// locked, 1050 where it has won.
var collided = []uint16{1213, 1205, 1050, 1061, duplicate}

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
	if err := s.define(ctx, "create database if not exists "+quoted(s.opts.Schema)); err != nil {
		return err
	}
	if err := s.alter(ctx); err != nil {
		return err
	}
	for _, statement := range strings.Split(s.sql(uncommented("schema.sql"), "", words{"version": version}), ";\n\n") {
		if err := s.define(ctx, strings.TrimSuffix(statement, ";")); err != nil {
			return err
		}
	}
	return nil
}

// alterations bring tables that are there up to date, those that lack a column: "create table if not exists" leaves them as they are.
var alterations = []struct{ table, column, change string }{
	{"leases", "second", "drop primary key, drop key leases_job, drop key leases_until, add primary key (queue_id, seq), add key leases_lease (lease), add column second bigint not null default 0, add key leases_second (queue_id, second, until)"},
	{"queues", "turns", "add column turns bigint not null default 0"},
}

func (s *Store) alter(ctx context.Context) error {
	for _, a := range alterations {
		lacks := "select count(*) from information_schema.tables t where t.table_schema = ? and t.table_name = ? and not exists (select 1 from information_schema.columns c where c.table_schema = t.table_schema and c.table_name = t.table_name and c.column_name = ?)"
		for {
			var n int
			if err := s.ddl.QueryRowContext(ctx, lacks, s.opts.Schema, a.table, a.column).Scan(&n); err != nil {
				return s.explain(err)
			}
			if n == 0 {
				break
			}
			_, err := s.ddl.ExecContext(ctx, s.sql("alter table {schema}."+a.table+" "+a.change, "", nil))
			if err != nil && !slices.Contains(altered, number(err)) {
				return s.explain(err)
			}
			if err := pause(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(20 * time.Millisecond):
		return nil
	}
}

// altered are what statements say that change a table which another one has changed meanwhile: the column is there, the key is not.
var altered = append([]uint16{1060, 1091}, collided...)

// define runs a statement that defines something, until nobody else is doing the same.
func (s *Store) define(ctx context.Context, statement string) error {
	deadline := time.Now().Add(time.Minute)
	for {
		_, err := s.ddl.ExecContext(ctx, statement)
		if !slices.Contains(collided, number(err)) || time.Now().After(deadline) {
			return s.explain(err)
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// SchemaVersion is the version of the tables in the database, 0 without any.
func (s *Store) SchemaVersion(ctx context.Context) (have int64, err error) {
	if s.closed.Load() {
		return 0, penstock.ErrClosed
	}
	err = s.db.QueryRowContext(ctx, s.sql("select coalesce(max(version), 0) from {schema}.version", "", nil)).Scan(&have)
	if n := number(err); n == noSuchTable || n == noSuchDatabase {
		return 0, nil
	}
	return have, s.explain(err)
}

func (s *Store) check(have int64) error {
	switch {
	case have > version:
		return penstock.WithHint(fmt.Errorf("%w: it has version %d of the tables, this program knows %d", penstock.ErrNewerSchema, have, version), "use the newer penstock")
	case have < version:
		return penstock.WithHint(fmt.Errorf("%w: there are no tables of this version in the database %s", penstock.ErrNotMigrated, s.opts.Schema), "run: penstock migrate")
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

// DropSchema removes the database with every outbox in it, and whatever else
// somebody put there. For those made for a test, a demo or a benchmark.
func (s *Store) DropSchema(ctx context.Context) error {
	_, err := s.db.ExecContext(ctx, "drop database if exists "+quoted(s.opts.Schema))
	s.checked.Store(false)
	return s.explain(err)
}

func isDial(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial)
}
