package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/internal/test/postgrestest"
)

// claim takes every job of a queue that can run.
func (d *desk) claim(queue, group string) []penstock.Job {
	d.t.Helper()
	q := d.queues().DriverQueue(queue)
	if err := q.Maintain(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
	jobs, err := q.Claim(d.t.Context(), driver.Claim{Jobs: 1000, Lease: time.Minute, Group: group})
	if err != nil {
		d.t.Fatal(err)
	}
	return jobs
}

func TestEnqueueOne(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, d *desk) {
		d.must("queue", "create", "mails")
		id := strings.TrimSpace(d.must("enqueue", "mails", "hello", "--key", "k", "--priority", "-16", "-H", "a=b=c", "--dedup-key", "once"))
		same(t, "a duplicate is the first one", d.must("enqueue", "mails", "again", "--dedup-key", "once"), id+"\n")
		same(t, "as JSON", d.must("enqueue", "mails", "again", "--dedup-key", "once", "--json"), `{"deduplicated":[true],"ids":[`+id+`],"queue":"mails"}`+"\n")
		jobs := d.claim("mails", "")
		if len(jobs) != 1 {
			t.Fatalf("got %v", jobs)
		}
		j := jobs[0]
		same(t, "job", fmt.Sprint(j.ID, j.Key, j.Priority, j.Headers, string(j.Payload)), id+"k-16 map[a:b=c]hello")

		if o := d.run(false, "\x00\xff", "enqueue", "mails", "-", "--group", "acme"); o.code != terminal.ExitOK {
			t.Fatal(o.stderr)
		}
		d.must("enqueue", "mails", "", "--group", "acme", "--not-before", "2001-02-03 04:05")
		jobs = d.claim("mails", "acme")
		if len(jobs) != 2 || string(jobs[0].Payload) != "\x00\xff" || len(jobs[1].Payload) != 0 {
			t.Errorf("got %v", jobs)
		}
		d.must("enqueue", "mails", "later", "--delay", "1h")
		d.must("enqueue", "mails", "later", "--not-before", "2999-01-01T00:00:00Z")
		if jobs := d.claim("mails", ""); len(jobs) > 0 {
			t.Errorf("%v was claimed before its time", jobs)
		}
		same(t, "delayed", fmt.Sprint(d.queue("mails").Delayed), "2")

		d.must("outbox", "create", "shipped")
		d.cli("enqueue", "shipped", "x").wants2(t, terminal.ExitFailure, `queue "shipped": no such queue: shipped is an outbox: penstock publish `, " shipped --topic TOPIC --payload TEXT")
		d.cli("publish", "mails", "--topic", "t", "--payload", "x").wants2(t, terminal.ExitFailure, `outbox "mails": no such outbox: mails is a queue: penstock enqueue `, " mails PAYLOAD")
		d.run(false, `{"topic":"t"}`+"\n", "publish", "mails").wants(t, terminal.ExitFailure, "mails is a queue: penstock enqueue ")
		d.cli("enqueue", "nothing", "x").wants(t, terminal.ExitFailure, `queue "nothing": no such queue: penstock queue list`)
		d.cli("enqueue", "mails", "x", "--key", "a\x00").wants(t, terminal.ExitUsage, "key has a NUL at byte 1")
		d.cli("enqueue", "mails", "x", "--priority", "16").wants(t, terminal.ExitUsage, "priority is 16")
	})
}

// Options of a job by flags and by fields of a line.
func TestEnqueueOptions(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, d *desk) {
		d.must("queue", "create", "mails")
		d.cli("enqueue", "mails", "x", "--timeout", "soon").wants(t, terminal.ExitUsage, "--timeout")
		d.cli("enqueue", "mails", "x", "--deadline", "soon").wants(t, terminal.ExitUsage, `--deadline is "soon": use a time`)
		d.cli("enqueue", "mails", "x", "--on-conflict", "replace").wants(t, terminal.ExitUsage, "on conflict is given without a unique key")
		flags := []string{"--unique-key", "u", "--on-conflict", "debounce", "--debounce-max", "90s", "--max-attempts", "3", "--timeout", "500ms", "--deadline", "2100-01-01T00:00:00Z"}
		id := strings.TrimSpace(d.must(append([]string{"enqueue", "mails", "a"}, flags...)...))
		o := d.run(false, `{"payload":"b","unique_key":"u","on_conflict":"debounce","debounce_max":"90s","max_attempts":3,"timeout":"500ms","deadline":"2100-01-01T00:00:00Z"}`, "enqueue", "mails", "--json")
		same(t, "a line", o.stdout, `{"deduplicated":[true],"ids":[`+id+`],"queue":"mails"}`+"\n")
		jobs := d.claim("mails", "")
		if len(jobs) != 1 || string(jobs[0].Payload) != "b" {
			t.Fatalf("got %v", jobs)
		}
		same(t, "headers", fmt.Sprint(jobs[0].Key, jobs[0].Headers), "umap[penstock-deadline:2100-01-01T00:00:00Z penstock-debounce-max:90 penstock-max-attempts:3 penstock-on-conflict:debounce penstock-timeout:0.5 penstock-unique-key:u]")
		d.must("enqueue", "mails", "late", "--deadline", "1ms")
		if jobs := d.claim("mails", ""); len(jobs) > 0 {
			t.Errorf("%v was claimed after its deadline", jobs)
		}
		same(t, "expired", fmt.Sprint(d.queue("mails").Expired), "1")
	})
}

