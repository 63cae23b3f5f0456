package postgres_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/postgres"
)

// jobsFixture is a database of the test's own with one queue, "jobs".
type jobsFixture struct {
	*fixture
	queue driver.Queue
}

func newJobsFixture(t testing.TB, order penstock.QueueOrder) *jobsFixture {
	f := holding(t, fmt.Sprint("jobs ", order), postgres.Options{}, postgres.Options{}, func(ctx context.Context, s *postgres.Store) error {
		return s.CreateQueue(ctx, "jobs", order)
	})
	f.Exec("select penstock.keep_samples('0')") // as newJobs
	return &jobsFixture{fixture: f, queue: f.store.Queue("jobs")}
}

func jobsFixtureOn(t testing.TB, url string, order penstock.QueueOrder) *jobsFixture {
	f := &jobsFixture{fixture: fixtureOn(t, url, postgres.Options{})}
	f.Must(f.store.CreateQueue(f.Ctx, "jobs", order))
	f.queue = f.store.Queue("jobs")
	return f
}

func (f *jobsFixture) enqueue(jobs ...penstock.NewJob) []int64 {
	f.Helper()
	made, err := f.queue.Enqueue(f.Ctx, jobs...)
	f.Must(err)
	if len(made) != len(jobs) {
		f.Fatalf("%d ids for %d jobs", len(made), len(jobs))
	}
	ids := make([]int64, len(made))
	for i := range made {
		ids[i] = made[i].ID
	}
	return ids
}

// payloads of jobs, in order.
func payloads(jobs []penstock.Job) []string {
	texts := make([]string, len(jobs))
	for i := range jobs {
		texts[i] = string(jobs[i].Payload)
	}
	return texts
}

func texts(payloads ...string) []penstock.NewJob {
	jobs := make([]penstock.NewJob, len(payloads))
	for i, p := range payloads {
		jobs[i].Payload = []byte(p)
	}
	return jobs
}

// quiet is for tests in which jobs fail by intent.
var quiet = slog.New(slog.DiscardHandler)
