package portable

import "context"

// bytes is the size of a table with its indexes, 0 where the engine does not report it.
func (s *Store) bytes(ctx context.Context, table string) (n int64, err error) {
	if !s.dialect().unsized {
		err = s.pool.QueryRow(ctx, "select pg_total_relation_size($1::regclass)", table).Scan(&n)
	}
	return n, err
}
