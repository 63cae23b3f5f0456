package portable_test

import (
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/internal/test/wire"
	"github.com/penstock/penstock/store/portable"
)

// plan of a statement that was run, as the server's auto_explain logs it.
type plan struct {
	Text string          `json:"Query Text"`
	Plan planNode        `json:"Plan"`
	JIT  json.RawMessage `json:"JIT"`
}

type planNode struct {
	Type    string     `json:"Node Type"`
	Table   string     `json:"Relation Name"`
	Index   string     `json:"Index Name"`
	Cond    string     `json:"Index Cond"`
	Rows    float64    `json:"Actual Rows"`
	Loops   float64    `json:"Actual Loops"`
	Removed float64    `json:"Rows Removed by Filter"`
	Inner   []planNode `json:"Plans"`
}

// walk calls do for a node and all below it.
func (n planNode) walk(do func(n planNode)) {
	do(n)
	for _, inner := range n.Inner {
		inner.walk(do)
	}
}

// observed is a store whose server logs the plan of each statement.
type observed struct {
	*fixture
	mu    sync.Mutex
	plans []plan
}

// observe opens a store on a database with settings.
func observe(t *testing.T, opts portable.Options, settings ...string) *observed {
	o := &observed{fixture: newFixture(t, opts)}
	if engine(t, o.url) != "PostgreSQL" {
		t.Skip("auto_explain is PostgreSQL's")
	}
	skipPooled(t, o.url, "which keeps sessions that began before these settings")
	u, err := url.Parse(o.url)
	o.must(err)
	for _, set := range append(settings, "session_preload_libraries = auto_explain", "auto_explain.log_min_duration = 0", "auto_explain.log_level = notice",
		"auto_explain.log_format = json", "auto_explain.log_analyze = on", "auto_explain.log_timing = off") {
		exec(t, o.url, "alter database "+pgx.Identifier{strings.TrimPrefix(u.Path, "/")}.Sanitize()+" set "+set)
	}
	p := wire.New()
	p.Heard = func(notice string) {
		_, text, found := strings.Cut(notice, "plan:\n")
		var told plan
		if !found {
			return
		}
		if err := json.Unmarshal([]byte(text), &told); err != nil {
			t.Errorf("%v: %s", err, text)
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.plans = append(o.plans, told)
	}
	o.store = openStore(t, p.Postgres(t, o.url), opts)
	return o
}

// during returns the plans of what call does.
func (o *observed) during(call func()) []plan {
	o.mu.Lock()
	o.plans = nil
	o.mu.Unlock()
	call()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.plans) == 0 {
		o.Fatal("the server told nothing")
	}
	return slices.Clone(o.plans)
}

// Statements over many ranges and buckets have costs that are only guessed. However high these are, nothing is compiled: that takes
// seconds, for each of them.
func TestNothingIsCompiled(t *testing.T) {
	t.Parallel()
	o := observe(t, portable.Options{}, "jit_above_cost = 0")
	var can bool
	conn, err := pgx.Connect(t.Context(), o.url)
	o.must(err)
	defer func() { _ = conn.Close(t.Context()) }()
	if o.must(conn.QueryRow(t.Context(), "select pg_jit_available()").Scan(&can)); !can {
		t.Skip("this server compiles nothing")
	}
	compiled := func(plans []plan) (texts []string) {
		for _, p := range plans {
			if p.JIT != nil {
				texts = append(texts, p.Text)
			}
		}
		return texts
	}
	if texts := compiled(o.during(func() { _, err := o.store.Status(t.Context()); o.must(err) })); len(texts) == 0 {
		t.Fatal("with these settings everything should be compiled, and the status was not")
	}
	src := o.subscribe()
	o.must(o.store.CreateQueue(t.Context(), "jobs", penstock.FIFO))
	jobs := o.store.Queue("jobs")
	_, err = jobs.Enqueue(t.Context(), make([]penstock.NewJob, 5)...)
	o.must(err)
	plans := o.during(func() {
		for verdict := range driver.Dead + 1 {
			o.publish("m")
			b, err := src.Fetch(t.Context(), plenty)
			o.must(err)
			o.must(storetest.Settle(t.Context(), src, driver.Settled{Batch: b, Verdicts: []driver.Verdict{{Outcome: verdict, Failures: []penstock.Failure{{Attempt: 1, Err: "no"}}}}}))
		}
		_, claimed, err := jobs.AckClaim(t.Context(), nil, driver.Claim{Jobs: 1, Lease: time.Hour})
		o.must(err)
		_, _, err = jobs.AckClaim(t.Context(), []int64{claimed[0].Lease}, driver.Claim{Jobs: 1, Lease: time.Hour})
		o.must(err)
		_, err = jobs.ReadyGroups(t.Context(), nil, "", 1)
		o.must(err)
	})
	// What switches it off cannot be without, and a lookup by a number and a plain INSERT are short whatever the tables are like.
	first := regexp.MustCompile(`set_config\('jit'|^select id, lifo from|^insert into \S+outbox_orders|^(insert into|delete from) \S+\.attempts `)
	for _, text := range compiled(plans) {
		if !first.MatchString(text) {
			t.Errorf("compiled: %s", text)
		}
	}
}

