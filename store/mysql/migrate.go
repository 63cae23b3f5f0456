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
const version = 3

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
	for _, statement := range strings.Split(s.sql(uncommented("schema.sql"), "", words{"version": version}), ";\n\n") {
		if err := s.define(ctx, strings.TrimSuffix(statement, ";")); err != nil {
			return err
		}
	}
	return nil
}

// define runs a statement that defines something, until nobody else is doing the same.
func (s *Store) define(ctx context.Context, statement string) error {
	deadline := time.Now().Add(time.Minute)
	for {
		_, err := s.ddl.ExecContext(ctx, statement)
		if !slices.Contains(collided, number(err)) || time.Now().After(deadline) {
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
