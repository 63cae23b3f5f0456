package portable

import "context"

// bytes are what a table takes with its indexes, 0 where the engine does not tell.
func (s *Store) bytes(ctx context.Context, table string) (n int64, err error) {
	if !s.dialect().unsized {
		err = s.pool.QueryRow(ctx, "select pg_total_relation_size($1::regclass)", table).Scan(&n)
	}
	return n, err
}
