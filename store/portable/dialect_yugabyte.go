package portable

import (
	"strings"

	"github.com/penstock/penstock/internal/pg"
)

// yugabyte is YugabyteDB. Tables are made of tablets. A hashed bucket in front of the time spreads new rows over all of them. Each has its
// own end to append to and its own beginning to read from
// (https://docs.yugabyte.com/stable/architecture/docdb-sharding/tablet-splitting/). A queue is read in order of its groups, so it is a
// range, which the server splits. A LIFO queue has the latest first, because stepping backwards is slowest in RocksDB.
//
// The server itself repeats a statement that meets a read restart or a conflict, as long as none of its rows has left the output buffer.
// The buffer has 256 KiB until 2.27 (ysql_output_buffer_size; https://github.com/yugabyte/yugabyte-db/issues/11572).
//
// DDL is not rolled back with its transaction and is not isolated from others' DDL (https://github.com/yugabyte/yugabyte-db/issues/3642).
// So Migrate and its like send one statement at a time, each of which may run again.
var yugabyte = dialect{
	engine: pg.Yugabyte,
	words: map[string]string{
		"outbox_key": "primary key (bucket hash, ts asc, seq asc)",
		"queue_key":  "primary key (group_key asc, priority asc, ts {dir}, seq {dir})",
		"split":      " split into 16 tablets",
		"before":     bytesBefore,
		// Claims take turns: under SERIALIZABLE the server waits for a locked row instead of skipping it.
		"lock_jobs":    "",
		"pass_taken":   "",
		"side_by_side": "false",
	},
	takesTurns:  true,
	resultBytes: 128 << 10,
	plan:        yugabytePlan,
	unusable: func(version string) (problem, hint string) {
		if strings.HasPrefix(version, "PostgreSQL 11.") { // https://github.com/yugabyte/yugabyte-db/issues/10695
			return "generated columns are missing there", "use YugabyteDB 2025.1 or later, which is built on PostgreSQL 15"
		}
		return "", ""
	},
}