func TestEnqueueLines(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, d *desk) {
		d.must("queue", "create", "mails")
		input := `{"payload":"text","key":"k","priority":3,"headers":{"a":"b"}}
{"payload":{"total": 10},"group":"acme"}

{"payload_base64":"AP8=","dedup_key":"once"}
{"payload":"later","delay":"1h"}
{"payload":"late","not_before":"2999-01-01T00:00:00Z"}
`
		o := d.run(false, input, "enqueue", "mails", "--batch", "3")
		o.wants(t, terminal.ExitOK, "")
		if n := strings.Count(o.stdout, "\n"); n != 5 {
			t.Errorf("%d ids: %q", n, o.stdout)
		}
		same(t, "acme", string(d.claim("mails", "acme")[0].Payload), `{"total": 10}`)
		var got []string
		for _, j := range d.claim("mails", "") {
			got = append(got, fmt.Sprintf("%q %s %d %v", j.Payload, j.Key, j.Priority, j.Headers))
		}
		same(t, "claimed", strings.Join(got, "; "), `"\x00\xff"  0 map[]; "text" k 3 map[a:b]`)
		same(t, "delayed", fmt.Sprint(d.queue("mails").Delayed), "2")

		o = d.run(false, "{\"payload\":\"a\"}\n{\"payload\":\"b\"}\n{\"payload\":\"c\",\"priority\":99}\n", "enqueue", "mails", "--json", "--batch", "2")
		o.wants(t, terminal.ExitUsage, "line 3: priority is 99: use -16 (first) to 15 (last); 2 jobs enqueued, nothing from line 3 on: repeat with tail -n +3")
		var told struct {
			Queue string
			IDs   []int64
		}
		if err := json.Unmarshal([]byte(o.stdout), &told); err != nil || told.Queue != "mails" || len(told.IDs) != 2 {
			t.Errorf("told %q, %v", o.stdout, err)
		}
		d.run(false, "", "enqueue", "mails").wants(t, terminal.ExitOK, "no job was enqueued: the input has no lines")
		d.run(false, "{}\n", "enqueue", "nothing").wants(t, terminal.ExitFailure, `enqueuing lines 1 to 1: queue "nothing": no such queue; nothing was enqueued`)
	})
}

func TestJobRetry(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, d *desk) {
		d.must("queue", "create", "mails")
		ids := d.jobs("mails", "fails", "dies")
		q := d.queues().DriverQueue("mails")
		for _, job := range d.claim("mails", "") {
			end := func() error { return q.DeadLetter(t.Context(), job.Lease, "no such user") }
			if job.ID == ids[0] {
				end = func() error { _, err := q.Retry(t.Context(), job.Lease, time.Hour, "mailbox full"); return err }
			}
			if err := end(); err != nil {
				t.Fatal(err)
			}
		}
		same(t, "told", d.must("job", "retry", "mails", fmt.Sprint(ids[0]), fmt.Sprint(ids[1]), "999999"), "2 jobs of mails run now; 1 not: done, running, ready, waiting, or never there.\n")
		same(t, "as JSON", d.must("job", "retry", "mails", fmt.Sprint(ids[0]), "--json"), `{"queue":"mails","run_now":0}`+"\n")
		if err := q.Maintain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if jobs := d.claim("mails", ""); len(jobs) != 2 || jobs[0].Attempt != 2 || jobs[1].Attempt != 2 {
			t.Errorf("they run again as %+v", jobs)
		}
		d.cli("job", "retry", "nothing", "1").wants(t, terminal.ExitFailure, `queue "nothing": no such queue`)
	})
}

