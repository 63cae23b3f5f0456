package portable_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/portable"
)

// gate is locks that a test holds, for which sessions wait: those of the name "late" when a claim looks, of the name "slow" when it commits.
type gate struct {
	*fixture
	conn   *pgx.Conn
	stores int // that are open; each locks another turn, so that none waits for another by chance
}

const gates = `create function public.slow() returns trigger language plpgsql as $$ begin
	if current_setting('application_name') = 'slow' then perform pg_catalog.pg_advisory_xact_lock_shared(1); end if;
	return null;
end $$;
create constraint trigger slow after insert on penstock_portable.leases deferrable initially deferred for each row execute function public.slow();
create function shim.clock_timestamp() returns timestamptz language plpgsql as $$ begin -- the claim has its snapshot then
	if current_setting('application_name') = 'late' and current_query() like 'with room%' then perform pg_catalog.pg_advisory_xact_lock_shared(2); end if;
	return pg_catalog.clock_timestamp();
end $$`

func newGate(t *testing.T) *gate {
	t.Helper()
	if e := engine(t, testserver.PostgresURL(t)); e != "PostgreSQL" {
		t.Skip(e, "has no locks that a test can hold")
	}
	g := &gate{fixture: newFixture(t, portable.Options{LookAgain: time.Nanosecond})}
	g.must(g.store.CreateQueue(t.Context(), "jobs", penstock.FIFO))
	exec(t, g.url, gates)
	conn, err := pgx.Connect(context.Background(), g.url)
	g.must(err)
	g.conn = conn
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return g
}

var locks = map[string]int{"slow": 1, "late": 2}

func (g *gate) shut(name string) {
	g.Helper()
	_, err := g.conn.Exec(g.Context(), "select pg_catalog.pg_advisory_lock($1)", locks[name])
	g.must(err)
}

func (g *gate) open(name string) {
	g.Helper()
	_, err := g.conn.Exec(g.Context(), "select pg_catalog.pg_advisory_unlock($1)", locks[name])
	g.must(err)
}

// waits counts the sessions of a name that wait for a lock.
func (g *gate) waits(name string) (n int) {
	g.Helper()
	g.must(g.conn.QueryRow(g.Context(), "select count(distinct l.pid) from pg_locks l join pg_stat_activity a using (pid) where not l.granted and a.application_name = $1 and a.datname = current_database()", name).Scan(&n))
	return n
}

// queue is that of another process, which knows already that claims run side by side.
func (g *gate) queue(name string) *portable.Queue {
	g.Helper()
	u, err := url.Parse(g.url)
	g.must(err)
	values := u.Query()
	values.Set("application_name", name)
	u.RawQuery = values.Encode()
	store := openStore(g, u.String(), portable.Options{LookAgain: time.Nanosecond})
	store.Turn(g.stores)
	g.stores++
	q := store.Queue("jobs")
	g.none(q)
	return q
}

func (g *gate) claim(q *portable.Queue) []penstock.Job {
	g.Helper()
	jobs, err := q.Claim(g.Context(), driver.Claim{Jobs: 1, Lease: time.Hour})
	g.must(err)
	return jobs
}

func (g *gate) none(q *portable.Queue) {
	g.Helper()
	if jobs := g.claim(q); len(jobs) > 0 {
		g.Fatalf("a claim got the job %d", jobs[0].ID)
	}
}

// starts a claim, which waits at its gate.
func (g *gate) starts(name string, q *portable.Queue) (claimed chan []penstock.Job) {
	g.Helper()
	claimed = make(chan []penstock.Job, 1)
	go func() {
		jobs, err := q.Claim(g.Context(), driver.Claim{Jobs: 1, Lease: time.Hour})
		if err != nil {
			g.Error(err)
		}
		claimed <- jobs
	}()
	for g.waits(name) == 0 {
	}
	return claimed
}

func (g *gate) enqueue(jobs ...penstock.NewJob) (ids []int64) {
	g.Helper()
	made, err := g.store.Queue("jobs").Enqueue(g.Context(), jobs...)
	g.must(err)
	for _, m := range made {
		ids = append(ids, m.ID)
	}
	return ids
}

// before enqueues a job of the key k that comes before the others and commits late.
func (g *gate) before() {
	g.Helper()
	exec(g, g.url, "insert into penstock_portable.queue_jobs (created_at, key, payload) values (pg_catalog.clock_timestamp() - interval '1 second', 'k', '')")
}

