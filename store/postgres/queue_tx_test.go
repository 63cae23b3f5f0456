package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/work"
)

// everything is a job that has all there is.
func everything() penstock.NewJob {
	return penstock.NewJob{Payload: []byte{0, 0xff, 'x'}, Key: "k", Group: "g", Priority: -3, DedupKey: "d",
		NotBefore: time.Now().Add(-time.Hour), Headers: map[string]string{"traceparent": "00-1", "ü": "\n"}}
}

// One job is dequeued by a function of the queue's own, which is missing with the queue.
func TestDequeueOfAQueueThatIsNotThere(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	for _, n := range []int{1, 2} {
		if _, err := f.store.Queue("none").Dequeue(f.Ctx, asTx(f.Conn), n, ""); !errors.Is(err, penstock.ErrNoQueue) {
			t.Errorf("%d jobs: got %v, want ErrNoQueue", n, err)
		}
	}
}

func (f *jobsFixture) dequeue(n int, group string) []penstock.Job {
	f.Helper()
	jobs, err := f.store.Queue("jobs").Dequeue(f.Ctx, asTx(f.Conn), n, group)
	f.Must(err)
	return jobs
}

func TestEnqueueThroughDatabaseSQL(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	db, err := sql.Open("pgx", f.URL)
	f.Must(err)
	defer db.Close()
	queue := f.store.Queue("jobs")
	jobs := make([]penstock.NewJob, 2500)
	for i := range jobs {
		jobs[i] = penstock.NewJob{Payload: fmt.Append(nil, i), Headers: map[string]string{"n": fmt.Sprint(i)}}
	}
	tx, err := db.BeginTx(f.Ctx, nil)
	f.Must(err)
	ids, err := queue.EnqueueSQL(f.Ctx, tx, jobs...)
	f.Must(err)
	f.Must(tx.Commit())
	tx, err = db.BeginTx(f.Ctx, nil)
	f.Must(err)
	many := make([]penstock.NewJob, 1002) // more than one call
	for i := range many {
		many[i] = penstock.NewJob{DedupKey: fmt.Sprint(i % 1001)}
	}
	made, err := queue.EnqueueSQL(f.Ctx, tx, many...)
	f.Must(err)
	for i, m := range made {
		if again := i == 1001; m.Deduplicated != again || again && m.ID != made[0].ID {
			t.Errorf("job %d: got %+v", i, m)
		}
	}
	_, err = queue.EnqueueSQL(f.Ctx, tx, penstock.NewJob{Payload: []byte("never")})
	f.Must(err)
	f.Must(tx.Rollback())
	var field *penstock.FieldError
	if _, err := queue.EnqueueSQL(f.Ctx, aloneSQL{db}, penstock.NewJob{}, penstock.NewJob{Key: "\x00"}); !errors.As(err, &field) || field.Field != "key" || !strings.Contains(err.Error(), "job 2 of 2") {
		t.Errorf("got %v, want an error about the second job's key", err)
	}
	got := f.dequeue(5000, "")
	if len(got) != len(jobs) || len(ids) != len(jobs) {
		t.Fatalf("%d jobs and %d ids of %d", len(got), len(ids), len(jobs))
	}
	for i, job := range got {
		if job.ID != ids[i].ID || string(job.Payload) != fmt.Sprint(i) || job.Headers["n"] != fmt.Sprint(i) {
			t.Fatalf("job %d: got %+v, want id %d", i, job, ids[i].ID)
		}
	}
}

