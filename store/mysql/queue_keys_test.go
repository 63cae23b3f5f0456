package mysql_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/mysql"
)

// A claim that looks at many jobs of a key reads a few rows for each, not all of the key.
func TestJobsOfAKeyAreReadOnce(t *testing.T) {
	t.Parallel()
	const waiting = 200
	for _, engine := range engines(t) {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			url := testserver.MariaDBDatabase(t)
			app := application(t, url)
			schema, _ := databaseOf(t, url)
			s := openStore(t, url, mysql.Options{Schema: schema, Engine: engine})
			must(t, s.Migrate(t.Context()), s.CreateQueue(t.Context(), "jobs", penstock.FIFO))
			jobs := make([]penstock.NewJob, waiting)
			for i := range jobs {
				jobs[i].Key = "k"
			}
			q := s.Queue("jobs")
			_, err := q.Enqueue(t.Context(), jobs...)
			must(t, err)
			before := rowsRead(t, app, schema)
			got, err := q.Claim(t.Context(), driver.Claim{Jobs: waiting, Lease: time.Hour})
			if err != nil || len(got) != 1 {
				t.Fatalf("claimed %d jobs, %v", len(got), err)
			}
			if n := rowsRead(t, app, schema) - before; n < waiting || n > 20*waiting {
				t.Errorf("a claim beside %d jobs of a key reads %.0f rows", waiting, n)
			}
		})
	}
}
