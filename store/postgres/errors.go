package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/shell"
)

// sqlState is the error's five-letter SQLSTATE, "" if it is not the server's.
func sqlState(err error) string { return pgerror.State(err) }

// explain adds the operator's next step to the message of the server or the network.
func explain(err error) error { return explained(err, grantHint) }

func explained(err error, grant func(error) string) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return pgerror.Explain(err, map[string]string{"42501": grant(err)})
}

// explain is the function of that name. After an error that is not the server's it also closes the
// pool's idle connections, which have probably died with the one that failed.
func (s *Store) explain(err error) error {
	if err != nil && sqlState(err) == "" && !errors.Is(err, context.Canceled) && !errors.Is(err, pgx.ErrNoRows) {
		s.pool.Reset()
	}
	return explained(err, s.grantHint)
}

// publishError turns the server's refusal of a message into an error on which the producer can
// act on.
func publishError(err error, outbox string) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "42703" && pg.Where == "" { // a queue has other columns; Where would name a trigger
		return noOutbox(outbox)
	}
	switch sqlState(err) {
	case "42P01":
		return noOutbox(outbox)
	case "22021", pgerror.NoSuchCharacter:
		return fmt.Errorf("publish to %q: text the database cannot hold: %w", outbox, err)
	case "42501":
		return penstock.WithHint(err, "%s", granted("penstock outbox grant "+shell.Word(outbox)+" ROLE --publish"))
	}
	return explain(err)
}

// RefusesContent implements driver.ContentJudge: data, constraints and triggers.
func (s *Store) RefusesContent(err error) bool {
	state := sqlState(err)
	return len(state) == 5 && slices.Contains([]string{"22", "23", "44", "54", "P0"}, state[:2])
}
