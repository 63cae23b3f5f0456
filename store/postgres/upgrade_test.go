package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/store/postgres"
)

// The database of each version that was kept, and one whose functions another version has made, becomes as a new one. Nothing in
// it is lost, and all continues from there. fillForUpgrade makes its contents.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	seed := testseed.Seed()
	t.Logf("PENSTOCK_SEED=%d", seed)
	dumps, err := filepath.Glob("testdata/schema_[0-9]*.sql.gz")
	if err != nil {
		t.Fatal(err)
	}
	for _, dump := range append(dumps, "") {
		name := filepath.Base(dump)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var f *fixture
			if dump != "" {
				db := restored(t, name)
				f = &fixture{DB: db, store: openStore(t, db.URL, postgres.Options{})}
			} else {
				f = newFixture(t, postgres.Options{Segments: 2})
				fillForUpgrade(f)
				f.breakFunctions()
			}
			f.Must(f.store.Migrate(f.Ctx))
			f.wantCatalogueOfANewOne()
			wantDifferences(t, f.differences())
			f.wantMessagesAfterUpgrade()
			f.wantBarriersAfterUpgrade()
			f.wantStackAfterUpgrade()
			f.wantInboxAfterUpgrade()
			f.modelAfterUpgrade(seed)
		})
	}
}

// Who may do what stays where functions are made anew.
func TestUpgradeKeepsRights(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.Exec("select penstock.create_queue('q')")
	producer, asProducer := f.role()
	worker, asWorker := f.role()
	operator, asOperator := f.role()
	f.Exec("select penstock.grant_enqueuer('q', $1), penstock.grant_worker('q', $2), penstock.grant_operator('q', $3)", producer, worker, operator)
	f.Exec("grant execute on function penstock.schedule_bytes, penstock.create_queue to " + operator)
	f.breakFunctions()
	f.Must(f.store.Migrate(f.Ctx))
	f.wantMay(asProducer, []string{"insert into penstock.q (group_key, priority, payload) values ('g', 1, 'x')", "select penstock.enqueue('q', 'x', group_key => 'g')",
		"select penstock.enqueue_many('q', '{x}', group_keys => '{g}')"}, []string{"select penstock.claim('q')", "select penstock.ready_groups('q')", "select penstock.create_queue('r')"})
	f.wantMay(asWorker, []string{"select penstock.claim('q', group_key => 'g')", "select penstock.dequeue('q', 2)", "select penstock.ready_groups('q', group_keys => '{g}')",
		"select penstock.maintain_queue('q')"}, []string{"select penstock.enqueue('q', 'x')", "select penstock.queue_groups('q')"})
	f.wantMay(asOperator, []string{"select group_key from penstock.queue_groups('q')"}, []string{"select penstock.dequeue('q', 2)", "select penstock.schedule('q', 's', '@daily', 'x')"})
	f.wantText("2", `select count(*)::text from pg_proc p where p.pronamespace = 'penstock'::regnamespace
		and has_function_privilege($1, p.oid, 'execute') and p.proname in ('schedule_bytes', 'create_queue')`, operator)
}

func (f *fixture) wantCatalogueOfANewOne() {
	f.Helper()
	fresh := postgrestest.New(f)
	f.Must(openStore(f, fresh.URL, postgres.Options{Segments: 2}).CreateOutbox(f.Ctx, "orders"))
	fresh.Exec("select penstock.create_queue('q', 'fifo', 4, 65536), penstock.create_queue('stack', 'lifo', 4, 65536), penstock.create_queue('lines', 'fifo', 4, 65536), penstock.create_inbox('billing', '10 years')")
	wantSameCatalogue(f.DB, fresh)
}

