// Package rocksdb counts what MyRocks reads in its storage.
package rocksdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// Calls count the reads in the storage, of all sessions together.
type Calls struct {
	Next int64 `json:"next"` // ROCKSDB_NUMBER_DB_NEXT, and _PREV
	Seek int64 `json:"seek"` // ROCKSDB_NUMBER_DB_SEEK
	// Skipped counts the steps over deleted or older entries. A next or a seek makes them itself, and no status variable counts them.
	Skipped int64 `json:"skipped"`
}

// Steps returns the number of steps from one entry in the storage to the next.
func (c Calls) Steps() int64 { return c.Next + c.Skipped }

// Since returns c minus before.
func (c Calls) Since(before Calls) Calls {
	return Calls{Next: c.Next - before.Next, Seek: c.Seek - before.Seek, Skipped: c.Skipped - before.Skipped}
}

// Plus returns the sum of both.
func (c Calls) Plus(more Calls) Calls {
	return Calls{Next: c.Next + more.Next, Seek: c.Seek + more.Seek, Skipped: c.Skipped + more.Skipped}
}

const unknownEngine = 1286

// Read reads the counters since the server's start. It needs the privilege PROCESS. Without MyRocks all are 0.
func Read(ctx context.Context, db *sql.DB) (c Calls, err error) {
	rows, err := db.QueryContext(ctx, "show engine rocksdb status")
	if refused, ok := errors.AsType[*mysql.MySQLError](err); ok && refused.Number == unknownEngine {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	defer rows.Close()
	into := map[string]*int64{"number.db.next": &c.Next, "number.db.prev": &c.Next, "number.db.seek": &c.Seek, "number.iter.skip": &c.Skipped}
	for rows.Next() {
		var kind, name, text string
		if err := rows.Scan(&kind, &name, &text); err != nil {
			return c, err
		}
		for line := range strings.Lines(text) {
			var n int64
			if _, err := fmt.Sscanf(line, "rocksdb.%s COUNT : %d", &name, &n); err == nil && into[name] != nil {
				*into[name] += n
			}
		}
	}
	return c, rows.Err()
}
