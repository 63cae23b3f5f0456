package mysql

import (
	"context"
	"fmt"
	"strings"
)

// RocksDBCalls count the reads in the storage of MyRocks, of all sessions together.
type RocksDBCalls struct {
	Next int64 `json:"next"` // ROCKSDB_NUMBER_DB_NEXT, and _PREV
	Seek int64 `json:"seek"` // ROCKSDB_NUMBER_DB_SEEK
	// Skipped counts the steps over deleted or older entries. A next or a seek makes them itself, and no status variable counts them.
	Skipped int64 `json:"skipped"`
}

// Steps returns the number of steps from one entry in the storage to the next.
func (c RocksDBCalls) Steps() int64 { return c.Next + c.Skipped }

// Since returns c minus before.
func (c RocksDBCalls) Since(before RocksDBCalls) RocksDBCalls {
	return RocksDBCalls{Next: c.Next - before.Next, Seek: c.Seek - before.Seek, Skipped: c.Skipped - before.Skipped}
}

// Plus returns the sum of both.
func (c RocksDBCalls) Plus(more RocksDBCalls) RocksDBCalls {
	return RocksDBCalls{Next: c.Next + more.Next, Seek: c.Seek + more.Seek, Skipped: c.Skipped + more.Skipped}
}

// RocksDBCalls reads the counters since the server's start. It needs the privilege PROCESS. Without MyRocks all are 0.
func (s *Store) RocksDBCalls(ctx context.Context) (c RocksDBCalls, err error) {
	rows, err := s.db.QueryContext(ctx, "show engine rocksdb status")
	if number(err) == unknownEngine {
		return c, nil
	}
	if err != nil {
		return c, s.explain(err)
	}
	defer rows.Close()
	into := map[string]*int64{"number.db.next": &c.Next, "number.db.prev": &c.Next, "number.db.seek": &c.Seek, "number.iter.skip": &c.Skipped}
	for rows.Next() {
		var kind, name, text string
		if err := rows.Scan(&kind, &name, &text); err != nil {
			return c, s.explain(err)
		}
		for line := range strings.Lines(text) {
			var n int64
			if _, err := fmt.Sscanf(line, "rocksdb.%s COUNT : %d", &name, &n); err == nil && into[name] != nil {
				*into[name] += n
			}
		}
	}
	return c, s.explain(rows.Err())
}
