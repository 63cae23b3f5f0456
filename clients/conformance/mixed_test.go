package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/work"
)

const queue = "jobs"

func (g *goal) queue() remoteQueue {
	g.Helper()
	must(g, g.store.CreateQueue(g.ctx, queue, penstock.FIFO))
	return g.store.DriverQueue(queue).(remoteQueue)
}

// native is the queue as Go sees it.
func (g *goal) native() driver.Queue { return g.store.Store.Queue(queue) }

func (g *goal) enqueue(payloads ...string) {
	g.Helper()
	for _, p := range payloads {
		_, err := g.store.Queue(queue).Enqueue(g.ctx, penstock.NewJob{Payload: []byte(p)})
		must(g, err)
	}
}

func (g *goal) eventually(what string, cond func() bool) {
	g.Helper()
	for pause := time.Millisecond; !cond(); pause = min(2*pause, 50*time.Millisecond) {
		must(g, g.native().Maintain(g.ctx))
		select {
		case <-g.ctx.Done():
			g.Fatalf("it never came to be that %s", what)
		case <-time.After(pause):
		}
	}
}

func (g *goal) status() admin.QueueStatus {
	g.Helper()
	all, err := g.store.QueueStatus(g.ctx)
	must(g, err)
	if len(all) != 1 {
		g.Fatalf("there are %d queues, want 1", len(all))
	}
	return all[0]
}

// working runs a worker, Go's if the queue is Go's, until stop is called.
func (g *goal) working(q driver.Queue, h work.Handler, o work.Options) (stop func() error) {
	ctx, cancel := context.WithCancel(g.ctx)
	ended := make(chan error, 1)
	go func() {
		if q, ok := q.(remoteQueue); ok {
			ended <- q.work(ctx, func(ctx context.Context, _ string, j penstock.Job) error { return h(ctx, j) }, o, nil)
			return
		}
		o.Logger = slog.New(slog.DiscardHandler)
		ended <- work.Run(ctx, q, h, o)
	}()
	stop = sync.OnceValue(func() error { cancel(); return <-ended })
	g.Cleanup(func() { _ = stop() })
	return stop
}

// seen has the jobs with which handlers were called.
type seen struct {
	mu   sync.Mutex
	jobs []penstock.Job
}

func (s *seen) add(j penstock.Job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs = append(s.jobs, j)
}

func (s *seen) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.jobs)
}

