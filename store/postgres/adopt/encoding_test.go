package adopt_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/store/postgres/adopt"
)

// inEncoding is a database of another encoding, migrated.
func inEncoding(t *testing.T, encoding string) *fixture {
	server := postgrestest.On(t, testserver.PostgresURL(t))
	made := testserver.Database(t, server.URL)
	u, err := url.Parse(made)
	server.Must(err)
	name := pgx.Identifier{strings.TrimPrefix(u.Path, "/")}.Sanitize()
	server.Exec("drop database " + name)
	server.Exec("create database " + name + " template template0 encoding '" + encoding + "' lc_collate 'C' lc_ctype 'C'")
	store, err := postgres.Open(t.Context(), made, postgres.Options{})
	server.Must(err)
	t.Cleanup(func() { _ = store.Close() })
	server.Must(store.Migrate(t.Context()))
	return &fixture{postgrestest.On(t, made)}
}

// A table in a database of another encoding, which has taken in any bytes, is relayed: keys stay
// apart, and what a broker says in an error stops nothing.
func TestEncodings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		encoding, keys string
		config         adopt.Config
	}{
		{"LATIN1", `chr(235), chr(233)`, keyedConfig()},
		{"LATIN1", `chr(235), chr(233)`, workers(2)},
		{"SQL_ASCII", `convert_from('\xeb', 'SQL_ASCII'), convert_from('\xe9', 'SQL_ASCII')`, keyedConfig()},
	} {
		t.Run(fmt.Sprintf("%s by %d", c.encoding, c.config.Workers), func(t *testing.T) {
			t.Parallel()
			f := inEncoding(t, c.encoding)
			f.Exec(keyedTable)
			f.Exec("insert into shop (key, payload) select k, 'x' from unnest(array[" + c.keys + "]) k")
			table := f.open(c.config)
			src := f.subscribe(table)
			if c.encoding == "SQL_ASCII" { // their meaning is unknown: dead letters that say so
				f.Eventually("both rows are dead letters", func() bool {
					_, err := src.Fetch(f.Ctx, plenty)
					f.Must(err)
					return f.Number("select count(*) from penstock._adopt_row where died_at is not null and failures::text like '%UTF-8%'") == 2
				})
				return
			}
			b := f.fetch(src)
			if len(b.Messages) != 2 || b.Messages[0].Key == b.Messages[1].Key {
				t.Fatalf("got %+v, want two of two keys", b.Messages)
			}
			no := driver.Verdict{Outcome: driver.Parked, RetryIn: time.Hour, Failures: []penstock.Failure{{Attempt: 1, At: time.Now(), Err: "no: 東京"}}}
			f.settle(src, b, no, no)
			parked, err := table.ParkedKeys(f.Ctx, 10)
			f.Must(err)
			if len(parked) != 2 || parked[0].Key == parked[1].Key || !strings.HasPrefix(parked[0].Err, "no: ") {
				t.Errorf("parked are %+v, want both keys", parked)
			}
		})
	}
}
