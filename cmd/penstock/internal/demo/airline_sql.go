package demo

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/pg"
	"github.com/penstock/penstock/store/mysql"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/store/sqlite"
)

var (
	//go:embed sql/mysql/create.sql
	mysqlCreate string
	//go:embed sql/mysql/lock.sql
	mysqlLock string
	//go:embed sql/mysql/turn.sql
	mysqlTurn string
	//go:embed sql/mysql/depart.sql
	mysqlDepart string
	//go:embed sql/mysql/committed.sql
	mysqlCommitted string

	//go:embed sql/sqlite/create.sql
	sqliteCreate string
	//go:embed sql/sqlite/turn.sql
	sqliteTurn string
	//go:embed sql/sqlite/depart.sql
	sqliteDepart string
	//go:embed sql/sqlite/committed.sql
	sqliteCommitted string
	//go:embed sql/sqlite/drop.sql
	sqliteDrop string
)

// sqlAirline is the airline in a database of database/sql.
type sqlAirline struct {
	db                 *sql.DB
	publishTx          func(ctx context.Context, tx *sql.Tx, m penstock.Message) error
	names              *strings.Replacer // of this run's tables
	lock, turn, depart *sql.Stmt         // lock is nil if turn takes the lock
	committed, drop    string
}

// NewMySQLAirline creates the airline's tables in a separate database of a MariaDB or MySQL server, in the engine of the outbox.
func NewMySQLAirline(ctx context.Context, databaseURL, name string, connections int, outbox *mysql.Outbox, engine string) (Airline, error) {
	db, err := mysql.Connect(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("the airline's database: %w", err)
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	db.SetConnMaxIdleTime(5 * time.Second) // MySQL ends a session of Penstock's after ten
	if engine != "" {
		engine = "engine = " + engine
	}
	publish := func(ctx context.Context, tx *sql.Tx, m penstock.Message) error { return outbox.PublishTx(ctx, tx, m) }
	a := &sqlAirline{db: db, publishTx: publish, names: strings.NewReplacer("demo", "`"+name+"`", "{engine}", engine),
		committed: mysqlCommitted, drop: "drop database demo"}
	// Must not be interrupted between creating the database and noting that the run created it.
	if _, err = db.ExecContext(context.WithoutCancel(ctx), a.named("create database demo")); err == nil {
		if err = a.create(ctx, mysqlCreate, mysqlLock, mysqlTurn, mysqlDepart); err != nil {
			err = errors.Join(err, a.Remove(context.WithoutCancel(ctx)))
		}
	}
	return a.made(err)
}

// NewSQLiteAirline creates the airline's tables in an SQLite file, with their own prefix. Its
// transactions are BEGIN IMMEDIATE. Commits to a throwaway file are not flushed to disk one by
// one: it is not read after a crash.
func NewSQLiteAirline(ctx context.Context, databaseURL, prefix string, outbox *sqlite.Outbox, throwaway bool) (Airline, error) {
	db, err := sqlite.OpenDB(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("the airline's database: %w", err)
	}
	publish := func(ctx context.Context, tx *sql.Tx, m penstock.Message) error { return outbox.PublishTx(ctx, tx, m) }
	a := &sqlAirline{db: db, publishTx: publish, names: strings.NewReplacer("demo_", prefix+"_"), committed: sqliteCommitted, drop: sqliteDrop}
	if throwaway { // on the pool's only connection
		_, err = db.ExecContext(ctx, "pragma synchronous = normal")
	}
	if err == nil {
		err = a.create(ctx, sqliteCreate, "", sqliteTurn, sqliteDepart)
	}
	return a.made(err)
}

// create makes the tables and prepares the statements.
func (a *sqlAirline) create(ctx context.Context, create, lock, turn, depart string) error {
	_, err := a.db.ExecContext(ctx, a.named(create))
	for _, one := range []struct {
		to  **sql.Stmt
		sql string
	}{{&a.lock, lock}, {&a.turn, turn}, {&a.depart, depart}} {
		if err == nil && one.sql != "" {
			*one.to, err = a.db.PrepareContext(ctx, a.named(one.sql))
		}
	}
	return err
}

// made is the airline, unless an error says that it could not be made.
func (a *sqlAirline) made(err error) (Airline, error) {
	if err != nil {
		return nil, errors.Join(fmt.Errorf("creating the airline's tables: %w", err), a.db.Close())
	}
	return a, nil
}

func (a *sqlAirline) named(sql string) string { return a.names.Replace(statement(sql)) }

func (a *sqlAirline) Depart(ctx context.Context, f *Flight, rollback bool) error {
	tx, err := a.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("flight %d: begin: %w", f.ID, err)
	}
	return depart(ctx, sqlSteps{a, tx}, f, rollback)
}

type sqlSteps struct {
	*sqlAirline
	tx *sql.Tx
}

func (s sqlSteps) takeTurn(ctx context.Context, tailnum string) (turn int64, err error) {
	if s.lock != nil {
		if _, err := s.tx.StmtContext(ctx, s.lock).ExecContext(ctx, tailnum); err != nil {
			return 0, err
		}
	}
	err = s.tx.StmtContext(ctx, s.turn).QueryRowContext(ctx, tailnum).Scan(&turn)
	return turn, err
}

func (s sqlSteps) insert(ctx context.Context, columns ...any) error {
	_, err := s.tx.StmtContext(ctx, s.depart).ExecContext(ctx, columns...)
	return err
}

func (s sqlSteps) publish(ctx context.Context, m penstock.Message) error {
	return s.publishTx(ctx, s.tx, m)
}
func (s sqlSteps) rollback(context.Context) error { return s.tx.Rollback() }
func (s sqlSteps) commit(context.Context) error   { return s.tx.Commit() }

func (a *sqlAirline) Commit(ctx context.Context) error {
	first := a.turn
	if a.lock != nil {
		first = a.lock
	}
	_, err := first.ExecContext(ctx, strconv.Itoa(rand.IntN(1000))) // of these aircraft there is no flight
	return err
}

func (a *sqlAirline) Committed(ctx context.Context) (departures []Departure, err error) {
	rows, err := a.db.QueryContext(ctx, a.named(a.committed))
	if err != nil {
		return nil, fmt.Errorf("reading the committed flights: %w", err)
	}
	defer rows.Close()
	for rows.Next() && err == nil {
		var d Departure
		err = rows.Scan(&d.Flight, &d.Tailnum, &d.Turn)
		departures = append(departures, d)
	}
	if err = errors.Join(err, rows.Err()); err != nil {
		return nil, fmt.Errorf("reading the committed flights: %w", err)
	}
	return departures, nil
}

func (a *sqlAirline) Remove(ctx context.Context) error {
	if _, err := a.db.ExecContext(ctx, a.named(a.drop)); err != nil {
		return fmt.Errorf("dropping the airline's tables: %w", err)
	}
	return nil
}

func (a *sqlAirline) Close() error { return a.db.Close() } // with the statements

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