// wantMessagesAfterUpgrade has all messages delivered: what was not settled, was parked or dead, or waited behind
// that, and what a replay has asked for.
func (f *fixture) wantMessagesAfterUpgrade() {
	f.Helper()
	query := admin.DeadLetterQuery{Outbox: "orders", Subscription: "sub", Limit: 100}
	letters, err := f.store.DeadLetters(f.Ctx, query)
	f.Must(err)
	if len(letters) != 6 || letters[0].Message.Headers == nil {
		f.Errorf("%d of 6 dead letters are left: %+v", len(letters), letters)
	}
	_, err = f.store.RetryDeadLetters(f.Ctx, query)
	f.Must(err)
	missing := map[string]bool{}
	for what, n := range map[string]int{"settled": 10, "dead": 5, "held": 1, "behind": 2, "parked": 5, "given-up": 1, "unsettled": 20} {
		for i := range n {
			missing[fmt.Sprint(what, " ", i+1)] = true
		}
	}
	f.insert(f.Conn, "k", "after the upgrade")
	missing["after the upgrade"] = true
	src := f.subscribe()
	defer func() { f.Must(src.Close(context.Background())) }()
	defer func() {
		if len(missing) > 0 {
			f.Errorf("these messages never came: %v", missing)
		}
	}()
	var order []string
	f.Eventually("every message came", func() bool {
		for _, payload := range f.drain(src) {
			if missing[payload] && (strings.HasPrefix(payload, "unsettled") || strings.HasPrefix(payload, "after")) {
				order = append(order, payload)
			}
			delete(missing, payload)
		}
		return len(missing) == 0 || f.Failed()
	})
	for i, payload := range order[:min(20, len(order))] {
		if want := fmt.Sprint("unsettled ", i+1); payload != want {
			f.Errorf("%q came in place of %q", payload, want)
		}
	}
}

// jobsOf are the payloads of a queue's jobs, wherever they are, with how often each is there.
func (f *fixture) jobsOf(queue string) map[string]int {
	f.Helper()
	rows, err := f.Conn.Query(f.Ctx, `select convert_from(payload, 'UTF8') from penstock.`+queue+`
		union all select convert_from(x.payload, 'UTF8') from penstock._queue q, lateral (select queue, payload from penstock._lease
			union all select queue, payload from penstock._scheduled union all select queue, payload from penstock._dead_job) x
		 where q.name = $1 and x.queue = q.id`, queue)
	f.Must(err)
	payloads, err := pgx.CollectRows(rows, pgx.RowTo[string])
	f.Must(err)
	all := map[string]int{}
	for _, p := range payloads {
		if strings.HasPrefix(p, "filling") {
			p = "filling"
		}
		all[p]++
	}
	return all
}

func wantedJobs() map[string]int {
	want := map[string]int{"once": 1}
	for i := range 30 {
		want[fmt.Sprint("left ", i+1)] = 1
	}
	for i := range 3 {
		want[fmt.Sprint("delayed ", i+1)] = 1
	}
	return want
}

// wantStackAfterUpgrade has all jobs of the LIFO queue run, each once.
func (f *fixture) wantStackAfterUpgrade() {
	f.Helper()
	want := wantedJobs()
	want["filling"] = 60
	for i := range 5 {
		want[fmt.Sprint("top ", i+1)] = 1
	}
	if got := f.jobsOf("stack"); fmt.Sprint(got) != fmt.Sprint(want) {
		f.Fatalf("the jobs are %v, want %v", got, want)
	}
	schedules, err := f.store.Schedules(f.Ctx, "stack")
	f.Must(err)
	if len(schedules) != 2 || !schedules[0].Paused || !schedules[0].SkipOverlap || schedules[1].Name != "yearly" || schedules[1].Paused {
		f.Errorf("the schedules are %+v", schedules)
	}
	once := f.Number("select coalesce(id, seq) from penstock.stack where payload = 'once'")
	if again := f.Number("select penstock.enqueue('stack', 'again', dedup_key => 'once')"); again != once {
		f.Errorf("a job with the same dedup_key is %d, not %d", again, once)
	}
	got := map[string]int{}
	f.Exec("update penstock._scheduled set due = now() from penstock._queue q where q.id = queue and q.name = 'stack' and due < 'infinity'")
	_, err = f.store.RetryDeadJobs(f.Ctx, admin.DeadJobQuery{Queue: "stack", Limit: 100})
	f.Must(err)
	var top []string
	f.Eventually("every job ran", func() bool {
		f.Exec("update penstock._lease set lease_until = now() from penstock._queue q where q.id = queue and q.name = 'stack'")
		f.Exec(`select setval('penstock."_stack.maintained"', 0)`)
		f.Exec("select penstock.maintain_queue('stack')")
		for _, group := range []string{"", "g"} {
			rows, err := f.Conn.Query(f.Ctx, "select convert_from(payload, 'UTF8') from penstock.dequeue('stack', 10, $1)", group)
			f.Must(err)
			payloads, err := pgx.CollectRows(rows, pgx.RowTo[string])
			f.Must(err)
			for _, p := range payloads {
				if strings.HasPrefix(p, "top") {
					top = append(top, p)
				}
				if strings.HasPrefix(p, "filling") {
					p = "filling"
				}
				got[p]++
			}
		}
		return fmt.Sprint(got) == fmt.Sprint(want) || f.Failed()
	})
	if fmt.Sprint(top) != "[top 5 top 4 top 3 top 2 top 1]" {
		f.Errorf("of the LIFO queue came %q", top)
	}
}