// Whatever the statistics say, a relay and a worker go along indexes, and read the rows that they need and little more. This also
// holds with statistics of tables that were empty when these were made.
func TestPlans(t *testing.T) {
	t.Parallel()
	for _, order := range []penstock.QueueOrder{penstock.FIFO, penstock.LIFO} {
		for _, analyzed := range []string{"never", "empty", "full"} {
			t.Run(string(order)+"/"+analyzed, func(t *testing.T) {
				t.Parallel()
				o := observe(t, portable.Options{Margin: time.Millisecond}) // messages that were settled within it are read again
				o.must(o.store.CreateQueue(t.Context(), "jobs", order))
				if order == penstock.LIFO { // settled messages are noted, not deleted
					o.must(o.store.SetRetention(t.Context(), "orders", admin.Retention{Age: time.Hour}))
				}
				src := o.subscribe()
				if analyzed == "empty" {
					exec(t, o.url, "vacuum analyze") // tables without a page are cheap to read, and claims are planned for them
					for range 8 {
						_, err := o.store.Queue("jobs").Claim(t.Context(), driver.Claim{Jobs: 1, Lease: time.Hour})
						o.must(err)
					}
				}
				const many = 20_000
				exec(t, o.url, "insert into penstock_portable.leases (queue_id, seq, group_key, priority, ts, key, attempt, until, worker) select -1, -g, '', 0, now(), '', 1, now(), '' from generate_series(1, $1) g", many)
				exec(t, o.url, "insert into penstock_portable.queue_jobs (payload) select '' from generate_series(1, $1)", many)
				exec(t, o.url, "insert into penstock_portable.outbox_orders (key, payload) select g % 100, '' from generate_series(1, $1) g", many)
				if analyzed == "full" {
					exec(t, o.url, "analyze")
				}
				defer pin(t, o.url)()
				for _, n := range []int{1, 10, 500} {
					o.turns(src, o.store.Queue("jobs"), n)
				}
			})
		}
	}
}

// A claim and an ack take less time than it takes to plan them, so they are planned once for a connection, whatever their values.
func TestClaimsAreNotPlannedAnew(t *testing.T) {
	t.Parallel()
	o := observe(t, portable.Options{})
	o.must(o.store.CreateQueue(t.Context(), "jobs", penstock.FIFO))
	jobs := o.store.Queue("jobs")
	_, err := jobs.Enqueue(t.Context(), make([]penstock.NewJob, 100)...)
	o.must(err)
	var plans []plan
	for range 5 {
		plans = o.during(func() {
			claimed, err := jobs.Claim(t.Context(), driver.Claim{Jobs: 10, Lease: time.Hour})
			o.must(err)
			for _, job := range claimed {
				_, err = jobs.Ack(t.Context(), job.Lease)
				o.must(err)
			}
		})
	}
	looked := 0
	for _, p := range plans {
		p.Plan.walk(func(n planNode) {
			if !strings.Contains(n.Cond, "lease = ANY") {
				return
			}
			if looked++; !strings.Contains(n.Cond, "$") {
				t.Errorf("planned for these values: %s: %s", n.Cond, p.Text)
			}
		})
	}
	if looked < 2 {
		t.Errorf("%d conditions on leases were found, in %d plans", looked, len(plans))
	}
}