func TestJobCancel(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, d *desk) {
		d.must("queue", "create", "mails")
		ids := d.jobs("mails", "a", "b", "c")
		running := d.claim("mails", "")[0]
		d.jobs("mails", "d")
		same(t, "told", d.must("job", "cancel", "mails", fmt.Sprint(ids[0]), fmt.Sprint(ids[0]), "999999"), "1 job of mails cancelled; 1 not: done, dead, or never there.\n")
		if held, err := d.queues().DriverQueue("mails").Extend(t.Context(), time.Minute, running.Lease); err != nil || len(held) > 0 {
			t.Errorf("the lease of a job that was cancelled is extended: %v, %v", held, err)
		}
		same(t, "as JSON", d.must("job", "cancel", "mails", fmt.Sprint(ids[1]), "--json"), `{"cancelled":1,"queue":"mails"}`+"\n")
		same(t, "the others stay", fmt.Sprint(jobsIn(d.queue("mails"))), "2")
		d.cli("job", "cancel", "mails", "x").wants(t, terminal.ExitUsage, `"x" is not the id of a job`)
		d.cli("job", "cancel", "mails").wants(t, terminal.ExitUsage, "see penstock job cancel --help")
		d.cli("job", "cancel", "nothing", "1").wants(t, terminal.ExitFailure, `queue "nothing": no such queue`)
	})
}

// A list of schedules says that no worker runs.
func TestOverdueSchedules(t *testing.T) {
	t.Parallel()
	database := postgrestest.Database(t)
	d := urlDesk(t, database)
	d.must("queue", "create", "reports")
	d.must("schedule", "set", "reports", "hourly", "--cron", "@hourly")
	same(t, "it is not time yet", d.cli("schedule", "list", "reports").stderr, "")
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), "update penstock._schedule set next = '2020-01-01 10:00+00'"); err != nil {
		t.Fatal(err)
	}
	o := d.cli("schedule", "list", "reports")
	contains(t, o.stdout, "2020-01-01 10:00, overdue")
	contains(t, o.stderr, "penstock: a schedule is overdue: no worker of the queue seems to run, or the queue is paused: start the worker of your application, or: penstock work reports --exec COMMAND")
	d.must("schedule", "pause", "reports", "hourly")
	same(t, "it is paused", d.cli("schedule", "list", "reports").stderr, "")
}

func TestSchedules(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, d *desk) {
		d.must("queue", "create", "reports")
		same(t, "none", d.must("schedule", "list", "reports"), "Queue reports has no schedule yet: penstock schedule set reports NAME --cron TEXT makes one.\n")
		contains(t, d.must("schedule", "set", "reports", "nightly", "--cron", "30 4 * * *", `{"days":1}`), "Schedule nightly of reports runs next at ", " 04:30 UTC.\n")
		d.must("schedule", "set", "reports", "hourly", "--cron", "@hourly", "--key", "k", "--group", "acme", "--priority", "5", "-H", "a=b", "\xff")
		d.must("schedule", "set", "reports", "hourly", "--cron", "@daily", "--kind", "report", "--key", "k", "--dedup-key", "once a day", "--group", "acme", "--priority", "5", "-H", "a=b", "\xff")

		lines := strings.Split(d.must("schedule", "list", "reports", "--json"), "\n")
		var hourly map[string]any
		if err := json.Unmarshal([]byte(lines[0]), &hourly); err != nil || len(lines) != 3 {
			t.Fatalf("%q, %v", lines, err)
		}
		delete(hourly, "next")
		same(t, "schedule", fmt.Sprint(hourly), "map[cron:@daily dedup_key:once a day group:acme headers:map[a:b penstock-kind:report] key:k kind:report name:hourly paused:false payload_base64:/w== priority:5 queue:reports skip_overlap:false]")
		contains(t, d.must("schedule", "list", "reports"), "NEXT (UTC)", "DEDUP KEY", "once a day", "30 4 * * *", `{"days":1}`, `\xff`)

		d.cli("schedule", "set", "reports", "bad", "--cron", "99 * * * *").wants(t, terminal.ExitUsage, "give minute, hour, day of month, month and day of week")
		d.cli("schedule", "set", "reports", "bad").wants(t, terminal.ExitUsage, "--cron is missing")
		d.cli("schedule", "set", "reports", "bad", "--cron", "@daily", "--dedup-key", "").wants(t, terminal.ExitUsage, "--dedup-key is empty: give it a text, or leave it out")
		d.cli("schedule", "set", "reports", "bad", "--cron", "@daily", "--dedup-key", strings.Repeat("x", penstock.MaxDedupBytes+1)).wants(t, terminal.ExitUsage, "dedup key")
		d.cli("schedule", "set", "nothing", "x", "--cron", "@daily").wants(t, terminal.ExitFailure, `queue "nothing": no such queue`)
		d.cli("schedule", "list", "nothing").wants(t, terminal.ExitFailure, `queue "nothing": no such queue`)
		contains(t, d.must("schedule", "set", "reports", "nightly", "--cron", "30 4 * * *", "--skip-overlap", "--json"), `"skip_overlap":true`)
		contains(t, d.must("schedule", "pause", "reports", "nightly"), "Schedule nightly of reports is paused: penstock schedule resume ", "reports nightly ends that.\n")
		contains(t, d.must("schedule", "run", "reports", "nightly"), "Job ", " of reports: enqueued.\n")
		contains(t, d.must("schedule", "run", "reports", "nightly", "--json"), `"deduplicated":false`, `"name":"nightly"`)
		contains(t, d.must("schedule", "list", "reports"), "paused", "skip", "LAST JOB")
		contains(t, d.must("schedule", "list", "reports", "--json"), `"paused":true`, `"last_job":`)
		contains(t, d.must("schedule", "resume", "reports", "nightly"), "Schedule nightly of reports runs next at ", " 04:30 UTC.\n")
		for _, verb := range []string{"pause", "resume", "run"} {
			d.cli("schedule", verb, "reports", "none").wants(t, terminal.ExitFailure, `schedule "none" of queue "reports": no such schedule: penstock schedule list`)
			d.cli("schedule", verb, "nothing", "x").wants(t, terminal.ExitFailure, `queue "nothing": no such queue`)
		}
		same(t, "dropped", d.must("schedule", "drop", "reports", "hourly"), "Schedule hourly of reports is gone.\n")
		same(t, "json", d.must("schedule", "drop", "reports", "nightly", "--json"), `{"name":"nightly","queue":"reports"}`+"\n")
		d.cli("schedule", "drop", "reports", "hourly").wants(t, terminal.ExitFailure, `schedule "hourly" of queue "reports": no such schedule: penstock schedule list`)
	})
}

