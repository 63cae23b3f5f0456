package postgres

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
)

// drop calls a function that drops a queue, an outbox or an inbox. The function waits for moments only, so that no other session waits for it, and
// tries again while another has a lock, for half a minute at most. The server gives up shortly before ctx ends, so it is known that nothing was dropped,
// and the error names who has the thing locked.
func (s *Store) drop(ctx context.Context, function, name string) error {
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		patience := 30 * time.Second
		if until, ok := ctx.Deadline(); ok {
			patience = min(patience, max(time.Millisecond, time.Until(until)*9/10))
		}
		if _, err := tx.Exec(ctx, "select set_config('statement_timeout', $1, true)", strconv.FormatInt(patience.Milliseconds(), 10)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "select "+s.table(function)+"($1)", name)
		return err
	})
	if sqlState(err) != "57014" {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second) // little is left of ctx
	defer cancel()
	who, seconds := "another transaction", 0.0
	_ = s.pool.QueryRow(ctx, statement("lock_holder", s.schema, ""), s.schema, name, function == "drop_inbox").Scan(&who, &seconds) // unknown if it fails
	if seconds >= 1 {
		who += fmt.Sprintf(", in a transaction for %v,", time.Duration(seconds)*time.Second)
	}
	return penstock.WithHint(fmt.Errorf("nothing was dropped: %s has it locked: %w", who, err), "end that transaction, and drop it again")
}
