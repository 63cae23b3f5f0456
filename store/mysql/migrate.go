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
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/schema"
	"github.com/penstock/penstock/internal/tables"
)

// version of the tables that this program makes.
const version = 8

// collided are the errors of statements that make the same thing at the same time: 1213 and 1205 while another one has it
// locked, 1050 where it has won.
var collided = []uint16{1213, 1205, 1050, 1061, duplicate}

// Migrate implements driver.Store. Every statement commits separately and may run again. So another process can
// continue where one died.
func (s *Store) Migrate(ctx context.Context) error {
	have, err := s.SchemaVersion(ctx)
	if err != nil {
		return err
	}
	if have >= version {
		return s.check(ctx, have)
	}
	engine, err := s.engine(ctx)
	if err != nil {
		return err
	}
	if err := s.define(ctx, "create database if not exists "+quoted(s.opts.Schema)); err != nil {
		return err
	}
	if err := s.alter(ctx); err != nil {
		return err
	}
	if err := s.alterChecks(ctx); err != nil {
		return err
	}
	for _, statement := range strings.Split(s.sql(uncommented("schema.sql"), "", words{"version": version, "engine": engine}), ";\n\n") {
		if err := s.define(ctx, strings.TrimSuffix(statement, ";")); err != nil {
			return err
		}
	}
	return nil
}

// engine is the clause of a new table: the engine that was asked for, that the tables have, or that is the server's default. Without transactions nothing
// could be rolled back.
func (s *Store) engine(ctx context.Context) (clause string, err error) {
	var name string
	err = s.ddl.QueryRowContext(ctx, `select e.engine from information_schema.engines e where e.transactions = 'YES' and e.support in ('YES', 'DEFAULT')
		and e.engine = case when ? <> '' then ? else coalesce((select t.engine from information_schema.tables t where t.table_schema = ? and t.table_name = 'version'), case when e.support = 'DEFAULT' then e.engine end) end`,
		s.opts.Engine, s.opts.Engine, s.opts.Schema).Scan(&name)
	if errors.Is(err, sql.ErrNoRows) {
		return "", penstock.WithHint(fmt.Errorf("the storage engine %s has no transactions, or is not there", cmp.Or(s.opts.Engine, "that is the server's default")), "name another in the URL, ?engine=InnoDB, or install its plugin")
	}
	return "engine = " + quoted(name), s.explain(err)
}

var alterations = []tables.Alteration{
	{Table: "leases", Column: "second", Statements: []string{"alter table {schema}.leases drop primary key, drop key leases_job, drop key leases_until, add primary key (queue_id, seq), add key leases_lease (lease), add column second bigint not null default 0, add key leases_second (queue_id, second, until)"}},
	{Table: "queues", Column: "turns", Statements: []string{"alter table {schema}.queues add column turns bigint not null default 0"}},
	{Table: "queues", Column: "policies", Statements: []string{"alter table {schema}.queues add column policies tinyint not null default 0"}},
	{Table: "subscriptions", Column: "keeps_settled", Statements: []string{"alter table {schema}.subscriptions change marks keeps_settled boolean not null"}},
	{Table: "entries", Column: "row_id", Statements: []string{"alter table {schema}.entries add column row_id varbinary(2800), add key entries_replay (subscription_id, state, due), add key entries_row (subscription_id, row_id(700))"}},
	{Table: "key_heads", Column: "behind", Statements: []string{"alter table {schema}.key_heads add column behind mediumblob"}},
	{Table: "schedules", Column: "last_job", Statements: []string{"alter table {schema}.schedules add column paused boolean not null default false, add column skip_overlap boolean not null default false, add column last_job bigint not null default 0"}},
}

func (s *Store) alter(ctx context.Context) error {
	const lacks = "select exists (select 1 from information_schema.tables t where t.table_schema = ? and t.table_name = ? and not exists (select 1 from information_schema.columns c where c.table_schema = t.table_schema and c.table_name = t.table_name and c.column_name = ?))"
	return s.explain(tables.Alter(ctx, alterations, func(a tables.Alteration) (old bool, err error) {
		return old, s.ddl.QueryRowContext(ctx, lacks, s.opts.Schema, a.Table, a.Column).Scan(&old)
	}, func(statement string) error {
		_, err := s.ddl.ExecContext(ctx, s.sql(statement, "", nil))
		return err
	}, func(err error) bool { return slices.Contains(altered, number(err)) }))
}

