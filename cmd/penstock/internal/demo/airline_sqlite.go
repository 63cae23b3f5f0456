package demo

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/penstock/penstock/store/sqlite"
)

//go:embed sql/sqlite/create.sql
var sqliteCreate string

//go:embed sql/sqlite/turn.sql
var sqliteTurn string

//go:embed sql/sqlite/depart.sql
var sqliteDepart string

//go:embed sql/sqlite/committed.sql
var sqliteCommitted string

//go:embed sql/sqlite/drop.sql
var sqliteDrop string

type sqliteAirline struct {
	db           *sql.DB
	outbox       *sqlite.Outbox
	prefix       string
	turn, depart *sql.Stmt
}

// NewSQLiteAirline creates the airline's tables in an SQLite file, with their own prefix. Its
// transactions are BEGIN IMMEDIATE. Commits to a throwaway file are not flushed to disk one by
// one: it is not read after a crash.
func NewSQLiteAirline(ctx context.Context, databaseURL, prefix string, outbox *sqlite.Outbox, throwaway bool) (_ Airline, err error) {
	a := &sqliteAirline{outbox: outbox, prefix: prefix + "_"}
	if a.db, err = sqlite.OpenDB(databaseURL); err != nil {
		return nil, fmt.Errorf("the airline's database: %w", err)
	}
	defer func() {
		if err != nil {
			_ = a.db.Close()
		}
	}()
	if throwaway { // on the pool's only connection
		if _, err = a.db.ExecContext(ctx, "pragma synchronous = normal"); err != nil {
			return nil, fmt.Errorf("the airline's database: %w", err)
		}
	}
	if _, err = a.db.ExecContext(ctx, a.named(sqliteCreate)); err != nil {
		return nil, fmt.Errorf("creating the airline's tables: %w", err)
	}
	if a.turn, err = a.db.PrepareContext(ctx, a.named(sqliteTurn)); err != nil {
		return nil, fmt.Errorf("the airline's database: %w", err)
	}
	if a.depart, err = a.db.PrepareContext(ctx, a.named(sqliteDepart)); err != nil {
		return nil, fmt.Errorf("the airline's database: %w", err)
	}
	return a, nil
}

// named is a statement with the names of this run's tables.
func (a *sqliteAirline) named(sql string) string {
	return strings.ReplaceAll(statement(sql), "demo_", a.prefix)
}

func (a *sqliteAirline) Depart(ctx context.Context, f *Flight, rollback bool) error {
	tx, err := a.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("flight %d: begin: %w", f.ID, err)
	}
	// After a commit this has no effect.
	defer func() { _ = tx.Rollback() }()

	var turn int64
	if f.Tailnum != "" {
		if err := tx.StmtContext(ctx, a.turn).QueryRowContext(ctx, f.Tailnum).Scan(&turn); err != nil {
			return fmt.Errorf("flight %d: the turn of aircraft %s: %w", f.ID, f.Tailnum, err)
		}
	}
	if _, err := tx.StmtContext(ctx, a.depart).ExecContext(ctx, f.ID, f.Scheduled, f.Carrier, f.Number, f.Tailnum, turn, f.Origin, f.Dest,
		f.DepTime, f.DepDelay, f.ArrDelay, f.Distance); err != nil {
		return fmt.Errorf("flight %d: insert: %w", f.ID, err)
	}
	m, err := message(f, turn)
	if err != nil {
		return err
	}
	if err := a.outbox.PublishTx(ctx, tx, m); err != nil {
		return fmt.Errorf("flight %d: publish: %w", f.ID, err)
	}
	if rollback {
		return tx.Rollback()
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("flight %d: commit: %w", f.ID, err)
	}
	return nil
}

func (a *sqliteAirline) Commit(ctx context.Context) error {
	var turn int64
	return a.turn.QueryRowContext(ctx, "").Scan(&turn) // of this aircraft there is no flight
}

func (a *sqliteAirline) Committed(ctx context.Context) ([]Departure, error) {
	return readDepartures(ctx, a.db, a.named(sqliteCommitted))
}

func (a *sqliteAirline) Remove(ctx context.Context) error {
	if _, err := a.db.ExecContext(ctx, a.named(sqliteDrop)); err != nil {
		return fmt.Errorf("dropping the airline's tables: %w", err)
	}
	return nil
}

func (a *sqliteAirline) Close() error {
	return errors.Join(a.turn.Close(), a.depart.Close(), a.db.Close())
}
