package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/ingest"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/store/postgres"
	writing "github.com/penstock/penstock/writer"
)

// ways are all programs and calls that enqueue jobs, on one database.
type ways struct {
	*suite.Env
	ctx   context.Context
	store *postgres.Store
	pool  *pgxpool.Pool
	desk  *desk
}

// way is a way into a queue. An option that it cannot carry is refused with a text, or a page of the documentation says so.
type way struct {
	name    string
	in      func(queue string, j penstock.NewJob) error
	refuses map[string]string // options, with the text of the error
	lacks   map[string]string // options, with a page and its sentence
}

// Pages that show which options a way lacks.
const (
	pageOfQueues   = "../../docs/reference/queues.md"
	pageOfRelaying = "../../docs/guides/relaying.md"
)

// Every option of a job reaches the queue through every way into it, or is refused, or the documentation says that the way has no place for it.
func TestOptionsThroughEveryWay(t *testing.T) {
	t.Parallel()
	url := postgrestest.Database(t)
	w := &ways{Env: suite.NewEnv(t), ctx: t.Context(), desk: urlDesk(t, url)}
	var err error
	w.store, err = postgres.Open(w.ctx, url, postgres.Options{})
	noError(t, err)
	t.Cleanup(func() { w.store.Close() })
	w.pool, err = pgxpool.New(w.ctx, url)
	noError(t, err)
	t.Cleanup(w.pool.Close)
	for i, way := range w.all() {
		t.Run(way.name, func(t *testing.T) {
			queue := fmt.Sprint("ways ", i)
			noError(t, w.store.CreateQueue(w.ctx, queue, penstock.FIFO))
			for _, o := range options() {
				t.Run(o.name, func(t *testing.T) {
					if page, says, lacks := strings.Cut(way.lacks[o.name], ": "); lacks {
						text, err := os.ReadFile(page)
						noError(t, err)
						if !strings.Contains(string(text), says) {
							t.Errorf("%s does not say: %s", page, says)
						}
						return
					}
					j := o.job
					j.Payload = []byte("a")
					if want := way.refuses[o.name]; want != "" {
						switch o.name {
						case "holds":
							j.Holds = 1
						case "waits for":
							j.WaitsFor = []int64{1}
						}
						if err := way.in(queue, j); err == nil || !strings.Contains(err.Error(), want) {
							t.Errorf("the error is %v, want %q", err, want)
						}
						return
					}
					o.check(&tried{w, t, queue, way}, j)
				})
			}
		})
	}
}