// wantBarriersAfterUpgrade has the last end open a barrier, for a job and a message.
func (f *fixture) wantBarriersAfterUpgrade() {
	f.Helper()
	for _, payload := range []string{"held", "waits"} {
		f.wantText("0", "select count(*)::text from penstock.orders where payload = 'shipped' and $1 = 'held'", payload)
		f.wantText(payload, "select string_agg(convert_from(payload, 'UTF8'), ' ') from penstock.dequeue('lines', 10)")
	}
	f.wantText("1", "select count(*)::text from penstock.orders where payload = 'shipped'")
}

func (f *fixture) wantInboxAfterUpgrade() {
	f.Helper()
	if n := f.Number("select count(*) from generate_series(1, 6) i where penstock.inbox('billing', 'seen ' || i)"); n != 1 {
		f.Errorf("%d of 6 ids are new, want 1: 5 were seen", n)
	}
	held, err := f.store.HeldMessages(f.Ctx, admin.HeldQuery{Consumer: "billing", Limit: 10})
	f.Must(err)
	if len(held) != 1 || held[0].ID != "m3" {
		f.Errorf("held is %+v, want m3", held)
	}
	f.wantText("{second,third}", `select array(select convert_from(payload, 'UTF8') from penstock.inbox_in_order('billing', 'k', 'm2', 'm1', null, 'second'))::text`)
}

// modelAfterUpgrade begins the random walk of TestJobModel with the jobs of the FIFO queue.
func (f *fixture) modelAfterUpgrade(seed uint64) {
	f.Helper()
	if got, want := f.jobsOf("q"), wantedJobs(); fmt.Sprint(got) != fmt.Sprint(want) {
		f.Fatalf("the jobs are %v, want %v", got, want)
	}
	m := &jobModel{fixture: f, r: rand.New(rand.NewPCG(seed, 0)), jobs: map[int64]*modelJob{}}
	rows, err := f.Conn.Query(f.Ctx, `select coalesce(id, seq), coalesce(key, ''), group_key, attempt, 0::bigint, $1::int from penstock.q
		union all select t.id, coalesce(t.key, ''), t.group_key, t.attempt, 0, case when t.due < 'infinity' then $2 else $1 end from penstock._scheduled t where t.queue = `+modelQueue+`
		union all select t.id, coalesce(t.key, ''), t.group_key, t.attempt, t.lease, $3 from penstock._lease t where t.queue = `+modelQueue+`
		union all select t.id, coalesce(t.key, ''), t.group_key, t.attempt, 0, $4 from penstock._dead_job t where t.queue = `+modelQueue,
		ready, scheduled, running, dead)
	f.Must(err)
	j := modelJob{}
	_, err = pgx.ForEachRow(rows, []any{&j.id, &j.key, &j.group, &j.attempt, &j.lease, &j.state}, func() error {
		job := j
		m.jobs[j.id] = &job
		return nil
	})
	f.Must(err)
	for range 5 {
		m.free = append(m.free, m.Connect())
	}
	for range modelSteps() {
		m.step()
	}
	m.drain()
}
