package systemtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/store/sqlite"
)

// Workers that are killed under load lose no job: claimed jobs run again when their leases end.
func TestKilledWorkerPostgres(t *testing.T) {
	t.Parallel()
	database := postgrestest.Database(t)
	store, err := postgres.Open(t.Context(), database, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	killWorkers(t, database, store)
}

func TestKilledWorkerSQLite(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "jobs.db")
	store, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	killWorkers(t, "sqlite:"+path, store)
}

const jobsQueue = "jobs"

func killWorkers(t *testing.T, database string, store interface {
	driver.Store
	driver.QueueStore
}) {
	const keys = 25
	kills, jobs := testseed.Steps(5), testseed.Steps(240)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	if err := errors.Join(store.Migrate(t.Context()), store.CreateQueue(t.Context(), jobsQueue, penstock.FIFO)); err != nil {
		t.Fatal(err)
	}
	batch := make([]penstock.NewJob, jobs)
	for i := range batch {
		if i%2 == 0 {
			batch[i].Key = fmt.Sprint("key ", i%keys)
		}
	}
	ids, err := store.DriverQueue(jobsQueue).Enqueue(t.Context(), batch...)
	if err != nil {
		t.Fatal(err)
	}

	log := &runLog{t: t, path: filepath.Join(t.TempDir(), "log")}
	worker := func() *process {
		return start(t, "work", jobsQueue, "--database-url", database, "--lease", shortLease.String(), "--concurrency", "4",
			"--exec", `echo "$PENSTOCK_JOB_ID" >> '`+log.path+`'`)
	}
	for range kills {
		w := worker()
		enough := len(log.lines()) + 1 + random.IntN(jobs/kills/2)
		eventually(t, "some jobs are done", func() bool { return len(log.lines()) >= enough })
		time.Sleep(time.Duration(random.IntN(30_000)) * time.Microsecond) // chaos, not a condition
		w.kill()
	}
	orphaned, killed := running(t, store), time.Now()
	worker()
	eventually(t, "nothing is left in the queue", func() bool {
		s := jobsStatus(t, store)
		return s.Ready+s.Running+s.Delayed+s.Waiting == 0
	})
	t.Logf("%d jobs were left running by the last killed worker; all were done %s later, with leases of %s", orphaned, time.Since(killed).Round(time.Millisecond), shortLease)

	runs := map[string]int{}
	for _, id := range log.lines() {
		runs[id]++
	}
	again := 0
	for _, made := range ids {
		id := made.ID
		switch n := runs[fmt.Sprint(id)]; {
		case n == 0:
			t.Errorf("job %d never ran", id)
		case n > 1:
			again++
		}
	}
	t.Logf("%d of %d jobs ran more than once", again, jobs)
	if s := jobsStatus(t, store); s.DeadLetters != 0 {
		t.Errorf("%d dead letters, want none", s.DeadLetters)
	}
}

// runLog is the file in which the jobs' commands write their ids.
type runLog struct {
	t    *testing.T
	path string
}

func (l *runLog) lines() []string {
	content, err := os.ReadFile(l.path)
	if err != nil && !os.IsNotExist(err) {
		l.t.Fatal(err)
	}
	return strings.Fields(string(content))
}

func running(t *testing.T, store driver.QueueStore) int64 { return jobsStatus(t, store).Running }

func jobsStatus(t *testing.T, store driver.QueueStore) admin.QueueStatus {
	t.Helper()
	all, err := store.QueueStatus(context.WithoutCancel(t.Context()))
	if err != nil || len(all) != 1 {
		t.Fatalf("status: %d queues: %v", len(all), err)
	}
	return all[0]
}
