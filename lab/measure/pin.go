package measure

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// PinPostgres returns a Pin that holds a REPEATABLE READ snapshot on a separate connection: until
// release, vacuum removes nothing that became dead after it.
func PinPostgres(url string) func(ctx context.Context) (release func(), err error) {
	return func(ctx context.Context) (func(), error) {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return nil, err
		}
		release := func() { _ = conn.Close(context.WithoutCancel(ctx)) }
		for _, sql := range []string{"begin isolation level repeatable read read only", "select count(*) from pg_class"} {
			if _, err := conn.Exec(ctx, sql); err != nil {
				release()
				return nil, fmt.Errorf("pinning a snapshot: %w", err)
			}
		}
		return release, nil
	}
}

// pinned holds a snapshot until release, if there is a pin.
func pinned(ctx context.Context, pin func(context.Context) (release func(), err error)) (release func(), err error) {
	if pin == nil {
		return func() {}, nil
	}
	return pin(ctx)
}
