package adopt_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/store/postgres/adopt"
)

// unreadableRows are the ids of rows whose content cannot be shown, and the columns at fault.
var unreadableRows = map[int]string{7: "payload", 8: "key", 150: "headers", 151: "code", 299: "key", 300: "payload"}

// scanned has rows found without an index.
func scanned(c adopt.Config) adopt.Config {
	c.Columns.Order = []string{"topic"}
	return c
}

// A row with bytes that mean nothing in UTF-8 is a dead letter that says so; all others arrive, in order.
func TestUnreadableRows(t *testing.T) {
	t.Parallel()
	for _, encoding := range []string{"WIN1252", "SQL_ASCII"} {
		for name, c := range map[string]adopt.Config{"read": keyedConfig(), "scanned": scanned(keyedConfig()), "claimed": workers(2), "claimed and scanned": scanned(workers(2))} {
			t.Run(encoding+" "+name, func(t *testing.T) {
				t.Parallel()
				f := inEncoding(t, encoding)
				f.Exec(keyedTable)
				f.Exec("alter table shop add code text")
				f.Exec("insert into shop (key, payload) select n % 3, n from generate_series(1, 300) n")
				bad := "convert_from('\\x6b81', '" + encoding + "')"
				for id, column := range unreadableRows {
					value := bad
					if column == "headers" {
						value = "jsonb_build_object('h', " + bad + ")"
					}
					f.Exec(fmt.Sprintf("update shop set %s = %s where id = %d", column, value, id))
				}
				c.Headers = map[string]string{"code": "{code}"}
				table := f.open(c)
				var sink collector
				f.relay(table, &sink, nil)

				want := map[int]string{}
				for id, column := range unreadableRows {
					if column != "payload" || encoding != "SQL_ASCII" { // where payloads are bytes
						want[id] = column
					}
				}
				f.Eventually("all others arrive", func() bool { return sink.count() >= 300-len(want) })
				checkOrder(t, sink.all(), c.Ordered())
				f.Eventually("all others are settled", func() bool {
					return int(f.Number("select count(*) from shop where processed_at is null")) == len(want)
				})
				found := f.found(table, len(want))
				for _, l := range found {
					var id int
					_, err := fmt.Sscanf(l.Message.ID, "shop-%d", &id)
					f.Must(err)
					if why := l.Err(); !strings.Contains(why, fmt.Sprintf("row \"%d\"", id)) || !strings.Contains(why, "column "+want[id]) && !strings.Contains(why, fmt.Sprintf("column %q", want[id])) {
						t.Errorf("row %d, where %s is unreadable, died of: %s", id, want[id], why)
					}
				}

				_, err := table.RetryDeadLetters(f.Ctx, admin.DeadLetterQuery{})
				f.Must(err)
				f.Eventually("they are refused again", func() bool {
					return !slices.ContainsFunc(f.found(table, len(want)), func(l admin.DeadLetter) bool { return len(l.Failures) != 2 || l.Message.Attempt != 2 })
				})
				f.Exec("update shop set key = 'fixed', payload = 'fixed', headers = null, code = null where processed_at is null")
				_, err = table.RetryDeadLetters(f.Ctx, admin.DeadLetterQuery{})
				f.Must(err)
				f.Eventually("the fixed rows arrive", func() bool { return sink.count() == 300 })
			})
		}
	}
}

// found waits for n dead letters.
func (f *fixture) found(table *adopt.Table, n int) (found []admin.DeadLetter) {
	f.Helper()
	f.Eventually(fmt.Sprintf("there are %d dead letters", n), func() (ok bool) {
		var err error
		found, err = table.DeadLetters(f.Ctx, admin.DeadLetterQuery{})
		f.Must(err)
		return len(found) == n
	})
	return found
}

// checkOrder fails if a message came twice, or before one of its key that stands before it.
func checkOrder(t *testing.T, got []penstock.Message, ordered bool) {
	t.Helper()
	last, seen := map[string]int{}, map[int]bool{}
	for _, m := range got {
		var id int
		if _, err := fmt.Sscanf(m.ID, "shop-%d", &id); err != nil {
			t.Fatal(err)
		}
		if seen[id] || ordered && id < last[m.Key] {
			t.Errorf("row %d of key %s came twice, or after %d", id, m.Key, last[m.Key])
		}
		seen[id], last[m.Key] = true, id
	}
}

// So is a row with a value whose text the server cannot make, and one whose storage is damaged.
func TestUnreadableValues(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ damage, column, says string }{
		"cast": {"update shop set price = row(-1) where id = 7", "price", "no such price"},
		"storage": {`create extension pg_surgery;
			update shop set payload = (select string_agg(md5(n::text), '') from generate_series(1, 1000) n) where id = 7;
			do $$ begin execute format('select heap_force_kill(%1$L, array_agg(ctid)) from %1$s', (select reltoastrelid::regclass from pg_class where relname = 'shop')); end $$`,
			"payload", "missing chunk"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			if strings.Contains(c.damage, "pg_surgery") && f.Number("select count(*) from pg_available_extensions where name = 'pg_surgery'") == 0 {
				t.Skip("this server has no pg_surgery to damage a table with")
			}
			f.Exec(keyedTable)
			f.Exec(`create type money_ as (cents int);
				create function money_text(money_) returns text language plpgsql as $$
					begin if $1.cents < 0 then raise exception 'no such price'; end if; return $1.cents::text; end $$;
				create cast (money_ as text) with function money_text(money_);
				alter table shop add price money_ not null default row(1)`)
			f.Exec("insert into shop (key, payload) select 'k', n from generate_series(1, 20) n")
			f.Exec(c.damage)
			config := keyedConfig()
			config.Topic = "price.{price}"
			table := f.open(config)
			var sink collector
			f.relay(table, &sink, nil)
			f.Eventually("all others arrive", func() bool { return sink.count() == 19 })
			checkOrder(t, sink.all(), true)
			l := f.found(table, 1)[0]
			if why := l.Err(); l.Message.ID != "shop-7" || l.Message.Key != "k" || !strings.Contains(why, fmt.Sprintf(`row "7": column %q`, c.column)) || !strings.Contains(why, c.says) {
				t.Errorf("%s died of: %s", l.Message.ID, why)
			}
		})
	}
}

// A reason that keeps rows from being found is not the fault of one row, and stops the relay.
func TestUnreadableIDs(t *testing.T) {
	t.Parallel()
	f := inEncoding(t, "WIN1252")
	f.Exec("create table words (word text primary key, payload text)")
	f.Exec("insert into words values ('a', 'x'), (convert_from('\\x6b81', 'WIN1252'), 'y')")
	src := f.subscribe(f.open(adopt.Config{Table: "words", Columns: adopt.Columns{ID: "word", Order: []string{"word"}, Payload: "payload"}, Delivered: adopt.Delete}))
	if _, err := src.Fetch(f.Ctx, plenty); err == nil || !strings.Contains(err.Error(), "0x81") {
		t.Errorf("got %v, want an error with the byte", err)
	}
}
