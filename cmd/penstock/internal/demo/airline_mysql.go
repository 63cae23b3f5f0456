package demo

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/store/mysql"
)

//go:embed sql/mysql/create.sql
var mysqlCreate string

//go:embed sql/mysql/lock.sql
var mysqlLock string

//go:embed sql/mysql/turn.sql
var mysqlTurn string

//go:embed sql/mysql/depart.sql
var mysqlDepart string

//go:embed sql/mysql/committed.sql
var mysqlCommitted string

type mysqlAirline struct {
	db                 *sql.DB
	outbox             *mysql.Outbox
	name               string // of its database
	lock, turn, depart string
}

// NewMySQLAirline creates the airline's tables in a separate database of a MariaDB or MySQL server, in the engine of the outbox.
func NewMySQLAirline(ctx context.Context, databaseURL, name string, connections int, outbox *mysql.Outbox, engine string) (Airline, error) {
	a := &mysqlAirline{outbox: outbox, name: name}
	a.lock, a.turn, a.depart = a.named(mysqlLock), a.named(mysqlTurn), a.named(mysqlDepart)
	var err error
	if a.db, err = mysql.Connect(databaseURL); err != nil {
		return nil, fmt.Errorf("the airline's database: %w", err)
	}
	a.db.SetMaxOpenConns(connections)
	a.db.SetMaxIdleConns(connections)
	a.db.SetConnMaxIdleTime(5 * time.Second) // MySQL ends a session of Penstock's after ten
	if engine != "" {
		engine = "engine = " + engine
	}
	// Must not be interrupted between creating the database and noting that the run created it.
	if _, err = a.db.ExecContext(context.WithoutCancel(ctx), "create database "+a.named("demo")); err == nil {
		if _, err = a.db.ExecContext(ctx, strings.ReplaceAll(a.named(mysqlCreate), "{engine}", engine)); err != nil {
			err = errors.Join(err, a.Remove(context.WithoutCancel(ctx)))
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("creating the airline's tables: %w", err), a.db.Close())
	}
	return a, nil
}

// named is a statement with the name of this run's database.
func (a *mysqlAirline) named(sql string) string {
	return strings.ReplaceAll(statement(sql), "demo", "`"+a.name+"`")
}

func (a *mysqlAirline) Depart(ctx context.Context, f *Flight, rollback bool) error {
	tx, err := a.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("flight %d: begin: %w", f.ID, err)
	}
	// After a commit this has no effect.
	defer func() { _ = tx.Rollback() }()

	var turn int64
	if f.Tailnum != "" {
		if _, err := tx.ExecContext(ctx, a.lock, f.Tailnum); err != nil {
			return fmt.Errorf("flight %d: the turn of aircraft %s: %w", f.ID, f.Tailnum, err)
		}
		if err := tx.QueryRowContext(ctx, a.turn, f.Tailnum).Scan(&turn); err != nil {
			return fmt.Errorf("flight %d: the turn of aircraft %s: %w", f.ID, f.Tailnum, err)
		}
	}
	if _, err := tx.ExecContext(ctx, a.depart, f.ID, f.Scheduled, f.Carrier, f.Number, f.Tailnum, turn, f.Origin, f.Dest,
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

func (a *mysqlAirline) Commit(ctx context.Context) error {
	_, err := a.db.ExecContext(ctx, a.lock, strconv.Itoa(rand.IntN(1000))) // of these aircraft there is no flight
	return err
}

func (a *mysqlAirline) Committed(ctx context.Context) ([]Departure, error) {
	return readDepartures(ctx, a.db, a.named(mysqlCommitted))
}

func (a *mysqlAirline) Remove(ctx context.Context) error {
	if _, err := a.db.ExecContext(ctx, "drop database "+a.named("demo")); err != nil {
		return fmt.Errorf("dropping database %s: %w", a.name, err)
	}
	return nil
}

func (a *mysqlAirline) Close() error { return a.db.Close() }
