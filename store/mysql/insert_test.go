package mysql_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/mysql"
)

// What a plain INSERT has as headers is refused, or it is read: none keeps others from being read.
func TestPlainInserts(t *testing.T) {
	t.Parallel()
	for _, engine := range engines(t) {
		url := testserver.MariaDBDatabase(t)
		schema, _ := databaseOf(t, url)
		s := openStore(t, url, mysql.Options{Schema: schema, Engine: engine})
		must(t, s.Migrate(t.Context()), s.CreateQueue(t.Context(), "jobs", penstock.FIFO))
		src, app := reader(t, s, "orders"), application(t, url)
		for _, table := range []string{"outbox_orders", "queue_jobs"} {
			insert := func(headers string) error {
				_, err := app.Exec("insert into "+table+" (payload, headers) values ('', ?)", headers)
				return err
			}
			for _, wrong := range []string{"", "x", "[]", "null", `"a"`} {
				if insert(wrong) == nil {
					t.Errorf("%s, %s: the headers %q were taken", engine, table, wrong)
				}
			}
			must(t, insert(`{"text": "a", "number": 1}`))
			dropCheck(t, app, table, "headers_") // as a table of an earlier version takes it
			must(t, insert("[1]"))
		}
		b := fetch(t, src, 10)
		jobs, err := s.Queue("jobs").Claim(t.Context(), driver.Claim{Jobs: 10, Lease: time.Hour})
		must(t, err)
		if len(b.Messages) != 2 || len(jobs) != 2 {
			t.Fatalf("%s: got %d messages and %d jobs, want 2 of each", engine, len(b.Messages), len(jobs))
		}
		for _, h := range []map[string]string{b.Messages[0].Headers, b.Messages[1].Headers, jobs[0].Headers, jobs[1].Headers} {
			if h != nil && (h["text"] != "a" || h["number"] != "1") {
				t.Errorf("%s: the headers are %v", engine, h)
			}
		}
	}
}