// A claim whose commit takes long holds up no claim of another process, which gets the next job.
func TestClaimsOfProcessesRunSideBySide(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	slow := g.queue("slow")
	var others []*portable.Queue
	for range 8 {
		others = append(others, g.queue("other"))
	}
	ids := g.enqueue(make([]penstock.NewJob, 10*len(others))...)
	g.shut("slow")
	first, got := g.starts("slow", slow), make(chan []penstock.Job)
	for _, q := range others {
		go func() {
			jobs, err := q.Claim(t.Context(), driver.Claim{Jobs: 1, Lease: time.Hour})
			if err != nil {
				t.Error(err)
			}
			got <- jobs
		}()
	}
	seen := map[int64]bool{}
	note := func(jobs []penstock.Job) {
		t.Helper()
		if len(jobs) != 1 || seen[jobs[0].ID] {
			t.Fatalf("a claim got %v, after %v", jobs, seen)
		}
		seen[jobs[0].ID] = true
	}
	note(<-got)
	select {
	case <-first:
		t.Fatal("the claim did not wait for its commit")
	default:
	}
	if seen[ids[0]] {
		t.Fatal("a job was claimed twice")
	}
	g.open("slow")
	note(<-first)
	if !seen[ids[0]] {
		t.Error("the claim that came first did not get the first job")
	}
	for range others[1:] {
		note(<-got)
	}
}

// A lease that two processes end at once was held by one of them.
func TestTwoEndALease(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	names := []string{"first", "second"}
	queues := []*portable.Queue{g.queue(names[0]), g.queue(names[1])}
	g.enqueue(penstock.NewJob{})
	lease := g.claim(queues[0])[0].Lease
	tx, err := g.conn.Begin(t.Context())
	g.must(err)
	_, err = tx.Exec(t.Context(), "select from penstock_portable.queue_jobs for update")
	g.must(err)
	held := make(chan int, len(queues))
	for i, q := range queues {
		go func() {
			leases, err := q.Ack(t.Context(), lease)
			if err != nil {
				t.Error(err)
			}
			held <- len(leases)
		}()
		for g.waits(names[i]) == 0 { // the first one for the job, the second one for the first
		}
	}
	g.must(tx.Rollback(t.Context()))
	if n := <-held + <-held; n != 1 {
		t.Errorf("the lease was held %d times", n)
	}
}

// Every call that excludes claims waits for those that are under way. A paused queue runs no further job, the limit of running jobs holds, and no lease is
// left of a cancelled job or of a dropped queue.
func TestWhatExcludesClaimsWaitsForThem(t *testing.T) {
	t.Parallel()
	yes, one := true, 1
	for name, call := range map[string]func(ctx context.Context, s *portable.Store, id int64) error{
		"pause": func(ctx context.Context, s *portable.Store, _ int64) error {
			return s.SetQueue(ctx, "jobs", penstock.QueueSettings{Paused: &yes})
		},
		"limit": func(ctx context.Context, s *portable.Store, _ int64) error {
			return s.SetQueue(ctx, "jobs", penstock.QueueSettings{MaxRunning: &one})
		},
		"cancel": func(ctx context.Context, s *portable.Store, id int64) error {
			_, err := s.CancelJobs(ctx, "jobs", id)
			return err
		},
		"drop": func(ctx context.Context, s *portable.Store, _ int64) error { return s.DropQueue(ctx, "jobs") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGate(t)
			slow, other := g.queue("slow"), g.queue("other")
			ids := g.enqueue(penstock.NewJob{}, penstock.NewJob{})
			g.shut("slow")
			first, done := g.starts("slow", slow), make(chan error, 1)
			go func() { done <- call(t.Context(), g.store, ids[0]) }()
			for g.waits("penstock") == 0 {
				select {
				case err := <-done:
					t.Fatalf("it did not wait for the claim: %v", err)
				default:
				}
			}
			g.open("slow")
			if jobs := <-first; len(jobs) != 1 || jobs[0].ID != ids[0] {
				t.Fatalf("the claim got %v", jobs)
			}
			g.must(<-done)
			switch name {
			case "pause", "limit":
				g.none(other)
			case "cancel":
				if jobs := g.claim(other); len(jobs) != 1 || jobs[0].ID != ids[1] {
					t.Errorf("the next claim got %v", jobs)
				}
			}
			leases := map[string]int{"pause": 1, "limit": 1, "cancel": 1, "drop": 0}[name]
			n := -1
			g.must(g.conn.QueryRow(t.Context(), "select count(*) from penstock_portable.leases").Scan(&n))
			if n != leases {
				t.Errorf("there are %d leases, want %d", n, leases)
			}
		})
	}
}