// alterChecks gives the tables of outboxes and queues a check of headers that also works in MySQL: the one before version 5 refused all headers there. In MariaDB both
// mean the same, and changing one copies the table.
func (s *Store) alterChecks(ctx context.Context) error {
	rows, err := s.ddl.QueryContext(ctx, `select t.table_name, t.constraint_name from information_schema.table_constraints t join information_schema.check_constraints c
		on c.constraint_schema = t.constraint_schema and c.constraint_name = t.constraint_name
		where t.constraint_schema = ? and t.constraint_type = 'CHECK' and c.check_clause like '%json_valid(`+"`headers`"+`)%' and version() not like '%MariaDB%'`, s.opts.Schema)
	if err != nil {
		return s.explain(err)
	}
	defer rows.Close()
	var statements []string
	for rows.Next() {
		var table, check string
		if err := rows.Scan(&table, &check); err != nil {
			return err
		}
		statements = append(statements, s.sql("alter table {schema}."+quoted(table)+" drop check "+quoted(check)+", add constraint headers_{unique} {valid_headers}", "", words{"unique": unique(table)}))
	}
	if err := rows.Err(); err != nil {
		return s.explain(err)
	}
	for _, statement := range statements {
		if err := s.define(ctx, statement); err != nil && !slices.Contains(altered, number(err)) {
			return err
		}
	}
	return nil
}

// altered are the errors of statements that change a table which another statement has changed meanwhile. The column exists, or the column, the
// key or the check does not exist any more.
var altered = append([]uint16{noSuchColumn, 1060, 1091, 3821}, collided...)

// define runs a statement that defines something, until no other session does the same.
func (s *Store) define(ctx context.Context, statement string) error {
	deadline := time.Now().Add(time.Minute)
	for {
		_, err := s.ddl.ExecContext(ctx, statement)
		if !slices.Contains(collided, number(err)) || time.Now().After(deadline) {
			return s.explain(err)
		}
		if err := tables.Pause(ctx); err != nil {
			return err
		}
	}
}

// SchemaVersion returns the version of the tables in the database, or 0 if there are none.
func (s *Store) SchemaVersion(ctx context.Context) (have int64, err error) {
	if s.closed.Load() {
		return 0, penstock.ErrClosed
	}
	err = s.db.QueryRowContext(ctx, s.sql("select coalesce(max(version), 0) from {schema}.version", "", nil)).Scan(&have)
	if n := number(err); n == noSuchTable || n == noSuchDatabase {
		return 0, nil
	}
	if number(err) == noSuchColumn {
		return 0, s.of().Broken(0, "the column version of version")
	}
	return have, s.explain(err)
}

// migrated returns the error of a statement, or, if it was refused because a newer program has migrated the tables since they were checked, the
// error that says so.
func (s *Store) migrated(ctx context.Context, err error) error {
	if slices.Contains(unlike, number(err)) {
		if have, failed := s.SchemaVersion(ctx); failed == nil && have > version {
			s.checked.Store(false)
			return fmt.Errorf("%w: %w", s.of().Check(have), err)
		}
	}
	return err
}

// unlike are errors of statements that are for other tables: a table, column or key is not there, a row is there twice, a column has no value.
var unlike = []uint16{noSuchTable, noSuchColumn, duplicate, 1048, 1136, 1176, 1364, 3819, 4025}

var columns = sync.OnceValue(func() []schema.Column { return schema.Columns(uncommented("schema.sql")) })

func (s *Store) check(ctx context.Context, have int64) error {
	if have == version {
		if lacks, err := s.lacks(ctx); err != nil || lacks != "" {
			return cmp.Or(s.explain(err), s.of().Broken(have, lacks))
		}
	}
	return s.of().Check(have)
}

// lacks names a missing part of the tables of this version, "" if all are there. information_schema shows a user only objects that it has a privilege on; where this one may not
// read all, the request fails by itself.
func (s *Store) lacks(ctx context.Context) (string, error) {
	rows, err := s.db.QueryContext(ctx, schema.Probe(columns(), quoted(s.opts.Schema)+"."))
	switch number(err) {
	case noSuchTable, noSuchColumn:
		return "something: " + err.Error(), nil
	case 1142, 1143:
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return "", rows.Close()
}

func (s *Store) of() schema.Of {
	return schema.Of{Where: "the database " + s.opts.Schema, Want: version, Migrate: "penstock migrate", Fresh: schema.Drop}
}

// CheckSchema compares the tables with this program's. If they differ, the error is a *penstock.SchemaError.
func (s *Store) CheckSchema(ctx context.Context) (differences []string, err error) {
	have, err := s.SchemaVersion(ctx)
	if err == nil {
		err = s.check(ctx, have)
	}
	return nil, err
}

// DropSchema removes the database with all that is in it, also tables that are not Penstock's. It is for databases of a
// test, a demo or a benchmark.
func (s *Store) DropSchema(ctx context.Context) error {
	_, err := s.db.ExecContext(ctx, "drop database if exists "+quoted(s.opts.Schema))
	s.checked.Store(false)
	return s.explain(err)
}

func isDial(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial)
}