// all are the ways into a queue of PostgreSQL. The conformance suite has those of the clients.
func (w *ways) all() []way {
	sql := func(statement string, args ...any) error {
		_, err := w.pool.Exec(w.ctx, statement, args...)
		return err
	}
	headers := func(j penstock.NewJob) *string {
		if len(j.Headers) == 0 {
			return nil
		}
		text, _ := json.Marshal(j.Headers)
		return new(string(text))
	}
	named := func(j penstock.NewJob) []any {
		var notBefore *time.Time
		if !j.NotBefore.IsZero() {
			notBefore = &j.NotBefore
		}
		var deadline *time.Time
		if !j.Deadline.IsZero() {
			deadline = &j.Deadline
		}
		return []any{string(j.Payload), j.Key, j.Group, j.Priority, notBefore, j.DedupKey, headers(j), j.Kind, j.UniqueKey, string(j.OnConflict), j.DebounceMax, j.MaxAttempts, j.Timeout, deadline, j.Holds, j.WaitsFor, string(j.OnDead)}
	}
	const same = `on_conflict => nullif($11, ''), debounce_max => nullif($12::interval, '0'), max_attempts => nullif($13, 0), timeout => nullif($14::interval, '0'),
		deadline => $15, holds => nullif($16::bigint, 0), waits_for => $17::bigint[], on_dead => nullif($18, ''))`
	noPlace := "A message has no group, priority, delay or deduplication key"
	ofMessages := map[string]string{}
	for _, name := range []string{"group", "priority", "not before", "dedup key"} {
		ofMessages[name] = pageOfRelaying + ": " + noPlace
	}
	function := pageOfQueues + ": Delays, deduplication, unique keys and barriers to wait for need the function"
	return []way{
		{name: "Enqueue", in: func(queue string, j penstock.NewJob) error {
			_, err := w.store.Queue(queue).Enqueue(w.ctx, j)
			return err
		}},
		{name: "Enqueue of several", in: func(queue string, j penstock.NewJob) error {
			_, err := w.store.Queue(queue).Enqueue(w.ctx, j, penstock.NewJob{Group: "another"})
			return err
		}},
		{name: "EnqueueTx", in: func(queue string, j penstock.NewJob) error {
			return pgx.BeginFunc(w.ctx, w.pool, func(tx pgx.Tx) error { _, err := w.store.Queue(queue).EnqueueTx(w.ctx, tx, j); return err })
		}},
		{name: "buffer", in: func(queue string, j penstock.NewJob) error {
			return pgx.BeginFunc(w.ctx, postgres.NewBuffered(w.pool, penstock.BufferOptions{}), func(tx pgx.Tx) error {
				_, err := tx.(*postgres.BufferedTx).Enqueue(w.ctx, w.store.Queue(queue), j)
				return err
			})
		}},
		{name: "writer", in: func(queue string, j penstock.NewJob) error {
			_, err := writing.New(w.store, writing.Options{}).Enqueue(w.ctx, queue, j)
			return err
		}},
		{name: "enqueue", in: func(queue string, j penstock.NewJob) error {
			return sql(`select penstock.enqueue($1, $2::text, key => nullif($3, ''), group_key => $4, priority => $5, not_before => $6, dedup_key => nullif($7, ''),
				headers => $8::jsonb, kind => $9, unique_key => nullif($10, ''), `+same, append([]any{queue}, named(j)...)...)
		}},
		{name: "enqueue_many", in: func(queue string, j penstock.NewJob) error {
			return sql(`select penstock.enqueue_many($1, array[$2], keys => array[nullif($3, '')], group_keys => array[$4], priorities => array[$5::int], not_befores => array[$6::timestamptz],
				dedup_keys => array[nullif($7, '')], headers => array[$8::jsonb], kinds => array[$9], unique_keys => array[nullif($10, '')], `+same, append([]any{queue}, named(j)...)...)
		}},
		{name: "INSERT", in: func(queue string, j penstock.NewJob) error {
			key := j.Key
			if key == "" {
				key = j.UniqueKey
			}
			j.Headers = j.AllHeaders()
			return sql("insert into penstock."+pgx.Identifier{queue}.Sanitize()+" (key, group_key, priority, payload, headers) values (nullif($1, ''), $2, $3, $4, $5::jsonb)", key, j.Group, j.Priority, j.Payload, headers(j))
		}, refuses: map[string]string{"waits for": "an INSERT cannot write a job that waits for barriers"},
			lacks: map[string]string{"not before": function, "dedup key": function, "ignore": function, "replace": function, "debounce": function}},
		{name: "penstock enqueue", in: func(queue string, j penstock.NewJob) error {
			return w.run(append([]string{"enqueue", queue, string(j.Payload)}, flagsOf(j)...)...)
		}},
		{name: "file", in: func(queue string, j penstock.NewJob) error {
			text, _ := json.Marshal(lineOf(j))
			name := filepath.Join(w.TempDir(), "lines.jsonl")
			noError(w.TB, os.WriteFile(name, append(text, '\n'), 0o600))
			return w.run("enqueue", queue, "--file", name)
		}},
		{name: "schedule", in: func(queue string, j penstock.NewJob) error {
			if err := w.store.SetSchedule(w.ctx, penstock.Schedule{Queue: queue, Name: "s", Cron: "@yearly", Job: j}); err != nil {
				return err
			}
			_, err := w.store.RunSchedule(w.ctx, queue, "s")
			return err
		}, refuses: map[string]string{"holds": "holds is given for the job of a schedule", "waits for": "waits for is given for the job of a schedule", "not before": "not before is given for the job of a schedule"}},
		{name: "penstock schedule", in: func(queue string, j penstock.NewJob) error {
			if err := w.run(append([]string{"schedule", "set", queue, "s", "--cron", "@yearly", string(j.Payload)}, flagsOf(j)...)...); err != nil {
				return err
			}
			return w.run("schedule", "run", queue, "s")
		}, refuses: map[string]string{"holds": "holds is given for the job of a schedule", "waits for": "waits for is given for the job of a schedule", "not before": "unknown flag: --not-before", "deadline": "unknown flag: --deadline"}},
		{name: "queue sink", lacks: ofMessages, in: func(queue string, j penstock.NewJob) error {
			return w.forwarded(queue, func(outbox string) error {
				return w.store.Publish(w.ctx, outbox, penstock.Message{Topic: "t", Key: j.Key, Payload: j.Payload, Headers: j.AllHeaders()})
			})
		}},
		{name: "serve", lacks: ofMessages, in: func(queue string, j penstock.NewJob) error {
			return w.forwarded(queue, func(outbox string) error {
				s, err := ingest.New(w.store, ingest.Options{Listen: "127.0.0.1:0"})
				if err != nil {
					return err
				}
				defer s.Close()
				body, _ := json.Marshal(map[string]any{"topic": "t", "key": j.Key, "payload": string(j.Payload), "headers": j.AllHeaders()})
				res, err := http.Post("http://"+s.Addr()+"/outboxes/"+strings.ReplaceAll(outbox, " ", "%20")+"/messages", "application/json", strings.NewReader(string(body)))
				if err == nil && res.StatusCode/100 != 2 {
					err = fmt.Errorf("%s", res.Status)
				}
				return err
			})
		}},
	}
}

