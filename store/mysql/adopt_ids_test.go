package mysql_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/adopted"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/mysql"
)

// An id may be as long as docs/reference/engines.md says, whatever it is made of; what may be longer is refused before anything is read.
func TestAdoptLongIDs(t *testing.T) {
	t.Parallel()
	for _, engine := range engines(t) {
		for column, id := range map[string]any{
			"varbinary(350)":                         bytes.Repeat([]byte{0, 0xff}, 175),
			"binary(16)":                             bytes.Repeat([]byte{0xff}, 16),
			"varbinary(351)":                         nil,
			"varbinary(400)":                         nil,
			"varchar(255) character set utf8mb4":     strings.Repeat("😀", 255),
			"varchar(700) character set utf8mb4":     strings.Repeat("é", 700),
			"varchar(700) character set latin1":      strings.Repeat("é", 700),
			"varchar(701) character set latin1":      nil,
			"varchar(40) collate utf8mb4_unicode_ci": "İß'\\\"{}?`; -- 😀",
			"varchar(40) character set ucs2":         "Žluť",
		} {
			t.Run(engine+"/"+column, func(t *testing.T) {
				t.Parallel()
				of := testserver.MariaDBDatabase(t)
				schema, _ := databaseOf(t, of)
				app := application(t, of)
				must(t, openStore(t, of, mysql.Options{Engine: engine, Schema: schema}).Migrate(t.Context()))
				_, err := app.Exec("create table letters (id " + column + " not null, n int not null, at datetime(6) not null default (utc_timestamp(6)), body text, key at (at), primary key (id)) engine = " + engine)
				if refused := (*mysqldriver.MySQLError)(nil); errors.As(err, &refused) && refused.Number == 1071 {
					return // the engine's keys are shorter
				}
				must(t, err)
				u, err := url.Parse(of)
				must(t, err)
				table, err := mysql.Adopt(u.String(), mysql.Options{Engine: engine, Schema: schema}, "sub", mysql.AdoptConfig{Table: "letters", Delivered: adopted.Delete, MessageID: "{n}", Key: "k",
					Columns: adopted.Columns{ID: "id", Order: []string{"at"}, Payload: "body"}})
				must(t, err)
				defer table.Close()
				src, err := table.Subscribe(t.Context(), driver.Subscribe{Holder: "test"})
				if id == nil {
					if err == nil || !strings.Contains(err.Error(), "columns.id") {
						t.Errorf("an id that may be too long: %v", err)
					}
					return
				}
				must(t, err)
				if _, err := app.Exec("insert into letters (id, n, body) values (?, 1, 'first')", id); err != nil {
					t.Fatal(err)
				}
				b := fetch(t, src, 10)
				must(t, storetest.Settle(t.Context(), src, driver.Settled{Batch: b, Verdicts: []driver.Verdict{{Outcome: driver.Parked, Failures: []penstock.Failure{{Attempt: 1, At: time.Now(), Err: "refused"}}}}}))
				b = fetch(t, src, 10)
				if fmt.Sprint(len(b.Messages)) != "1" || b.Messages[0].Attempt != 2 {
					t.Fatalf("fetched %+v, want the second attempt", b.Messages)
				}
				must(t, src.Settle(t.Context(), b.Number, driver.Settled{Batch: b}))
				var left int
				must(t, app.QueryRow("select count(*) from letters").Scan(&left), src.Close(t.Context()))
				if left != 0 {
					t.Errorf("%d rows are left", left)
				}
			})
		}
	}
}