// Dequeue returns all that a job has. Connections that do not prepare statements get text, and the same.
func TestDequeueWithoutPreparedStatements(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	for _, mode := range []string{"cache_statement", "exec", "simple_protocol", "cache_describe"} {
		conn, err := pgx.Connect(f.Ctx, f.URL+"&default_query_exec_mode="+mode)
		f.Must(err)
		queue := f.store.Queue("jobs")
		want := everything()
		want.DedupKey = ""
		ids, err := queue.EnqueueTx(f.Ctx, asTx(conn), want, texts("plain")[0])
		f.Must(err)
		f.Must(f.queue.Maintain(f.Ctx))
		got, err := queue.Dequeue(f.Ctx, asTx(conn), 10, "g")
		f.Must(err)
		if len(got) != 1 || got[0].ID != ids[0].ID || got[0].Attempt != 1 || got[0].Key != want.Key || got[0].Group != want.Group || string(got[0].Payload) != string(want.Payload) || got[0].Priority != want.Priority ||
			fmt.Sprint(got[0].Headers) != fmt.Sprint(want.Headers) || time.Since(got[0].CreatedAt).Abs() > time.Hour {
			t.Errorf("%s: got %+v, want %+v", mode, got, want)
		}
		if got, err := queue.Dequeue(f.Ctx, asTx(conn), 10, ""); err != nil || fmt.Sprint(payloads(got)) != "[plain]" {
			t.Errorf("%s: got %q and %v, want the plain one", mode, payloads(got), err)
		}
		f.Must(conn.Close(f.Ctx))
	}
}

func TestDequeueRollsBack(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.LIFO)
	f.enqueue(texts("a", "b", "c")...)
	queue := f.store.Queue("jobs")
	for _, commit := range []bool{false, true} {
		tx, err := f.Conn.Begin(f.Ctx)
		f.Must(err)
		jobs, err := queue.Dequeue(f.Ctx, tx, 2, "")
		f.Must(err)
		if got := fmt.Sprint(payloads(jobs)); got != "[c b]" {
			t.Errorf("got %s, want the last two first", got)
		}
		if commit {
			f.Must(tx.Commit(f.Ctx))
		} else {
			f.Must(tx.Rollback(f.Ctx))
		}
	}
	if got := fmt.Sprint(payloads(f.dequeue(10, ""))); got != "[a]" {
		t.Errorf("got %s, want [a]", got)
	}
}

// A handler whose lease is lost while it runs leaves nothing behind, and does not
// take the job from who has it now.
func TestWorkTxWithALostLease(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	f.Exec("create table done (id bigint)")
	id := f.enqueue(penstock.NewJob{})[0]
	ctx, stop := context.WithCancel(f.Ctx)
	defer stop()
	ended := make(chan error, 1)
	handled := make(chan error, 1)
	record := func(next work.Handler) work.Handler {
		return func(ctx context.Context, job penstock.Job) error {
			err := next(ctx, job)
			handled <- err
			return err
		}
	}
	go func() {
		ended <- postgres.WorkTx(ctx, f.store, "jobs", func(ctx context.Context, tx pgx.Tx, job penstock.Job) error {
			if _, err := tx.Exec(ctx, "insert into done values ($1)", job.ID); err != nil {
				return err
			}
			n, err := f.store.CancelJobs(f.Ctx, "jobs", id) // as an operator would
			if err == nil && n != 1 {
				err = fmt.Errorf("%d jobs cancelled, want 1", n)
			}
			return err
		}, work.Options{Logger: quiet, Middleware: []func(work.Handler) work.Handler{record}})
	}()
	if err := <-handled; !errors.Is(err, penstock.ErrLeaseLost) {
		t.Errorf("got %v, want ErrLeaseLost", err)
	}
	stop()
	f.Must(<-ended)
	if n := f.Number("select count(*) from done"); n != 0 {
		t.Errorf("%d rows of a handler that had lost its lease, want none", n)
	}
}

// ends passes on how attempts ended.
type ends chan work.End

func (ends) Claimed(int)                                           {}
func (ends) Started(penstock.Job, time.Time)                       {}
func (e ends) Ended(_ penstock.Job, how work.End, _ time.Duration) { e <- how }

