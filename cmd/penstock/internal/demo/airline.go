package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/store/mysql"
	"github.com/penstock/penstock/store/portable"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/store/sqlite"
)

// Topic of the demo's messages.
const Topic = "flight.departed"

// Airline is the business: two tables and the outbox in one database.
type Airline interface {
	// Depart is one business transaction: it takes the aircraft's next turn under the aircraft's row
	// lock, inserts the flight and publishes the message. With rollback it then rolls everything back.
	Depart(ctx context.Context, f *Flight, rollback bool) error
	// Commit is a nearly empty transaction: the minimal cost of any transaction.
	Commit(ctx context.Context) error
	// Committed returns the flights in the table.
	Committed(ctx context.Context) ([]Departure, error)
	// Remove drops the airline's tables and nothing else.
	Remove(ctx context.Context) error
	Close() error
}

// payload is the payload of a message about a flight.
type payload struct {
	*Flight
	Turn int64 `json:"aircraft_turn"`
}

// message of a flight that is the aircraft's turn-th.
func message(f *Flight, turn int64) (penstock.Message, error) {
	body, err := json.Marshal(payload{f, turn})
	if err != nil {
		return penstock.Message{}, fmt.Errorf("flight %d: %w", f.ID, err)
	}
	return penstock.Message{
		Key: f.Tailnum, Topic: Topic, Payload: body,
		Headers: map[string]string{"content-type": "application/json"},
	}, nil
}

// ParseArrival reads a message's payload back. A message that cannot be read is an arrival of
// flight 0, which is never committed.
func ParseArrival(key string, body []byte) Arrival {
	var p struct {
		ID      int64  `json:"flight_id"`
		Tailnum string `json:"tailnum"`
		Turn    int64  `json:"aircraft_turn"`
	}
	if err := json.Unmarshal(body, &p); err != nil {
		return Arrival{Key: key}
	}
	return Arrival{Departure: Departure{Flight: p.ID, Tailnum: p.Tailnum, Turn: p.Turn}, Key: key}
}

// steps are those of one business transaction, which has begun.
type steps interface {
	takeTurn(ctx context.Context, tailnum string) (turn int64, err error)
	insert(ctx context.Context, columns ...any) error
	publish(ctx context.Context, m penstock.Message) error
	rollback(ctx context.Context) error // after a commit it has no effect
	commit(ctx context.Context) error
}

// depart is Airline.Depart.
func depart(ctx context.Context, tx steps, f *Flight, rollback bool) (err error) {
	defer func() { _ = tx.rollback(context.WithoutCancel(ctx)) }()
	var turn int64
	if f.Tailnum != "" {
		if turn, err = tx.takeTurn(ctx, f.Tailnum); err != nil {
			return fmt.Errorf("flight %d: the turn of aircraft %s: %w", f.ID, f.Tailnum, err)
		}
	}
	if err := tx.insert(ctx, f.ID, f.Scheduled, f.Carrier, f.Number, f.Tailnum, turn, f.Origin, f.Dest,
		f.DepTime, f.DepDelay, f.ArrDelay, f.Distance); err != nil {
		return fmt.Errorf("flight %d: insert: %w", f.ID, err)
	}
	m, err := message(f, turn)
	if err != nil {
		return err
	}
	if err := tx.publish(ctx, m); err != nil {
		return fmt.Errorf("flight %d: publish: %w", f.ID, err)
	}
	if rollback {
		return tx.rollback(ctx)
	}
	if err := tx.commit(ctx); err != nil {
		return fmt.Errorf("flight %d: commit: %w", f.ID, err)
	}
	return nil
}

// rollsBack decides whether the flight's transaction rolls back. The decision is the same in every
// run with one seed.
func rollsBack(seed uint64, flight int64, share float64) bool {
	return rand.New(rand.NewPCG(seed, uint64(flight))).Float64() < share
}

// statement is one embedded SQL file. Its comments are removed, because it is sent to the server
// each time.
func statement(sql string) string {
	var lines []string
	for line := range strings.Lines(sql) {
		code, _, _ := strings.Cut(line, "--")
		if code = strings.TrimSpace(code); code != "" {
			lines = append(lines, code)
		}
	}
	return strings.Join(lines, "\n")
}

// openDatabase makes the store, its outbox and the airline's tables.
func (r *run) openDatabase(ctx context.Context) (err error) {
	private := false // whether this run created Penstock's tables
	onSQLite := strings.HasPrefix(r.DatabaseURL, "sqlite:")
	switch {
	case r.DatabaseURL == "":
		r.DatabaseURL, onSQLite = "sqlite:"+filepath.Join(r.dir, "demo.db"), true
		private = true
	case !onSQLite && r.Schema == "":
		r.Schema, private = r.name, true
	}
	r.outbox = r.name
	if r.store, err = drivers.OpenStore(ctx, r.DatabaseURL, r.Schema, r.Log); err != nil {
		return err
	}
	r.later("", func(context.Context) error { return r.store.Close() })

	err = r.store.Migrate(ctx)
	if private && !onSQLite && (err == nil || ctx.Err() != nil) { // if it was interrupted, it may be half done
		r.later("schema "+r.Schema+" with the outbox", r.dropSchema)
	}
	if err != nil {
		return fmt.Errorf("migrating: %w", err)
	}
	if err := r.store.CreateOutbox(ctx, r.outbox); err != nil {
		return fmt.Errorf("creating the outbox: %w", err)
	}
	if !private {
		r.later("outbox "+r.outbox, func(ctx context.Context) error { return r.store.DropOutbox(ctx, r.outbox) })
	}

	// The check and the clean-up need no further connection: the producers have released theirs by
	// then.
	airline, producers := r.name+"_airline", max(r.Producers, 1)
	kept := "schema " + airline + " with the tables flights and aircraft"
	switch store := r.store.(type) {
	case *sqlite.Store:
		kept = "tables " + airline + "_flights and _aircraft"
		r.airline, err = NewSQLiteAirline(ctx, r.DatabaseURL, airline, store.Outbox(r.outbox), private && !r.Keep)
	case *mysql.Store:
		kept = "database " + airline + " with the tables flights and aircraft"
		r.airline, err = NewMySQLAirline(ctx, r.DatabaseURL, airline, producers, store.Outbox(r.outbox), store.Engine())
	case *portable.Store:
		r.airline, err = NewPostgresAirline(ctx, portable.Plain(r.DatabaseURL), airline, producers, store.Outbox(r.outbox))
	case *postgres.Store:
		r.airline, err = NewPostgresAirline(ctx, portable.Plain(r.DatabaseURL), airline, producers, store.Outbox(r.outbox))
	default:
		err = fmt.Errorf("the demo does not know a store of type %T", store)
	}
	if err != nil {
		return err
	}
	r.later("", func(context.Context) error { return r.airline.Close() })
	r.later(kept, r.airline.Remove)
	return nil
}

// dropSchema removes Penstock's tables, which this run created.
func (r *run) dropSchema(ctx context.Context) error {
	s, ok := r.store.(driver.SchemaDropper)
	if !ok {
		return nil
	}
	if err := s.DropSchema(ctx); err != nil {
		return fmt.Errorf("dropping schema %s: %w", r.Schema, err)
	}
	return nil
}
