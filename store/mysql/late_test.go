package mysql_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/mysql"
)

// Once the first job of a transaction that committed late was found, all others are claimed one after the other.
func TestManyJobsThatCommitLate(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"InnoDB", "RocksDB"} {
		for _, order := range []penstock.QueueOrder{penstock.FIFO, penstock.LIFO} {
			t.Run(fmt.Sprint(engine, " ", order), func(t *testing.T) {
				t.Parallel()
				has(t, engine)
				of := testserver.MariaDBDatabase(t)
				schema, _ := databaseOf(t, of)
				s := openStore(t, of, mysql.Options{Schema: schema, Engine: engine})
				must(t, s.Migrate(t.Context()), s.CreateQueue(t.Context(), "jobs", order))
				q := s.Queue("jobs")
				claim := func() int {
					jobs, err := q.Claim(t.Context(), driver.Claim{Jobs: 1, Lease: time.Hour})
					must(t, err)
					return len(jobs)
				}
				tx, err := application(t, of, engine).BeginTx(t.Context(), nil)
				must(t, err)
				const late = 100
				_, err = q.EnqueueTx(t.Context(), tx, make([]penstock.NewJob, late)...)
				must(t, err)
				for range 10 {
					_, err := q.Enqueue(t.Context(), penstock.NewJob{})
					must(t, err)
					if claim() != 1 {
						t.Fatal("an early job is not claimed")
					}
				}
				must(t, tx.Commit())
				for end := time.Now().Add(time.Minute); claim() == 0; { // until a claim looks again
					if time.Now().After(end) {
						t.Fatal("no late job is claimed")
					}
				}
				for i := range late - 1 {
					if claim() != 1 {
						t.Fatalf("claim %d after the first late job found none", i+1)
					}
				}
			})
		}
	}
}