// A job whose transaction cannot begin is given back. Its handler was not called, so no attempt is spent.
func TestWorkTxThatCannotBegin(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	config, err := pgxpool.ParseConfig(f.URL)
	f.Must(err)
	var away atomic.Bool
	config.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
		if away.Load() {
			return errors.New("no connection is free")
		}
		return nil
	}
	pool, err := pgxpool.NewWithConfig(f.Ctx, config)
	f.Must(err)
	defer pool.Close()
	var open []*pgxpool.Conn // the worker's own calls need no new connection
	for range config.MaxConns {
		c, err := pool.Acquire(f.Ctx)
		f.Must(err)
		open = append(open, c)
	}
	for _, c := range open {
		c.Release()
	}
	f.enqueue(penstock.NewJob{MaxAttempts: 1})
	away.Store(true)
	ctx, stop := context.WithCancel(f.Ctx)
	defer stop()
	ended, seen := make(chan error, 1), make(ends, 100)
	var attempts []int
	go func() {
		ended <- postgres.WorkTx(ctx, postgres.New(pool, postgres.Options{}), "jobs", func(_ context.Context, _ pgx.Tx, job penstock.Job) error {
			attempts = append(attempts, job.Attempt)
			return nil
		}, work.Options{Logger: quiet, Observer: seen, Concurrency: 1})
	}()
	if how := <-seen; how != work.Snoozed {
		t.Errorf("a job whose transaction cannot begin is %s, want snoozed", how)
	}
	away.Store(false)
	for how := range seen {
		if how != work.Snoozed {
			if how != work.Settled {
				t.Errorf("then it is %s, want settled", how)
			}
			break
		}
	}
	stop()
	f.Must(<-ended)
	if !slices.Equal(attempts, []int{1}) {
		t.Errorf("the handler ran in the attempts %v, want 1", attempts)
	}
}

// WorkTx with a handler for each kind: what a handler wrote commits with its job. A job of another kind is given back, without an attempt.
func TestWorkTxByKind(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	f.Exec("create table done (kind text)")
	f.enqueue(penstock.NewJob{Kind: "a"}, penstock.NewJob{Kind: "b"}, penstock.NewJob{Kind: "strange"})
	var mux work.TxMux[pgx.Tx]
	for _, kind := range []string{"a", "b"} {
		mux.Handle(kind, func(ctx context.Context, tx pgx.Tx, job penstock.Job) error {
			if _, err := tx.Exec(ctx, "insert into done values ($1)", job.Kind()); err != nil {
				return err
			}
			return map[string]error{"b": penstock.Permanent(errors.New("no"))}[kind]
		})
	}
	ctx, stop := context.WithCancel(f.Ctx)
	defer stop()
	ends := &endsByKind{of: map[string]work.End{}, all: stop, want: 3}
	f.Must(postgres.WorkTx(ctx, f.store, "jobs", mux.Handler(), work.Options{Logger: quiet, Observer: ends}))
	if want := (map[string]work.End{"a": work.Settled, "b": work.Dead, "strange": work.Released}); !maps.Equal(ends.of, want) {
		t.Errorf("the jobs ended with %v, want %v", ends.of, want)
	}
	if all, a := f.Number("select count(*) from done"), f.Number("select count(*) from done where kind = 'a'"); all != 1 || a != 1 {
		t.Errorf("the handlers wrote %d rows, %d of them by the first, want 1 and 1", all, a)
	}
	if n := f.Number("select 10 * (ready + running + delayed) + dead from penstock.queue_status('jobs')"); n != 11 {
		t.Errorf("10 times the jobs that are left, and dead jobs: %d, want 11", n)
	}
}

// endsByKind observes how the jobs of each kind end, and stops once all have ended.
type endsByKind struct {
	mu   sync.Mutex
	of   map[string]work.End
	all  func()
	want int
}

func (e *endsByKind) Claimed(int)                     {}
func (e *endsByKind) Started(penstock.Job, time.Time) {}

func (e *endsByKind) Ended(job penstock.Job, how work.End, _ time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.of[job.Kind()] = how; len(e.of) == e.want {
		e.all()
	}
}
