package sqlite_test

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/penstock/penstock/store/sqlite"
)

// A statement that is parsed once runs again as often as it is asked for. That holds while its own rows are read, after it has failed, and after
// another connection has made its table anew. It also holds after a connection has forgotten it.
func TestStatementsThatAreKept(t *testing.T) {
	t.Parallel()
	path, _, app := newFile(t, sqlite.Options{})
	db := sqlite.Prepared(path)
	t.Cleanup(func() { _ = db.Close() })
	const numbers = "select n from numbers where n > ? order by n"
	read := func(tx *sql.Tx, after int, each func(n int)) {
		t.Helper()
		rows, err := tx.QueryContext(t.Context(), numbers, after)
		must(t, err)
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var n int
			must(t, rows.Scan(&n))
			each(n)
		}
		must(t, rows.Err())
	}
	for round := range 3 {
		mustExec(t, app, "drop table if exists numbers; create table numbers (n integer primary key); insert into numbers values (1), (2), (3)")
		tx, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		pairs := ""
		read(tx, 0, func(n int) { read(tx, n, func(m int) { pairs += fmt.Sprint(n, m, " ") }) })
		if pairs != "1 2 1 3 2 3 " {
			t.Errorf("round %d: the pairs are %q", round, pairs)
		}
		for i, fails := range []bool{false, true, false} {
			if _, err := tx.ExecContext(t.Context(), "insert into numbers values (?)", []int{10, 10, 11}[i]); (err != nil) != fails {
				t.Errorf("round %d: insert %d: %v", round, i, err)
			}
		}
		for i := range 300 { // more than are kept
			must(t, tx.QueryRowContext(t.Context(), fmt.Sprintf("select %d", i)).Scan(new(int)))
		}
		must(t, tx.Commit())
		if n := scan[int](t, app, "select count(*) from numbers"); n != 5 {
			t.Errorf("round %d: %d numbers", round, n)
		}
	}
}
