package demo

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/pg"
	"github.com/penstock/penstock/store/postgres"
)

var (
	//go:embed sql/postgres/create.sql
	pgCreate string
	//go:embed sql/postgres/turn.sql
	pgTurn string
	//go:embed sql/postgres/depart.sql
	pgDepart string
	//go:embed sql/postgres/committed.sql
	pgCommitted string
)

type postgresAirline struct {
	pool         *pgxpool.Pool
	outbox       Publisher
	schema       string // quoted
	turn, depart string
}

// Publisher is a store's outbox, for a transaction of pgx.
type Publisher interface {
	PublishTx(ctx context.Context, tx pgx.Tx, msgs ...penstock.Message) error
}

// NewPostgresAirline creates the airline's tables in a separate schema.
func NewPostgresAirline(ctx context.Context, databaseURL, schema string, connections int, outbox Publisher) (Airline, error) {
	cfg, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("the airline's database: %w", hidePassword(err, databaseURL))
	}
	a := &postgresAirline{
		outbox: outbox, schema: pgx.Identifier{schema}.Sanitize(),
		turn: statement(pgTurn), depart: statement(pgDepart),
	}
	cfg.MaxConns = int32(connections)
	cfg.ConnConfig.RuntimeParams["search_path"] = a.schema
	if a.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, fmt.Errorf("the airline's database: %w", err)
	}
	// Must not be interrupted between creating the schema and noting that the run created it.
	if _, err = a.pool.Exec(context.WithoutCancel(ctx), "create schema "+a.schema); err == nil {
		if _, err = a.pool.Exec(ctx, pgCreate); err != nil {
			err = errors.Join(err, a.Remove(context.WithoutCancel(ctx)))
		}
	}
	if err != nil {
		a.pool.Close()
		return nil, fmt.Errorf("creating the airline's tables: %w", err)
	}
	return a, nil
}

func (a *postgresAirline) Depart(ctx context.Context, f *Flight, rollback bool) (err error) {
	begin := a.pool.Begin
	if _, ok := a.outbox.(*postgres.Outbox); ok && !rollback { // messages of transactions that roll back are written before
		begin = postgres.NewBuffered(a.pool, penstock.BufferOptions{}).Begin // the message is sent with COMMIT
	}
	tx, err := begin(ctx)
	if err != nil {
		return fmt.Errorf("flight %d: begin: %w", f.ID, err)
	}
	return depart(ctx, postgresSteps{a, tx}, f, rollback)
}

type postgresSteps struct {
	*postgresAirline
	tx pgx.Tx
}

func (s postgresSteps) takeTurn(ctx context.Context, tailnum string) (turn int64, err error) {
	err = s.tx.QueryRow(ctx, s.turn, tailnum).Scan(&turn)
	return turn, err
}

func (s postgresSteps) insert(ctx context.Context, columns ...any) error {
	_, err := s.tx.Exec(ctx, s.depart, columns...)
	return err
}

func (s postgresSteps) publish(ctx context.Context, m penstock.Message) error {
	return s.outbox.PublishTx(ctx, s.tx, m)
}

func (s postgresSteps) rollback(ctx context.Context) error { return s.tx.Rollback(ctx) }
func (s postgresSteps) commit(ctx context.Context) error   { return s.tx.Commit(ctx) }

func (a *postgresAirline) Commit(ctx context.Context) error {
	_, err := a.pool.Exec(ctx, a.turn, strconv.Itoa(rand.IntN(1000))) // of these aircraft there is no flight
	return err
}

func (a *postgresAirline) Committed(ctx context.Context) ([]Departure, error) {
	rows, err := a.pool.Query(ctx, statement(pgCommitted))
	if err != nil {
		return nil, fmt.Errorf("reading the committed flights: %w", err)
	}
	departures, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Departure])
	if err != nil {
		return nil, fmt.Errorf("reading the committed flights: %w", err)
	}
	return departures, nil
}

func (a *postgresAirline) Remove(ctx context.Context) error {
	if err := pg.DropSchema(ctx, a.pool, a.schema); err != nil {
		return fmt.Errorf("dropping schema %s: %w", a.schema, err)
	}
	return nil
}

func (a *postgresAirline) Close() error {
	a.pool.Close()
	return nil
}

// hidePassword replaces an error that quotes a URL which could not be parsed.
func hidePassword(err error, databaseURL string) error {
	if _, parse := url.Parse(databaseURL); parse != nil {
		return errors.New("the URL cannot be parsed: write postgres://user:password@host:5432/database, special characters as %XX")
	}
	return err
}
