package adopt_test

import (
	"testing"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/postgres/adopt"
)

// TestTextsAreTheServers: rows are read in binary, and a row that was out of band is known by the text
// that the server makes of its key. So is the place where the next reader begins.
func TestTextsAreTheServers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ typ, values string }{
		"uuid":      {"uuid", "'00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff', '0123abcd-4567-89ef-0000-000000000001'"},
		"smallint":  {"smallint", "-32768, 0, 32767"},
		"integer":   {"integer", "-2147483648, -1, 2147483647"},
		"bit":       {"bit(3)", "B'000', B'101'"},
		"bigint":    {"bigint", "-9223372036854775808, 0, 9223372036854775807"},
		"text":      {"text", `'', ' x ', 'ä€', E'"\\\\\t\n\x01\x7f', '{a,b}', 'null'`},
		"varchar":   {"varchar(9)", "'a ', 'b'"},
		"char":      {"char(4)", "'a', 'bcde'"},
		"numeric":   {"numeric", "1.50, -0.001, 'NaN'"},
		"boolean":   {"boolean", "true, false"},
		"date":      {"date", "'2026-11-22', '0044-03-15 BC', 'infinity'"},
		"timestamp": {"timestamp", "'2026-11-22 09:08:07.123456', '2026-01-02 03:04:05.1', '2000-01-01', '1999-12-31 23:59:59.999999', '0001-01-01', '0044-03-15 12:00 BC', '0999-01-01', '12345-06-07', '4713-01-01 BC', '294276-12-31 23:59:59.999999', 'infinity', '-infinity'"},
		"timestamptz": {"timestamptz", "'2026-11-22 09:08:07.100001+02', '2026-11-22 09:08:07-11', '2000-01-01+00', '1969-12-31 23:59:59.5+00', '0001-06-01+00', '0044-03-15 12:00+00 BC'," +
			" '12345-06-07+00', '294276-12-31 23:59:59.999999+00', 'infinity', '-infinity'"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.Exec("set timezone = 'Asia/Kolkata'")
			f.Exec("create table pairs (at " + c.typ + " not null, id text not null, data text, primary key (at, id))")
			f.Exec("insert into pairs select v, 'x' || row_number() over (), 'd' from unnest(array[" + c.values + "]::" + c.typ + "[]) v")
			f.Exec("insert into pairs select at, E'\\\\\"\\t\\x01,{}' || id, 'd' from pairs")
			n := int(f.Number("select count(*) from pairs"))
			table := f.open(adopt.Config{Table: "pairs", Columns: adopt.Columns{ID: "id", Order: []string{"at"}, Payload: "data"}, Delivered: adopt.Delete, Batch: 1})
			src := f.subscribe(table)
			f.Eventually("all rows are dead letters", func() bool { // those whose id cannot be a message's become such by themselves
				b, err := src.Fetch(f.Ctx, plenty) // from the place of the row before
				f.Must(err)
				if len(b.Messages) > 0 {
					f.settle(src, b, driver.Verdict{Outcome: driver.Dead, Failures: failed(1)})
				}
				return int(f.Number("select count(*) from penstock._adopt_row")) == n
			})
			f.Exec("set timezone = 'UTC'")
			if same := f.Number("select count(*) from pairs p join penstock._adopt_row r on r.row_id = json_build_array(p.at::text, p.id)::text"); int(same) != n {
				t.Errorf("%d of %d rows have the id that the server would give them", same, n)
			}
			if discarded, err := table.DiscardDeadLetters(f.Ctx, admin.DeadLetterQuery{}); err != nil || discarded != n {
				t.Errorf("%d of %d: %v", discarded, n, err)
			}
			if left := f.Number("select count(*) from pairs"); left != 0 {
				t.Errorf("%d rows are not found by their ids", left)
			}
		})
	}
}