// Another claim is first while one looks: what it did with the job, or with a job of the same key, holds.
func TestAnotherClaimIsFirst(t *testing.T) {
	t.Parallel()
	retry := func(g *gate, q *portable.Queue, after time.Duration) {
		jobs := g.claim(q)
		if len(jobs) != 1 {
			g.Fatalf("the other claim got %d jobs", len(jobs))
		}
		_, err := q.Retry(g.Context(), jobs[0].Lease, after, "no")
		g.must(err)
	}
	for name, meanwhile := range map[string]func(g *gate, q *portable.Queue){
		"claimed":         func(g *gate, q *portable.Queue) { g.claim(q) },
		"retried":         func(g *gate, q *portable.Queue) { retry(g, q, time.Hour) },
		"retried at once": func(g *gate, q *portable.Queue) { retry(g, q, 0) },
		"released": func(g *gate, q *portable.Queue) {
			_, err := q.Release(g.Context(), time.Hour, g.claim(q)[0].Lease)
			g.must(err)
		},
		"done":        func(g *gate, q *portable.Queue) { _, err := q.Ack(g.Context(), g.claim(q)[0].Lease); g.must(err) },
		"key claimed": func(g *gate, q *portable.Queue) { g.before(); g.claim(q) },
		"key retried": func(g *gate, q *portable.Queue) { g.before(); retry(g, q, time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGate(t)
			late, other := g.queue("late"), g.queue("other")
			g.enqueue(penstock.NewJob{Key: "k"})
			g.shut("late")
			claimed := g.starts("late", late)
			meanwhile(g, other)
			g.open("late")
			if jobs := <-claimed; len(jobs) > 0 && (name != "retried at once" || jobs[0].Attempt != 2) {
				t.Errorf("the claim that came later got the job %d, in its attempt %d", jobs[0].ID, jobs[0].Attempt)
			}
		})
	}
}

// A claim takes a job of a key; another job of the key, which committed late, comes before it. The key has one running job all the same.
func TestTwoClaimsOfAKey(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	slow, other := g.queue("slow"), g.queue("other")
	g.enqueue(penstock.NewJob{Key: "k"})
	g.shut("slow")
	first := g.starts("slow", slow)
	g.before()
	second := make(chan []penstock.Job, 1)
	go func() { second <- g.claim(other) }()
	for g.waits("other") == 0 && len(second) == 0 {
	}
	g.open("slow")
	if one, two := <-first, <-second; len(one) != 1 || len(two) != 0 {
		t.Errorf("the claims got %d and %d jobs", len(one), len(two))
	}
}

// A claim that takes turns with all others, because it does not know yet that the queue has no limit any more, also takes turns with those of its group.
func TestLimitOfTheQueueIsLifted(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	slow, other := g.queue("slow"), g.queue("other")
	limit, none := 5, 0
	g.must(g.store.SetGroup(t.Context(), "jobs", penstock.GroupPolicy{MaxRunning: 1}))
	g.must(g.store.SetQueue(t.Context(), "jobs", penstock.QueueSettings{MaxRunning: &limit}))
	g.none(other)
	g.must(g.store.SetQueue(t.Context(), "jobs", penstock.QueueSettings{MaxRunning: &none}))
	g.none(slow)
	g.enqueue(make([]penstock.NewJob, 2)...)
	g.shut("slow")
	first, second := g.starts("slow", slow), make(chan []penstock.Job, 1)
	go func() { second <- g.claim(other) }()
	for g.waits("other") == 0 && len(second) == 0 {
	}
	g.open("slow")
	if one, two := <-first, <-second; len(one)+len(two) != 1 {
		t.Errorf("the claims got %d and %d jobs, and one may run", len(one), len(two))
	}
}

// A claim that locks a few more jobs than it needs, because others were first before, leaves those for which max_running has no
// room.
func TestLimitAfterOthersWereFirst(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	slow, other := g.queue("slow"), g.queue("other")
	g.enqueue(make([]penstock.NewJob, 50)...)
	g.shut("slow")
	first := g.starts("slow", slow)
	running := len(g.claim(other))
	g.open("slow")
	running += len(<-first)
	limit := running + 1
	g.must(g.store.SetQueue(t.Context(), "jobs", penstock.QueueSettings{MaxRunning: &limit}))
	jobs, err := other.Claim(t.Context(), driver.Claim{Jobs: 4, Lease: time.Hour})
	g.must(err)
	if len(jobs) != 1 {
		t.Errorf("%d jobs run, and %d more were claimed, of %d that may run", running, len(jobs), limit)
	}
}