func (s *seen) attempts() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, j := range s.jobs {
		all = append(all, fmt.Sprintf("%s %d", j.Payload, j.Attempt))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// buildGo is for a run that tests only another language.
var buildGo = sync.OnceValue(func() error { return exec.Command("../go/conformance.sh", "--build").Run() })

// A program of Go is killed while it has jobs, and the language runs them; and the reverse.
func TestRescue(t *testing.T) {
	eachAlone(t, func(g *goal, l *language) {
		rescue := func(victim *program, from remoteQueue, by driver.Queue) {
			g.enqueue("a", "b", "c")
			var begun, done seen
			g.working(from, func(ctx context.Context, j penstock.Job) error {
				begun.add(j)
				<-ctx.Done()
				return ctx.Err()
			}, work.Options{Concurrency: 3, Lease: time.Second})
			g.eventually("three jobs have begun", func() bool { return begun.count() >= 3 }) // a job whose lease ended on a busy machine, again
			victim.kill()
			stop := g.working(by, func(_ context.Context, j penstock.Job) error { done.add(j); return nil }, work.Options{})
			g.eventually("the jobs are done", func() bool { s := g.status(); return s.Ready+s.Running+s.Delayed+s.Waiting == 0 })
			must(g, stop())
			begun.mu.Lock()
			defer begun.mu.Unlock()
			last := map[string]int{}
			for _, j := range begun.jobs {
				last[string(j.Payload)] = j.Attempt
			}
			for _, j := range done.jobs {
				if before := last[string(j.Payload)]; before == 0 || j.Attempt <= before {
					g.Errorf("after the worker was killed at its attempt %d %q ran with attempt %d", before, j.Payload, j.Attempt)
				}
			}
			if done.count() != 3 {
				g.Errorf("after the worker was killed its jobs ran as %q, want each once", done.attempts())
			}
		}
		q := g.queue()
		must(g, buildGo())
		killed := start(g, "go")
		rescue(killed, remoteQueue{c: killed.open(g, g.url), name: queue}, q)
		rescue(q.c.program, q, g.native())
	})
}

// All languages enqueue jobs of the same keys, and all work. Only one job of a key runs at a time. Each producer's jobs run in the
// order of ids. A job with a higher id can be committed, and run, before another producer's commit. One language makes a barrier that all
// these jobs hold, another one enqueues a job that waits for it, and the last one seals it. That job runs once, when all others have ended.
func TestKeysAndBarriersAcrossLanguages(t *testing.T) {
	t.Parallel()
	testserver.PostgresURL(t)
	url := postgrestest.Database(t)
	store := openStore(t, url)
	must(t, store.CreateQueue(t.Context(), queue, penstock.FIFO))
	var all []*goal
	for _, l := range languages {
		t.Run(l.Name, func(t2 *testing.T) { // builds it, or explains why it cannot
			all = append(all, &goal{TB: t, url: url, store: &remoteStore{Store: store, c: l.shared(t2).open(t, url)}})
			l.count(t)
		})
	}
	if len(all) < 2 {
		t.Skip("there are not two languages")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute) // not before all are built
	t.Cleanup(cancel)
	for _, g := range all {
		g.ctx = ctx
	}
	const each, keys = 24, 5
	lines := func(i int) remoteQueue { return all[i%len(all)].store.DriverQueue(queue).(remoteQueue) }
	b, err := lines(0).Barrier(ctx)
	must(t, err)
	_, err = lines(1).Enqueue(ctx, penstock.NewJob{WaitsFor: []int64{b}, Payload: []byte("waits")})
	must(t, err)
	var mu sync.Mutex
	running, last, done := map[string]string{}, map[string]int64{}, map[int64]string{}
	var stops []func() error
	for _, g := range all {
		language := g.store.c.hello.Language
		stops = append(stops, g.working(g.store.Queue(queue), func(_ context.Context, j penstock.Job) error {
			mu.Lock()
			if string(j.Payload) == "waits" && len(done) < each*len(all) {
				t.Errorf("%s runs the job that waits after %d others", language, len(done))
			}
			from := j.Key + " of " + string(j.Payload)
			if other := running[j.Key]; other != "" || j.ID < last[from] || done[j.ID] != "" {
				t.Errorf("%s runs job %d of the key %s together with %q, after job %d; it was done by %q", language, j.ID, from, other, last[from], done[j.ID])
			}
			running[j.Key] = language
			mu.Unlock()
			time.Sleep(time.Millisecond) // so they meet
			mu.Lock()
			defer mu.Unlock()
			delete(running, j.Key)
			last[from], done[j.ID] = j.ID, language
			return nil
		}, work.Options{Concurrency: 3, Batch: 4}))
	}
	var producers sync.WaitGroup
	for _, g := range all {
		producers.Go(func() {
			for i := range each {
				if _, err := g.store.Queue(queue).Enqueue(g.ctx, penstock.NewJob{Key: fmt.Sprint("k", i%keys), Holds: b, Payload: []byte(g.store.c.hello.Language)}); err != nil {
					t.Errorf("%s: %v", g.store.c.hello.Language, err)
					return
				}
			}
		})
	}
	producers.Wait()
	must(t, lines(2).Seal(ctx, b))
	g := all[0]
	g.eventually("all jobs are done", func() bool { s := g.status(); return t.Failed() || s.Ready+s.Running+s.Delayed+s.Waiting == 0 })
	for i, stop := range stops {
		if err := stop(); err != nil {
			t.Errorf("%s: %v", all[i].store.c.hello.Language, err)
		}
	}
	if len(done) != each*len(all)+1 {
		t.Errorf("%d jobs were done, want %d", len(done), each*len(all)+1)
	}
	by := map[string]int{}
	for _, language := range done {
		by[language]++
	}
	t.Logf("done by %v", by)
}

// The inbox in each kind of transaction: an id is new once, and again after a rollback.
func TestInbox(t *testing.T) {
	each(t, func(g *goal, l *language) {
		must(g, g.store.CreateInbox(g.ctx, "billing", time.Hour))
		for _, kind := range g.store.c.hello.Kinds {
			ask := func(commit, want bool) {
				g.Helper()
				t, err := g.store.c.beginAs(g.ctx, kind)
				must(g, err)
				got, err := t.first(g.ctx, "billing", "message of "+kind)
				must(g, err)
				if got != want {
					g.Errorf("%s: the inbox said %v, want %v", kind, got, want)
				}
				if commit {
					must(g, t.Commit(g.ctx))
				} else {
					must(g, t.Rollback(g.ctx))
				}
			}
			ask(false, true)
			ask(true, true)
			ask(true, false)
			t, err := g.store.c.beginAs(g.ctx, kind)
			must(g, err)
			if _, err := t.first(g.ctx, "nobody", "x"); !errors.Is(err, penstock.ErrNoInbox) {
				g.Errorf("%s: an inbox that is missing: got %v, want %v", kind, err, penstock.ErrNoInbox)
			}
			must(g, t.Rollback(g.ctx))
		}
	})
}

// A worker of Go leaves the jobs whose kinds it has no handler for to the language, which enqueued them: no attempt is spent.
func TestKindsOfJobsAcrossLanguages(t *testing.T) {
	each(t, func(g *goal, l *language) {
		q := g.queue()
		_, err := q.Enqueue(g.ctx, penstock.NewJob{Kind: "ours", Payload: []byte("a")}, penstock.NewJob{Kind: l.Name, Payload: []byte("b")}, penstock.NewJob{Payload: []byte("c")})
		must(g, err)
		var byGo, byThem seen
		var mux work.Mux
		mux.Handle("ours", func(_ context.Context, j penstock.Job) error { byGo.add(j); return nil })
		stop := g.working(g.native(), mux.Handler(), work.Options{})
		g.eventually("the others come back later", func() bool { s := g.status(); return s.Ready+s.Running+s.Waiting == 0 && s.Delayed == 2 })
		must(g, stop())
		execute(g, g.url, "update penstock._scheduled set due = now()")
		stop = g.working(q, func(_ context.Context, j penstock.Job) error { byThem.add(j); return nil }, work.Options{})
		g.eventually("they are done", func() bool { s := g.status(); return s.Ready+s.Running+s.Delayed+s.Waiting == 0 })
		must(g, stop())
		if ours, theirs := byGo.attempts(), byThem.attempts(); ours != "a 1" || theirs != "b 1, c 1" {
			g.Errorf("Go ran %q and %s ran %q, want a 1, and b 1, c 1", ours, l.Name, theirs)
		}
		for _, j := range byThem.jobs {
			if want := map[string]string{"b": l.Name, "c": ""}[string(j.Payload)]; j.Kind() != want {
				g.Errorf("the job %s has the kind %q, want %q", j.Payload, j.Kind(), want)
			}
		}
	})
}

// A worker of the language and one of Go have handlers for different kinds of one queue. A job that meets the wrong worker comes to the other one at
// once, and not after the longest rest.
func TestWorkersOfDifferentKinds(t *testing.T) {
	each(t, func(g *goal, l *language) {
		q := g.queue()
		begun := make(chan string, 1)
		handle := func(_ context.Context, j penstock.Job) error { begun <- j.Kind(); return nil }
		var mux work.Mux
		mux.Handle("go", handle)
		stop := g.working(g.native(), mux.Handler(), work.Options{})
		ctx, cancel := context.WithCancel(g.ctx)
		ended := make(chan error, 1)
		go func() {
			ended <- q.work(ctx, func(ctx context.Context, _ string, j penstock.Job) error { return handle(ctx, j) }, work.Options{}, args{"kinds": []string{"theirs"}})
		}()
		within, over := context.WithTimeout(g.ctx, time.Minute) // half of the jobs would rest for 10 s, some of them several times
		defer over()
		for i := range 40 {
			kind := []string{"go", "theirs"}[i%2]
			_, err := g.native().Enqueue(g.ctx, penstock.NewJob{Kind: kind})
			must(g, err)
			select {
			case got := <-begun:
				if got != kind {
					g.Errorf("a job of kind %s began as one of %s", kind, got)
				}
			case <-within.Done():
				g.Fatalf("%d of 40 jobs came to the worker of their kind in a minute", i)
			}
		}
		must(g, stop())
		cancel()
		must(g, <-ended)
	})
}

// A worker reports which kinds of jobs it has met and has no handler for, up to ten, the first by name.
func TestKindsWithoutAHandler(t *testing.T) {
	each(t, func(g *goal, l *language) {
		q := g.queue()
		for _, tx := range []bool{false, true} {
			jobs := []penstock.NewJob{{Kind: "ours"}, {}}
			for kind := 'l'; kind >= 'a'; kind-- {
				jobs = append(jobs, penstock.NewJob{Kind: string(kind)})
			}
			_, err := g.native().Enqueue(g.ctx, jobs...)
			must(g, err)
			ctx, cancel := context.WithCancel(g.ctx)
			ended, name := make(chan error, 1), fmt.Sprintf("in a transaction: %t", tx)
			go func() {
				ended <- q.work(ctx, func(_ context.Context, _ string, j penstock.Job) error {
					if j.Kind() != "ours" {
						g.Errorf("a job of kind %q has met the handler of another kind", j.Kind())
					}
					return nil
				}, work.Options{Worker: name}, args{"kinds": []string{"ours"}, "work_tx": tx})
			}()
			g.eventually("the others come back later", func() bool { s := g.status(); return s.Ready+s.Running == 0 && s.Delayed == 13 })
			cancel()
			must(g, <-ended)
			workers, err := g.store.Workers(g.ctx, queue, 10)
			must(g, err)
			i := slices.IndexFunc(workers, func(w admin.Worker) bool { return w.Name == name })
			if want := strings.Split(" a b c d e f g h i", " "); i < 0 || !slices.Equal(workers[i].Unhandled, want) {
				g.Errorf("the workers are %+v, want %q with %q unhandled", workers, name, want)
			}
			execute(g, g.url, "delete from penstock._scheduled; delete from penstock.jobs")
		}
	})
}

// The caller controls its transaction: each kind commits and rolls back the writes of all calls together.
func TestKinds(t *testing.T) {
	each(t, func(g *goal, l *language) {
		q := g.queue()
		must(g, g.store.CreateOutbox(g.ctx, "orders"))
		execute(g, g.url, "create table counter (name text primary key, n bigint not null)")
		for _, kind := range q.c.hello.Kinds {
			for _, commit := range []bool{false, true} {
				t, err := q.c.beginAs(g.ctx, kind)
				must(g, err)
				_, err = t.Count(g.ctx, kind)
				must(g, err)
				must(g, t.Publish(g.ctx, "orders", penstock.Message{Topic: kind}))
				must(g, t.Publish(g.ctx, "orders", penstock.Message{Topic: kind, Key: "k"}, penstock.Message{Topic: kind, Headers: map[string]string{"h": "v"}}))
				_, err = t.Enqueue(g.ctx, queue, penstock.NewJob{Headers: map[string]string{"kind": kind}})
				must(g, err)
				_, err = t.Enqueue(g.ctx, queue, penstock.NewJob{Key: "k", Headers: map[string]string{"kind": kind}}, penstock.NewJob{Priority: 3})
				must(g, err)
				if commit {
					must(g, t.Commit(g.ctx))
				} else {
					must(g, t.Rollback(g.ctx))
				}
			}
			t, err := q.c.beginAs(g.ctx, kind)
			must(g, err)
			rows, err := t.execute(g.ctx, fmt.Sprintf("select (select n from counter where name = '%[1]s'), (select count(*) from penstock.orders where topic = '%[1]s') as messages, (select count(*) from penstock.jobs where headers->>'kind' = '%[1]s' or priority = 3) as jobs", kind))
			must(g, err)
			must(g, t.Rollback(g.ctx))
			if got := fmt.Sprint(*rows[0][0], " ", *rows[0][1], " ", *rows[0][2]); got != "1 3 3" {
				g.Errorf("%s: a rollback and a commit left %s, want 1 row, 3 messages, 3 jobs", kind, got)
			}
			execute(g, g.url, "delete from penstock.jobs")
		}
	})
}

// A database without the schema, or with one that does not fit, is refused with a hint at the next step.
func TestVersions(t *testing.T) {
	each(t, func(g *goal, l *language) {
		refused := func(what string) {
			g.Helper()
			err := g.store.c.call(g.ctx, "open", args{"url": g.url}, nil)
			if err == nil || !strings.Contains(err.Error(), "penstock migrate") {
				g.Errorf("%s: got error %v, want one that says to run penstock migrate", what, err)
			}
		}
		if l.Name != "go" { // which knows its own version
			execute(g, g.url, "create or replace function penstock.check_client(written_for bigint) returns bigint language plpgsql as $$ begin raise exception 'the schema is version 1' using errcode = 'PS002', hint = 'run: penstock migrate'; end $$")
			refused("a schema that is too old")
			execute(g, g.url, "drop function penstock.check_client(bigint)")
			refused("a schema from before the function")
		}
		execute(g, g.url, "drop schema penstock cascade")
		refused("no schema")
	})
}
