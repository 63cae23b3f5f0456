package portable

import "github.com/penstock/penstock/internal/pg"

// cockroach is CockroachDB, from 24.1 on, which has SELECT without columns (https://github.com/cockroachdb/cockroach/pull/116835), and DELETE
// … USING since 23.1. All statements before one Sync are one transaction (https://github.com/cockroachdb/cockroach/pull/74242). Text is in
// order of its bytes, and a column may not be said to be (https://github.com/cockroachdb/cockroach/pull/97415). unique_rowid() is made by the
// node that inserts; a sequence would be one row that all of them write. The size of a table has no function until 2026
// (https://github.com/cockroachdb/cockroach/pull/170413).
//
// It also runs a transaction again, while the results fit its buffer (sql.defaults.results_buffer.size).
var cockroach = dialect{
	engine: pg.Cockroach,
	words: map[string]string{
		"collate":      "",
		"seq":          "default unique_rowid()",
		"key_bucket":   "fnv32(key)",
		"before":       bytesBefore,
		"by_index":     "true",
		"by_plan":      "true",
		"lock_jobs":    "",
		"pass_taken":   "",
		"side_by_side": "false",
	},
	unsized:     true,
	takesTurns:  true,
	looksUp:     true,
	resultBytes: 128 << 10,
	plan:        cockroachPlan,
}