// turns claims and acks jobs, and fetches and settles messages, n at a time, and fails if more than those are read.
func (o *observed) turns(src driver.Source, q driver.Queue, n int) {
	o.Helper()
	for range 5 {
		plans := o.during(func() {
			jobs, err := q.Claim(o.Context(), driver.Claim{Jobs: n, Lease: time.Hour})
			o.must(err)
			if len(jobs) != n {
				o.Fatalf("claimed %d jobs", len(jobs))
			}
			leases := make([]int64, n)
			for i := range jobs {
				leases[i] = jobs[i].Lease
			}
			_, err = q.Ack(o.Context(), leases...)
			o.must(err)
			b, err := src.Fetch(o.Context(), driver.Limit{Messages: n, Bytes: 1 << 20})
			o.must(err)
			if len(b.Messages) != n {
				o.Fatalf("fetched %d messages", len(b.Messages))
			}
			o.must(src.Settle(o.Context(), b.Number, driver.Settled{Batch: b}))
		})
		for _, p := range plans {
			p.Plan.walk(func(node planNode) {
				// A fetch reads a few messages of each bucket more than it returns; tables whose rows come and go are as large as a batch.
				rows, enough := (node.Rows+node.Removed)*node.Loops, float64(4*n+300)
				if node.Table == "" || node.Type == "ModifyTable" || rows <= enough {
					return
				}
				o.Fatalf("%s of %s reads %.0f rows for %d: %s", node.Type, node.Table, rows, n, p.Text)
			})
		}
	}
}

// A claim passes over the jobs that wait for others of their keys, however many. It finds the next of a key once that may run. Neither
// reads the jobs that wait.
func TestClaimPassesOverThoseThatWait(t *testing.T) {
	t.Parallel()
	for _, order := range []penstock.QueueOrder{penstock.FIFO, penstock.LIFO} {
		t.Run(string(order), func(t *testing.T) {
			t.Parallel()
			o := observe(t, portable.Options{LookAgain: time.Hour, Sweep: time.Hour})
			o.must(o.store.CreateQueue(t.Context(), "jobs", order))
			q := o.store.Queue("jobs")
			const keys, many, others = 3, 9000, 100
			const enough = 150 // of what it knows to be there it looks at each range
			exec(t, o.url, "insert into penstock_portable.queue_jobs (key, payload, created_at) select g % $2, '', clock_timestamp() - interval '1 minute' from generate_series(1, $1) g", many, keys)
			exec(t, o.url, "insert into penstock_portable.queue_jobs (priority, payload, created_at) select 1, '', clock_timestamp() - interval '1 minute' from generate_series(1, $1) g", others)
			claim := func() (job penstock.Job, read float64) {
				for _, p := range o.during(func() {
					jobs, err := q.Claim(t.Context(), driver.Claim{Jobs: 1, Lease: time.Hour})
					o.must(err)
					if len(jobs) != 1 {
						t.Fatalf("claimed %d jobs", len(jobs))
					}
					job = jobs[0]
				}) {
					p.Plan.walk(func(n planNode) {
						if n.Table == "queue_jobs" {
							read += (n.Rows + n.Removed) * n.Loops
						}
					})
				}
				return job, read
			}
			running := map[string]penstock.Job{}
			for len(running) < keys {
				job, _ := claim()
				running[job.Key] = job
			}
			if job, _ := claim(); job.Key != "" {
				t.Fatalf("a job of the key %s runs beside another", job.Key)
			}
			for range 5 {
				if _, read := claim(); read > enough {
					t.Errorf("a claim behind %d jobs that wait reads %.0f rows", many, read)
				}
			}
			for range 5 {
				for key, before := range running {
					_, err := q.Ack(t.Context(), before.Lease)
					o.must(err)
					job, read := claim()
					if job.Key != key || job.ID <= before.ID || job.ID > before.ID+keys || read > enough {
						t.Errorf("after job %d of the key %s came %d of %q, and %.0f rows were read", before.ID, key, job.ID, job.Key, read)
					}
					running[key] = job
				}
			}
		})
	}
}