// run runs the program.
func (w *ways) run(args ...string) error {
	o := w.desk.cli(args...)
	if o.code != 0 {
		return fmt.Errorf("exit code %d: %s", o.code, o.stderr)
	}
	return nil
}

// flagsOf are the flags for a job. Barriers have none, and are given as headers.
func flagsOf(j penstock.NewJob) (flags []string) {
	add := func(flag, value string) {
		if value != "" && value != "0" && value != "0s" {
			flags = append(flags, "--"+flag, value)
		}
	}
	add("kind", j.Kind)
	add("key", j.Key)
	add("group", j.Group)
	add("priority", fmt.Sprint(j.Priority))
	add("dedup-key", j.DedupKey)
	add("unique-key", j.UniqueKey)
	add("on-conflict", string(j.OnConflict))
	add("debounce-max", j.DebounceMax.String())
	add("max-attempts", fmt.Sprint(j.MaxAttempts))
	add("timeout", j.Timeout.String())
	if !j.NotBefore.IsZero() {
		add("not-before", j.NotBefore.Format(time.RFC3339))
	}
	if !j.Deadline.IsZero() {
		add("deadline", j.Deadline.Format(time.RFC3339))
	}
	for name, value := range barrierHeaders(j) {
		add("header", name+"="+value)
	}
	return flags
}

// lineOf is a line of JSON for a job, with barriers as headers.
func lineOf(j penstock.NewJob) map[string]any {
	line := map[string]any{"payload": string(j.Payload), "kind": j.Kind, "key": j.Key, "group": j.Group, "priority": j.Priority, "dedup_key": j.DedupKey, "headers": barrierHeaders(j),
		"unique_key": j.UniqueKey, "on_conflict": j.OnConflict, "max_attempts": j.MaxAttempts}
	for name, span := range map[string]time.Duration{"debounce_max": j.DebounceMax, "timeout": j.Timeout} {
		if span != 0 {
			line[name] = span.String()
		}
	}
	for name, at := range map[string]time.Time{"not_before": j.NotBefore, "deadline": j.Deadline} {
		if !at.IsZero() {
			line[name] = at
		}
	}
	return line
}

// barrierHeaders are the headers of a job, with those of its barriers.
func barrierHeaders(j penstock.NewJob) map[string]string {
	only := penstock.NewJob{Headers: j.Headers, Holds: j.Holds, WaitsFor: j.WaitsFor, OnDead: j.OnDead}
	return only.AllHeaders()
}

