package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/penstock/penstock"
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
