package sqlite_test

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/store/sqlite"
)

// What runs for every batch neither reads a whole table nor sorts it: a line of
// 100,000 messages, or 100,000 lines, would make it slower and slower.
func TestStatementsUseIndexes(t *testing.T) {
	_, _, app := newFile(t, sqlite.Options{})
	for name, statement := range sqlite.HotStatements("orders") {
		rows, err := app.Query("explain query plan " + statement)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var plan []string
		for rows.Next() {
			var id, parent, unused int
			var step string
			if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
				t.Fatal(err)
			}
			plan = append(plan, step)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		for _, step := range plan {
			table, scans := strings.CutPrefix(step, "SCAN ")
			if scans && !strings.HasPrefix(table, "j ") && !strings.HasPrefix(table, "json_each") && !strings.HasPrefix(table, "m") && !strings.HasPrefix(table, "r") ||
				strings.Contains(step, "AUTOMATIC") || strings.HasSuffix(step, "FOR ORDER BY") {
				t.Errorf("%s: %s\n%s", name, step, strings.Join(plan, "\n"))
			}
		}
	}
}