// forwarded publishes a message, and waits until a job was made of it.
func (w *ways) forwarded(queue string, publish func(outbox string) error) error {
	outbox := queue + " out"
	if err := w.store.CreateOutbox(w.ctx, outbox); err != nil && !strings.Contains(err.Error(), "exists") {
		return err
	}
	if err := publish(outbox); err != nil {
		return err
	}
	forwarding, stop := context.WithCancel(w.ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- w.store.Forward(forwarding, driver.Subscribe{Outbox: outbox, Subscription: "jobs", Holder: "test", Lease: time.Minute}, queue)
	}()
	w.Eventually("the message was moved", func() bool {
		all, err := w.store.Status(w.ctx)
		noError(w.TB, err)
		i := slices.IndexFunc(all, func(o admin.OutboxStatus) bool { return o.Outbox == outbox })
		return len(all[i].Subscriptions) == 1 && all[i].Subscriptions[0].Backlog == 0
	})
	stop()
	return <-ended
}

// tried is one option on its one way.
type tried struct {
	*ways
	t     *testing.T
	queue string
	way   way
}

func (y *tried) enqueue(j penstock.NewJob) {
	y.t.Helper()
	noError(y.t, y.way.in(y.queue, j))
}

// natively enqueues a job as a program in Go does.
func (y *tried) natively(j penstock.NewJob) {
	y.t.Helper()
	_, err := y.store.Queue(y.queue).Enqueue(y.ctx, j)
	noError(y.t, err)
}

// claim takes all jobs of a group that are ready.
func (y *tried) claim(group string) []penstock.Job {
	y.t.Helper()
	noError(y.t, y.store.Queue(y.queue).Maintain(y.ctx))
	jobs, err := y.store.Queue(y.queue).Claim(y.ctx, driver.Claim{Jobs: 10, Lease: time.Minute, Group: group})
	noError(y.t, err)
	return jobs
}

// want takes the only job, which is as it was enqueued, and ends it.
func (y *tried) want(j penstock.NewJob) {
	y.t.Helper()
	var jobs []penstock.Job
	y.Eventually("the job is ready", func() bool { jobs = y.claim(j.Group); return len(jobs) > 0 })
	key := j.Key
	if key == "" {
		key = j.UniqueKey
	}
	got := jobs[0]
	if len(jobs) != 1 || string(got.Payload) != string(j.Payload) || got.Key != key || got.Priority != j.Priority {
		y.t.Fatalf("the jobs are %+v, want %+v", jobs, j)
	}
	same := func(headers map[string]string) map[string]string {
		headers = maps.Clone(headers)
		maps.DeleteFunc(headers, func(name, _ string) bool {
			return name == postgres.HeaderMessageID || name == postgres.HeaderTopic || name == penstock.HeaderDeadline
		})
		return headers
	}
	if want := same(j.AllHeaders()); !maps.Equal(same(got.Headers), want) || !got.Deadline().Equal(j.Deadline) {
		y.t.Errorf("the headers are %v, want %v and the deadline %v", got.Headers, want, j.Deadline)
	}
	y.ack(got)
}

func (y *tried) ack(j penstock.Job) {
	y.t.Helper()
	_, err := y.store.Queue(y.queue).Ack(y.ctx, j.Lease)
	noError(y.t, err)
}

func (y *tried) status() admin.QueueStatus {
	y.t.Helper()
	s, err := y.store.QueueStatus(y.ctx, y.queue)
	noError(y.t, err)
	return s[0]
}

func (y *tried) barrier() int64 {
	y.t.Helper()
	b, err := y.store.Queue(y.queue).Barrier(y.ctx)
	noError(y.t, err)
	return b
}

// option is an option of a job, and the check that a way carries it.
type option struct {
	name  string
	job   penstock.NewJob
	check func(y *tried, j penstock.NewJob)
}

