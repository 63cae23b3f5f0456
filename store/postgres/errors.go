package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
)

// sqlState is the error's five-letter SQLSTATE, "" if it is not the server's.
func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// explain adds the operator's next step to what the server or the network says.
func explain(err error) error {
	var (
		pg      *pgconn.PgError
		connect *pgconn.ConnectError
		dial    *net.OpError
		hinted  *penstock.HintError
	)
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.As(err, &hinted):
		return err
	case errors.As(err, &pg):
		switch pg.Code {
		case "28P01", "28000":
			return penstock.WithHint(err, "check user, password and pg_hba.conf")
		case "3D000":
			return penstock.WithHint(err, "create the database or correct the URL")
		case "42501":
			return penstock.WithHint(err, "the owner of the schema can grant it: grant_producer(outbox, role) to publish, grant_relay(role) to relay; what changes an outbox is the owner's to do")
		case "25006":
			return penstock.WithHint(err, "the server is read-only: connect to the primary (target_session_attrs=read-write picks it from several hosts)")
		case "53100":
			return penstock.WithHint(err, "the server's disk is full: free space and go on; nothing is lost")
		case "53300":
			return penstock.WithHint(err, "raise max_connections or close other connections")
		case "57P03":
			return penstock.WithHint(err, "the server is starting up or shutting down: try again")
		}
	case errors.As(err, &connect), errors.As(err, &dial):
		return penstock.WithHint(err, "is PostgreSQL running there and reachable?")
	}
	return err
}

// explain is the function of that name; after an error that is not the server's it
// also lets go of the pool's idle connections, which have probably died with the
// one that failed.
func (s *Store) explain(err error) error {
	if err != nil && sqlState(err) == "" && !errors.Is(err, context.Canceled) && !errors.Is(err, pgx.ErrNoRows) {
		s.pool.Reset()
	}
	return explain(err)
}

// publishError turns the server's refusal of a message into what the producer can
// act on.
func publishError(err error, outbox string) error {
	switch sqlState(err) {
	case "42P01":
		return noOutbox(outbox)
	case "22021":
		return fmt.Errorf("publish to %q: text the database cannot hold: %w", outbox, err)
	}
	return explain(err)
}