func TestQueueWorkers(t *testing.T) {
	t.Parallel()
	without := urlDesk(t, sqliteFile(t))
	without.must("queue", "create", "mails")
	without.cli("queue", "workers", "mails").wants(t, terminal.ExitUsage, "this database keeps no heartbeats of workers: PostgreSQL does")

	url := postgrestest.Database(t)
	d := urlDesk(t, url)
	d.must("queue", "create", "mails")
	q := d.queues().DriverQueue("mails")
	beat := func(workers ...admin.Worker) {
		t.Helper()
		for _, w := range workers {
			if err := q.(driver.Heartbeater).Heartbeat(t.Context(), w); err != nil {
				t.Fatal(err)
			}
		}
	}
	same(t, "told", d.must("queue", "workers"), "No worker has sent a heartbeat in the last ten minutes.\n")
	beat(admin.Worker{Name: "busy", Running: 2, Concurrency: 10, Done: 1200, ClaimedAt: time.Now()}, admin.Worker{Name: "free", Version: "shop 1.4"}, admin.Worker{Name: "gone", Stopped: true})
	told := d.must("queue", "workers", "mails")
	for _, want := range []string{`busy +working +2 of 10 +\S+ +1,200 `, `free +idle +0 +never .*shop 1\.4`, `gone +stopped `} {
		if !regexp.MustCompile(want).MatchString(told) {
			t.Errorf("workers, without %s:\n%s", want, told)
		}
	}
	if lines := d.must("queue", "workers", "--json"); strings.Count(lines, "\n") != 3 || !strings.Contains(lines, `"state":"idle"`) {
		t.Errorf("as JSON: %s", lines)
	}
	d.cli("queue", "workers", "nothing").wants(t, terminal.ExitFailure, `queue "nothing": no such queue`)

	// Of two workers with leases that end one lives.
	d.must("enqueue", "mails", "a")
	d.must("enqueue", "mails", "b")
	for _, name := range []string{"busy", "free"} {
		if jobs, err := q.Claim(t.Context(), driver.Claim{Jobs: 1, Lease: 10 * time.Millisecond, Worker: name}); err != nil || len(jobs) != 1 {
			t.Fatal(jobs, err)
		}
	}
	execute(t, url, "update penstock._lease set lease_until = clock_timestamp() - interval '1 s'") // as if nothing had been heard for 90 s
	for _, silent := range []int{2, 1} {
		if told := d.must("queue", "workers", "mails"); strings.Count(told, " silent ") != silent {
			t.Errorf("workers, of which %d have died:\n%s", silent, told)
		}
		beat(admin.Worker{Name: "free"})
	}
	if told := d.must("queue", "workers", "mails"); !regexp.MustCompile(`busy +silent +2 of 10 `).MatchString(told) {
		t.Errorf("workers, of which one has died:\n%s", told)
	}
}