// options are all fields of a NewJob.
func options() []option {
	once := func(y *tried, j penstock.NewJob) { y.enqueue(j); y.want(j) }
	twice := func(stays bool) func(y *tried, j penstock.NewJob) {
		return func(y *tried, j penstock.NewJob) {
			y.enqueue(j)
			second := j
			second.Payload = []byte("b")
			y.enqueue(second)
			if !stays {
				j = second
			}
			y.want(j)
		}
	}
	return []option{
		{"kind", penstock.NewJob{Kind: "k"}, once},
		{"key", penstock.NewJob{Key: "k"}, once},
		{"group", penstock.NewJob{Group: "g"}, once},
		{"priority", penstock.NewJob{Priority: -3}, once},
		{"headers", penstock.NewJob{Headers: map[string]string{"a": "b"}}, once},
		{"max attempts", penstock.NewJob{MaxAttempts: 3}, once},
		{"timeout", penstock.NewJob{Timeout: 1500 * time.Millisecond}, once},
		{"deadline", penstock.NewJob{Deadline: time.Now().Add(24 * time.Hour).UTC().Truncate(time.Second)}, once},
		{"unique key", penstock.NewJob{UniqueKey: "u"}, once},
		{"ignore", penstock.NewJob{UniqueKey: "i", OnConflict: penstock.OnConflictIgnore}, twice(true)},
		{"replace", penstock.NewJob{UniqueKey: "r", OnConflict: penstock.OnConflictReplace}, twice(false)},
		{"debounce", penstock.NewJob{UniqueKey: "d", OnConflict: penstock.OnConflictDebounce, DebounceMax: time.Second}, func(y *tried, j penstock.NewJob) {
			if _, lacks := y.way.lacks["not before"]; !lacks && y.way.refuses["not before"] == "" {
				j.NotBefore = time.Now().Add(time.Hour) // at most a second of it counts
			}
			twice(false)(y, j)
		}},
		{"dedup key", penstock.NewJob{DedupKey: "d"}, twice(true)},
		{"not before", penstock.NewJob{NotBefore: time.Now().Add(24 * time.Hour).Truncate(time.Second)}, func(y *tried, j penstock.NewJob) {
			y.enqueue(j)
			page, err := y.store.ListJobs(y.ctx, admin.JobQuery{Queue: y.queue, State: "delayed", Limit: 10})
			noError(y.t, err)
			if len(page.Jobs) != 1 || !page.Jobs[0].Where[0].Until.Equal(j.NotBefore) {
				y.t.Fatalf("the delayed jobs are %+v, want one at %s", page.Jobs, j.NotBefore)
			}
			_, err = y.store.CancelJobs(y.ctx, y.queue, page.Jobs[0].Message.Seq)
			noError(y.t, err)
		}},
		{"holds", penstock.NewJob{}, func(y *tried, j penstock.NewJob) {
			j.Holds = y.barrier()
			y.natively(penstock.NewJob{WaitsFor: []int64{j.Holds}, Payload: []byte("done")})
			y.enqueue(j)
			noError(y.t, y.store.Queue(y.queue).Seal(y.ctx, j.Holds))
			y.want(j)
			y.want(penstock.NewJob{Payload: []byte("done")})
		}},
		{"waits for", penstock.NewJob{OnDead: penstock.OnDeadCancel}, func(y *tried, j penstock.NewJob) {
			for _, dies := range []bool{false, true} {
				b := y.barrier()
				y.natively(penstock.NewJob{Holds: b, Payload: []byte("first")})
				j.WaitsFor = []int64{b}
				y.enqueue(j)
				noError(y.t, y.store.Queue(y.queue).Seal(y.ctx, b))
				first := y.claim("")
				if len(first) != 1 || string(first[0].Payload) != "first" {
					y.t.Fatalf("the jobs are %+v, want the one that holds the barrier", first)
				}
				if !dies {
					y.ack(first[0])
					y.want(penstock.NewJob{Payload: j.Payload})
					continue
				}
				noError(y.t, y.store.Queue(y.queue).DeadLetter(y.ctx, first[0].Lease, "no good"))
				if n := y.status().DeadLetters; n != 2 {
					y.t.Errorf("%d dead letters, want that of the job that waits too", n)
				}
			}
		}},
	}
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
