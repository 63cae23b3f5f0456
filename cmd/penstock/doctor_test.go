package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/internal/test/awstest"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/sqlite"
	"github.com/penstock/penstock/work"
)

// patient is a database that doctor examines.
type patient struct {
	*desk
	url string
}

func newPatient(t *testing.T, url string) *patient { return &patient{urlDesk(t, url), url} }

// examined runs doctor, with shortened ages and measurements, and checks that its exit code fits.
func (p *patient) examined(args ...string) []doctor.Finding {
	p.t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(p.t.Context(), append([]string{"doctor", "--json", "--database-url", p.url, "--old", "1s", "--measure", "20ms"}, args...), strings.NewReader(""), &stdout, &stderr)
	var report struct{ Findings []doctor.Finding }
	from := json.NewDecoder(&stdout)
	from.DisallowUnknownFields()
	if err := from.Decode(&report); err != nil {
		p.t.Fatalf("%v: %s", err, stderr.String())
	}
	want := terminal.ExitOK
	if doctor.Count(report.Findings, doctor.Critical) > 0 {
		want = terminal.ExitCheck
	}
	if code != want {
		p.t.Errorf("exit code %d, want %d: %s", code, want, stderr.String())
	}
	return report.Findings
}

// finds waits until doctor finds it: some findings need time to become old.
func (p *patient) finds(check string, severity doctor.Severity, about, text string, args ...string) doctor.Finding {
	p.t.Helper()
	for end := time.Now().Add(postgrestest.Deadline); ; {
		all := p.examined(args...)
		for _, f := range all {
			if f.Check == check && f.Severity == severity && strings.Contains(f.About, about) && strings.Contains(f.Found, text) {
				if f.Next == "" {
					p.t.Errorf("a next step is missing: %+v", f)
				}
				return f
			}
		}
		if time.Now().After(end) {
			p.t.Fatalf("no %s %s about %q with %q: %s", severity, check, about, text, told(all))
		}
	}
}

// healthy requires that no check, or none of the given ones, is worse than ok. The disk is the
// machine's.
func (p *patient) healthy(checks ...string) {
	p.t.Helper()
	for _, f := range p.examined() {
		if f.Severity != doctor.OK && f.Check != doctor.CheckDisk && (len(checks) == 0 || slices.Contains(checks, f.Check)) {
			p.t.Errorf("%s", told([]doctor.Finding{f}))
		}
	}
}

// pasted runs the command that ends a next step of --json. The command names the same database, and
// more.
func (p *patient) pasted(next string, more ...string) {
	p.t.Helper()
	_, command, there := strings.Cut(next, ": penstock ")
	if !there {
		p.t.Fatalf("there is no command in %q", next)
	}
	must(p.t, append(append(strings.Fields(strings.ReplaceAll(command, "'", "")), "--database-url", p.url), more...)...)
}

func told(all []doctor.Finding) string {
	var out strings.Builder
	for _, f := range all {
		fmt.Fprintf(&out, "\n%s %s %s: %s %v", f.Severity, f.Check, f.About, f.Found, f.Measured)
	}
	return out.String()
}

// subscribe takes a lease until the test ends, and fetches until a message comes.
func (p *patient) subscribe(outbox string) (driver.Source, driver.Batch) {
	p.t.Helper()
	source, err := p.store.Subscribe(p.t.Context(), driver.Subscribe{Outbox: outbox, Subscription: "billing", Holder: "r1", Lease: time.Hour})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { source.Close(context.Background()) })
	batch, err := source.Fetch(p.t.Context(), driver.Limit{Messages: 100, Bytes: 1 << 20})
	if err != nil {
		p.t.Fatal(err)
	}
	return source, batch
}

// relayed is a closed subscription that has settled all messages.
func (p *patient) relayed(outbox string) { p.relay(outbox, "billing", deliver) }

// eachPatient runs a test over the stores that doctor examines separately.
func eachPatient(t *testing.T, test func(t *testing.T, p *patient)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, newPatient(t, sqliteFile(t)))
	})
	t.Run("portable", func(t *testing.T) {
		t.Parallel()
		test(t, newPatient(t, "portable+"+testserver.Database(t, testserver.PostgresURL(t))))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartPostgres(t, "fsync = on", "full_page_writes = on", "synchronous_commit = on")
		test(t, newPatient(t, postgrestest.OnServer(server.URL)(t)))
	})
}

func TestDoctorFindsNothingWhereAllIsWell(t *testing.T) {
	t.Parallel()
	eachPatient(t, func(t *testing.T, p *patient) {
		p.healthy()
		p.outbox("orders", numbered(3)...)
		p.relayed("orders")
		p.must("queue", "create", "mails")
		p.jobs("mails", "{}")
		if o := p.work("mails", nothingToDo, "--exec", "true"); o.code != terminal.ExitOK {
			t.Fatal(o.stderr)
		}
		p.healthy()
		contains(t, must(t, "doctor", "--database-url", p.url, "--measure", "1ms"), "ok        connection", "0 critical, 0 warnings")
	})
}

func TestDoctorFindsWhatWaits(t *testing.T) {
	t.Parallel()
	eachPatient(t, func(t *testing.T, p *patient) {
		t.Run("an outbox that no relay ever ran for", func(t *testing.T) {
			p := &patient{&desk{t: t, store: p.store, open: p.open}, p.url}
			p.outbox("forgotten")
			p.healthy(doctor.CheckSubscription)
			if err := p.store.Publish(t.Context(), "forgotten", numbered(1)...); err != nil {
				t.Fatal(err)
			}
			f := p.finds(doctor.CheckSubscription, doctor.Warning, "forgotten", "no relay has ever run for it, and its messages wait, the oldest for ")
			start, drop, _ := strings.Cut(f.Next, ", or ")
			contains(t, start, ": penstock relay ", " --outbox forgotten --sink URL")
			contains(t, unwrapped(p.must("status", "forgotten")), "forgotten: no relay has ever run for it, and its messages wait: penstock relay ", " --outbox forgotten --sink URL")
			file := yaml(t, fmt.Sprintf("database_url: %q\nsubscriptions: [{name: billing, outbox: forgotten, sink: {discard: {}}}]\n", p.url))
			f = p.finds(doctor.CheckSubscription, doctor.Warning, "forgotten/billing", "no relay has ever run it, and messages wait, the oldest for ", "--config", file)
			same(t, "next", f.Next, "start its relay: penstock relay --config "+file)
			p.pasted(drop, "--yes")
			p.healthy(doctor.CheckSubscription)
		})
		t.Run("a subscription that nobody relays", func(t *testing.T) {
			p := &patient{&desk{t: t, store: p.store, open: p.open}, p.url}
			p.outbox("left")
			p.relayed("left")
			if err := p.store.Publish(t.Context(), "left", numbered(1)...); err != nil {
				t.Fatal(err)
			}
			const waits = "no relay reads it, and 1 message waits"
			f := p.finds(doctor.CheckSubscription, doctor.Critical, "left/billing", waits)
			file := yaml(t, fmt.Sprintf("database_url: %q\nsubscriptions: [{name: billing, outbox: left, sink: {discard: {}}}]\n", p.url))
			o := invoke(t, "doctor", "--config", file, "--measure", "1ms")
			contains(t, terminal.OneLine(o.stdout), waits, "next: start its relay: penstock relay --config "+file+" ")
			start, drop, _ := strings.Cut(f.Next, ", or ")
			contains(t, start, ": penstock relay ", " --outbox left --subscription billing --sink URL")
			p.pasted(drop, "--yes")
			p.relayed("left")
			p.healthy(doctor.CheckSubscription)
		})
		t.Run("a relay that stands still", func(t *testing.T) {
			p := &patient{&desk{t: t, store: p.store, open: p.open}, p.url}
			p.outbox("still", numbered(1)...)
			source, batch := p.subscribe("still")
			p.finds(doctor.CheckRelay, doctor.Critical, "still/billing", "r1 holds it and has settled nothing")
			if err := source.(driver.SinkReporter).ReportSink(t.Context(), time.Now().Add(-time.Hour), "no route to host"); err != nil {
				t.Fatal(err)
			}
			p.finds(doctor.CheckRelay, doctor.Critical, "still/billing", "taken nothing for 1h: no route to host")
			if err := errors.Join(source.(driver.SinkReporter).ReportSink(t.Context(), time.Time{}, ""), source.Settle(t.Context(), batch.Number, driver.Settled{Batch: batch})); err != nil {
				t.Fatal(err)
			}
			p.healthy(doctor.CheckRelay)
		})
		t.Run("a poisoned key", func(t *testing.T) {
			p := &patient{&desk{t: t, store: p.store, open: p.open}, p.url}
			p.outbox("poisoned", penstock.Message{Key: "ann", Topic: "t", Payload: []byte("x")}, penstock.Message{Key: "bob", Topic: "t", Payload: []byte("x")})
			p.relay("poisoned", "billing", func(m penstock.Message) driver.Verdict {
				if m.Key == "bob" {
					return dies(m)
				}
				return driver.Verdict{Outcome: driver.Parked, RetryIn: time.Hour, Failures: []penstock.Failure{{Attempt: 1, At: time.Now(), Err: "it is not JSON"}}}
			})
			p.pasted(p.finds(doctor.CheckParked, doctor.Warning, "poisoned/billing", "ann, attempt 1: it is not JSON").Next)
			count := "1 dead letter waits for a decision"
			if _, ok := p.store.(driver.CauseCounter); ok {
				count += "; the error: refused"
			}
			p.pasted(p.finds(doctor.CheckDead, doctor.Warning, "poisoned/billing", count).Next)
			p.must("outbox", "drop", "poisoned", "--yes")
			p.healthy(doctor.CheckParked, doctor.CheckDead)
		})
		t.Run("a subscription with another name or filter", func(t *testing.T) {
			p := &patient{&desk{t: t, store: p.store, open: p.open}, p.url}
			p.outbox("renamed", numbered(2)...)
			p.relay("renamed", "billing", func(m penstock.Message) driver.Verdict {
				if m.ID == "m1" {
					return dies(m)
				}
				return driver.Verdict{Outcome: driver.Parked, RetryIn: time.Hour, Failures: []penstock.Failure{{Attempt: 1, At: time.Now(), Err: "no"}}}
			})
			file := filepath.Join(t.TempDir(), "penstock.yaml")
			with := func(name string) string {
				t.Helper()
				if err := os.WriteFile(file, fmt.Appendf(nil, "database_url: %q\nsubscriptions: [{name: %s, outbox: renamed, sink: {discard: {}}}]\n", p.url, name), 0o600); err != nil {
					t.Fatal(err)
				}
				var stdout, stderr bytes.Buffer
				run(t.Context(), []string{"doctor", "--json", "--config", file, "--measure", "20ms"}, strings.NewReader(""), &stdout, &stderr)
				var report struct{ Findings []doctor.Finding }
				if err := json.Unmarshal(stdout.Bytes(), &report); err != nil {
					t.Fatalf("%v: %s", err, stderr.String())
				}
				return told(slices.DeleteFunc(report.Findings, func(f doctor.Finding) bool {
					return f.About != "renamed/billing" || f.Check != doctor.CheckParked && f.Check != doctor.CheckDead
				}))
			}
			const not = "the configuration has no such subscription"
			if was, is := with("billing"), with("invoices"); strings.Contains(was, not) || strings.Count(is, not) != 2 {
				t.Errorf("with its name: %s\nwith another one: %s", was, is)
			}
			const passed = "the filter does not choose 1 of the first 1"
			if wide, narrow := with("billing, filter: {topics: ['>']}"), with("billing, filter: {topics: [other]}"); strings.Contains(wide, "the filter") || strings.Count(narrow, passed) != 1 {
				t.Errorf("with a filter that chooses all: %s\nwith one that chooses nothing: %s", wide, narrow)
			}
			p.must("outbox", "drop", "renamed", "--yes")
		})
		t.Run("kinds that no worker takes", func(t *testing.T) {
			p := &patient{&desk{t: t, store: p.store, open: p.open}, p.url}
			p.must("queue", "create", "kinds")
			for _, kind := range []string{"welcom", "digest", "welcom"} {
				p.must("enqueue", "kinds", "{}", "--kind", kind)
			}
			mux := work.Mux{GiveUp: 1}
			mux.Handle("welcome", func(context.Context, penstock.Job) error { return nil })
			gives := mux.Handler()
			for _, j := range p.claim("kinds", "") {
				reason := "the disk is full"
				if j.Kind() == "welcom" {
					_ = gives(t.Context(), j) // it meets the job
					reason = gives(t.Context(), j).Error()
				}
				if err := p.queues().DriverQueue("kinds").DeadLetter(t.Context(), j.Lease, reason); err != nil {
					t.Fatal(err)
				}
			}
			f := p.finds(doctor.CheckDead, doctor.Warning, "kinds", `3 dead letters wait for a decision; no worker has a handler for "welcom" (2)`)
			if _, ok := p.store.(driver.JobCauseCounter); ok {
				contains(t, f.Found, "; the most frequent error, of 2 of the first 3: no handler for kind")
			}
			if strings.Contains(f.Found, "digest") {
				t.Errorf("of a kind that has a handler is said: %s", f.Found)
			}
			p.must("queue", "drop", "kinds", "--yes")
		})
		t.Run("jobs that nobody runs", func(t *testing.T) {
			p := &patient{&desk{t: t, store: p.store, open: p.open}, p.url}
			p.must("queue", "create", "idle")
			p.jobs("idle", "{}")
			p.finds(doctor.CheckQueue, doctor.Critical, "idle", "no worker seems to run: 1 job is ready")
			p.must("queue", "pause", "idle")
			p.finds(doctor.CheckQueue, doctor.Warning, "idle", "it is paused")
			p.must("queue", "drop", "idle", "--yes")
			p.must("queue", "create", "grouped")
			p.must("enqueue", "grouped", "{}", "--group", "acme")
			f := p.finds(doctor.CheckQueue, doctor.Critical, "grouped", "no worker seems to run: 1 job is ready")
			same(t, "next step", f.Next, "start the worker of your application, or: penstock work grouped --all-groups --exec COMMAND")
			p.jobs("grouped", "{}")
			p.claim("grouped", "")
			p.finds(doctor.CheckQueue, doctor.Warning, "grouped", "workers run, but none seems to take jobs of group acme")
			p.must("queue", "drop", "grouped", "--yes")
			if _, ok := p.store.(driver.GroupStore); ok {
				p.must("queue", "create", "tenants")
				p.must("enqueue", "tenants", "{}", "--group", "acme")
				p.must("queue", "group", "hold", "tenants", "acme", "5m", "--reason", "answered 429")
				f := p.finds(doctor.CheckQueue, doctor.Warning, "tenants", "group acme is held until ")
				contains(t, f.Found, " UTC (answered 429): 1 job waits")
				same(t, "next step", f.Next, "penstock queue group hold tenants acme 0")
				p.must("enqueue", "tenants", "{}")
				p.finds(doctor.CheckQueue, doctor.Critical, "tenants", "no worker seems to run: 1 job is ready")
				if beats, ok := p.queues().DriverQueue("tenants").(driver.Heartbeater); ok {
					for _, w := range []admin.Worker{{Name: "w1", Groups: []string{"acme"}}, {Name: "w2", Stopped: true}} {
						if err := beats.Heartbeat(t.Context(), w); err != nil {
							t.Fatal(err)
						}
					}
					p.finds(doctor.CheckQueue, doctor.Critical, "tenants", "no worker seems to take jobs without a group: 1 job is ready")
					if err := beats.Heartbeat(t.Context(), admin.Worker{Name: "w3", Groups: []string{""}}); err != nil {
						t.Fatal(err)
					}
					f := p.finds(doctor.CheckQueue, doctor.Critical, "tenants", "worker w3 runs but gets none of its jobs: 1 job is ready")
					if strings.Contains(f.Found+f.Why+f.Next, "transaction") {
						t.Errorf("a transaction is blamed that does not exist: %+v", f)
					}
					open, err := pgx.Connect(t.Context(), strings.TrimPrefix(p.url, "portable+"))
					if err != nil {
						t.Fatal(err)
					}
					defer func() { _ = open.Close(context.Background()) }()
					if _, err := open.Exec(t.Context(), "begin isolation level repeatable read; select 1"); err != nil {
						t.Fatal(err)
					}
					f = p.finds(doctor.CheckQueue, doctor.Critical, "tenants", fmt.Sprintf("; session %d of ", open.PgConn().PID()))
					contains(t, f.Why+f.Next, "that transaction may hold them", fmt.Sprintf("select pg_terminate_backend(%d)", open.PgConn().PID()))
					if _, err := open.Exec(t.Context(), "rollback"); err != nil {
						t.Fatal(err)
					}
				}
				p.must("queue", "drop", "tenants", "--yes")
			}
			p.healthy(doctor.CheckQueue)
		})
		t.Run("jobs that fail", func(t *testing.T) {
			p := &patient{&desk{t: t, store: p.store, open: p.open}, p.url}
			p.must("queue", "create", "failing")
			p.must("enqueue", "failing", "{}", "--delay", "1h")
			p.healthy(doctor.CheckFailing)
			fail := func(kinds ...string) {
				t.Helper()
				for _, kind := range kinds {
					p.must("enqueue", "failing", "{}", "--kind", kind)
				}
				for _, j := range p.claim("failing", "") {
					if dead, err := p.queues().DriverQueue("failing").Retry(t.Context(), j.Lease, time.Hour, "no SMTP server answers\nTraceback"); dead || err != nil {
						t.Fatal(dead, err)
					}
				}
			}
			fail("welcome", "welcome")
			p.must("queue", "create", "keyed")
			for range 3 {
				p.must("enqueue", "keyed", "{}", "--key", "acme")
			}
			first := p.claim("keyed", "")[0]
			if dead, err := p.queues().DriverQueue("keyed").Retry(t.Context(), first.Lease, time.Hour, "no"); dead || err != nil {
				t.Fatal(dead, err)
			}
			if jobs := p.claim("keyed", ""); len(jobs) > 0 { // which sets the others aside
				t.Fatal(jobs)
			}
			blocks := p.finds(doctor.CheckFailing, doctor.Warning, "keyed", fmt.Sprintf(`next attempt; 2 jobs wait behind job %d, because of its key "acme"; the last error, of attempt 1: no`, first.ID))
			contains(t, blocks.Next, fmt.Sprintf("penstock job cancel keyed %d", first.ID))
			contains(t, unwrapped(p.must("status", "keyed")), fmt.Sprintf(`2 jobs wait behind job %d, because of its key "acme"`, first.ID))
			p.must("queue", "drop", "keyed", "--yes")
			const wait = ` have failed and wait for their next attempt; the last error, of attempt 1: no SMTP server answers`
			f := p.finds(doctor.CheckFailing, doctor.Warning, "failing", `2 jobs of kind "welcome"`+wait)
			if strings.Contains(f.Found, "Traceback") {
				t.Errorf("a report of many lines is shown: %s", f.Found)
			}
			contains(t, unwrapped(p.must("status")), `failing: 2 jobs of kind "welcome"`+wait+"\n")
			fail("digest")
			p.finds(doctor.CheckFailing, doctor.Warning, "failing", "3 jobs"+wait)
			p.must("queue", "drop", "failing", "--yes")
		})
		t.Run("a kind that no worker takes", func(t *testing.T) {
			p := &patient{&desk{t: t, store: p.store, open: p.open}, p.url}
			if _, ok := p.store.(driver.WorkerStore); !ok {
				t.Skip("the store keeps no heartbeats")
			}
			p.must("queue", "create", "kinds")
			for _, kind := range []string{"welcom", "welcom", "digest"} {
				p.must("enqueue", "kinds", "{}", "--kind", kind, "--delay", "1h") // as one that was given back
			}
			says := func(w admin.Worker) {
				t.Helper()
				if err := p.queues().DriverQueue("kinds").(driver.Heartbeater).Heartbeat(t.Context(), w); err != nil {
					t.Fatal(err)
				}
			}
			says(admin.Worker{Name: "old", Stopped: true})
			says(admin.Worker{Name: "w1", Unhandled: []string{"digest", "gone", "welcom"}})
			p.finds(doctor.CheckKinds, doctor.Warning, "kinds", `no worker has a handler for "digest" (1) "welcom" (2)`)
			says(admin.Worker{Name: "w2", Unhandled: []string{"gone", "welcom"}})
			p.finds(doctor.CheckKinds, doctor.Warning, "kinds", `no worker has a handler for "welcom" (2)`)
			contains(t, unwrapped(p.must("status")), `kinds: no worker has a handler for "welcom" (2); start a worker that has the handler`)
			says(admin.Worker{Name: "w3", Unhandled: []string{"gone"}})
			p.healthy(doctor.CheckKinds)
			p.must("queue", "drop", "kinds", "--yes")
		})
		t.Run("a schedule that no worker fires", func(t *testing.T) {
			p := &patient{&desk{t: t, store: p.store, open: p.open}, p.url}
			p.must("queue", "create", "reports")
			for _, name := range []string{"nightly", "weekly", "monthly"} {
				p.must("schedule", "set", "reports", name, "--cron", "@yearly", "{}")
			}
			p.healthy(doctor.CheckSchedules)
			p.must("schedule", "pause", "reports", "monthly")
			if !slices.ContainsFunc(p.examined(), func(f doctor.Finding) bool {
				return f.Check == doctor.CheckSchedules && f.Severity == doctor.OK && f.About == "reports" && f.Found == "paused: monthly"
			}) {
				t.Error("a paused schedule is not named")
			}
			p.overdue("nightly", time.Hour)
			f := p.finds(doctor.CheckSchedules, doctor.Warning, "reports", "schedule nightly of reports is overdue since ")
			contains(t, f.Found, " UTC: no worker of the queue seems to run")
			contains(t, unwrapped(p.must("status", "reports")), "reports: schedule nightly of reports is overdue since ", "; start the worker of your application, or: penstock work reports --exec COMMAND")
			same(t, "next step", f.Next, "start the worker of your application, or: penstock work reports --exec COMMAND")
			p.overdue("weekly", 2*time.Hour)
			p.overdue("monthly", 3*time.Hour)
			contains(t, p.finds(doctor.CheckSchedules, doctor.Warning, "reports", "schedule weekly of reports").Found, " UTC, with 1 other: no worker")
			p.must("queue", "pause", "reports")
			p.healthy(doctor.CheckSchedules)
			p.must("queue", "resume", "reports")
			p.claim("reports", "")
			p.healthy(doctor.CheckSchedules)
			p.must("queue", "drop", "reports", "--yes")
		})
		t.Run("a barrier that no program seals", func(t *testing.T) {
			p := &patient{&desk{t: t, store: p.store, open: p.open}, p.url}
			p.must("queue", "create", "parts")
			q, ok := p.queues().DriverQueue("parts").(driver.BarrierQueue)
			if !ok {
				t.Skip("the store has no barriers")
			}
			var barriers [2]int64
			for i := range barriers {
				var err error
				if barriers[i], err = q.Barrier(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := p.queues().DriverQueue("parts").Enqueue(t.Context(), penstock.NewJob{Holds: barriers[0]}, penstock.NewJob{WaitsFor: barriers[:]}, penstock.NewJob{WaitsFor: barriers[:1]}); err != nil {
				t.Fatal(err)
			}
			for _, f := range p.examined("--old", "1h") { // it is young
				if f.Check == doctor.CheckBarriers && f.Severity != doctor.OK {
					t.Error(told([]doctor.Finding{f}))
				}
			}
			if err := q.Seal(t.Context(), barriers[1]); err != nil {
				t.Fatal(err)
			}
			f := p.finds(doctor.CheckBarriers, doctor.Warning, "parts", fmt.Sprintf("barrier %d is not sealed: 2 jobs wait for it, the oldest for ", barriers[0]), "--old", "1ms")
			contains(t, f.Found, "; 1 job holds it and has not ended")
			contains(t, f.Next, fmt.Sprintf("select penstock.seal('parts', %d)", barriers[0]))
			if err := q.Seal(t.Context(), barriers[0]); err != nil {
				t.Fatal(err)
			}
			if i := slices.IndexFunc(p.examined("--old", "1ms"), func(f doctor.Finding) bool { return f.Check == doctor.CheckBarriers }); i >= 0 {
				t.Error("a barrier that is sealed is reported")
			}
			p.must("queue", "drop", "parts", "--yes")
		})
	})
}

// overdue has a schedule due since then, as if no worker had run.
func (p *patient) overdue(schedule string, since time.Duration) {
	p.t.Helper()
	var err error
	if file, ok := strings.CutPrefix(p.url, "sqlite:"); ok {
		var db *sql.DB
		if db, err = sqlite.OpenDB(file); err == nil {
			defer db.Close()
			_, err = db.Exec("update penstock_schedules set next = ? where name = ?", time.Now().Add(-since).UnixMicro(), schedule)
		}
	} else {
		table := "penstock._schedule"
		url, portable := strings.CutPrefix(p.url, "portable+")
		if portable {
			table = "penstock_portable.schedules"
		}
		var conn *pgx.Conn
		if conn, err = pgx.Connect(p.t.Context(), url); err == nil {
			defer func() { _ = conn.Close(context.Background()) }()
			_, err = conn.Exec(p.t.Context(), "update "+table+" set next = $1 where name = $2", time.Now().Add(-since), schedule)
		}
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

func TestDoctorFindsAWorkerThatHangs(t *testing.T) {
	t.Parallel()
	eachPatient(t, func(t *testing.T, p *patient) {
		p.must("queue", "create", "mails")
		p.jobs("mails", "1", "2")
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- work.Run(ctx, p.queues().DriverQueue("mails"), func(ctx context.Context, _ penstock.Job) error {
				<-ctx.Done()
				return ctx.Err()
			}, work.Options{Concurrency: 1, Worker: "w1", Lease: time.Minute, DrainTimeout: time.Millisecond})
		}()
		f := p.finds(doctor.CheckWorkers, doctor.Critical, "mails", "no job has begun or ended: job 1 (attempt 1")
		contains(t, f.Found+f.Next, "held by w1", "1 job is ready", "end the process of w1, by a second signal, as the first one waits for the job: the job runs again, and may hang the next worker too. So limit its time, by the worker's --timeout or the job's own timeout. To give the job up, which then counts as done: penstock job cancel mails 1")
		stop()
		<-ended
		p.must("job", "cancel", "mails", "1", "2")
		p.healthy(doctor.CheckWorkers)

		// Its worker is gone, and there is no other.
		p.jobs("mails", "3")
		if jobs, err := p.queues().DriverQueue("mails").Claim(t.Context(), driver.Claim{Jobs: 1, Lease: time.Second, Worker: "w2"}); err != nil || len(jobs) != 1 {
			t.Fatal(jobs, err)
		}
		p.finds(doctor.CheckWorkers, doctor.Critical, "mails", "held by w2, whose lease ended")
	})
}

// One job is held while others of its queue come and go.
func TestDoctorFindsAJobThatRunsFarLonger(t *testing.T) {
	t.Parallel()
	eachPatient(t, func(t *testing.T, p *patient) {
		if strings.HasPrefix(p.url, "portable+") {
			t.Skip("the profile does not know when a lease began, once later ones have ended")
		}
		p.must("queue", "create", "mails")
		p.jobs("mails", "slow")
		q := p.queues().DriverQueue("mails")
		claim := func(n int) (leases []int64) {
			jobs, err := q.Claim(t.Context(), driver.Claim{Jobs: n, Lease: time.Hour, Worker: "w1"})
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range jobs {
				leases = append(leases, j.Lease)
			}
			return leases
		}
		claim(1)
		var jobs []penstock.NewJob
		for range 1100 {
			jobs = append(jobs, penstock.NewJob{Payload: []byte("quick")})
		}
		if _, err := q.Enqueue(t.Context(), jobs...); err != nil {
			t.Fatal(err)
		}
		if _, err := q.Ack(t.Context(), claim(len(jobs))...); err != nil {
			t.Fatal(err)
		}
		p.finds(doctor.CheckWorkers, doctor.Warning, "mails", "far longer than others run")
	})
}

func TestDoctorFindsADeadBroker(t *testing.T) {
	t.Parallel()
	p := newPatient(t, sqliteFile(t))
	p.outbox("orders")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	up := listener.Addr().String()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	down := closed.Addr().String()
	closed.Close()
	defer listener.Close()
	file := yaml(t, "database_url: "+p.url+"\nsubscriptions:\n  - {name: billing, outbox: orders, sink: 'amqp://"+down+"/'}\n  - {name: audit, outbox: gone, sink: discard}\n")
	o := invoke(t, "doctor", "--config", file, "--measure", "1ms")
	o.wants(t, terminal.ExitCheck, "2 critical findings need an operator")
	contains(t, terminal.OneLine(o.stdout), "critical  sink orders/billing → rabbitmq:", "gone/audit: the configuration names an outbox that is not there", "orders/billing: no relay has ever run it", "next: penstock outbox create")
	for _, f := range p.examined("--sink", "http://"+up+"/x#allow_private=true", "--sink", "stdout") {
		if f.Check == doctor.CheckSink && f.Severity != doctor.OK {
			t.Errorf("it is up: %v", f)
		}
	}
}

// Each sink that has a server is asked whether it is there. The secrets of those that have some are not shown.
func TestDoctorAsksEachSink(t *testing.T) {
	awstest.Login(t, awstest.KeyID, awstest.SecretKey, awstest.Token)
	p := newPatient(t, sqliteFile(t))
	p.outbox("orders")
	port, err := testserver.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	down := fmt.Sprintf("127.0.0.1:%d", port)
	at := "connect_timeout=1s&allow_private=true&endpoint=http://" + down
	sinks := map[string]string{
		"rabbitmq": "amqp://app:hunter2@" + down + "/", "nats": "nats://app:hunter2@" + down + "?connect_timeout=1s", "kafka": "kafka://" + down + "?delivery_timeout=2s",
		"redis": "redis://app:hunter2@" + down, "amqp1": "amqp1://app:hunter2@" + down, "webhook": "http://" + down + "/x#allow_private=true",
		"sqs": "sqs://sqs.eu-west-1.amazonaws.com/1/q?" + at, "sns": "sns://arn:aws:sns:eu-west-1:1:t?" + at, "pubsub": "pubsub://p/orders?timeout=1s&" + at,
	}
	for name, sink := range sinks {
		f := p.finds(doctor.CheckSink, doctor.Critical, "", down, "--sink", sink)
		for _, secret := range []string{"hunter2", awstest.SecretKey, awstest.Token} {
			if strings.Contains(fmt.Sprint(f), secret) {
				t.Errorf("%s: a secret is shown: %v", name, f)
			}
		}
	}
	for _, name := range drivers.SinkNames() {
		if sinks[name] == "" && !slices.Contains([]string{"discard", "stdout", "queue"}, name) {
			t.Errorf("doctor was not tried with %s", name)
		}
	}
}

func TestDoctorWithoutADatabase(t *testing.T) {
	t.Chdir(t.TempDir())
	o := invoke(t, "doctor", "--database-url", "postgres://app:hunter2@127.0.0.1:1/shop", "--sink", "discard")
	o.wants(t, terminal.ExitDatabase, "the database could not be looked at")
	contains(t, o.stdout, "critical  connection", "ok        sink discard")
	invoke(t, "doctor", "--database-url", "sqlite:x.db", "--measure", "0s").wants(t, terminal.ExitUsage, "--measure is 0")
	invoke(t, "doctor", "--database-url", "sqlite:x.db", "--sink", "what").wants(t, terminal.ExitUsage, "--sink: ")
	o = invoke(t, "doctor", "--database-url", "sqlite:x.db")
	if _, err := os.Stat("x.db"); o.code != terminal.ExitCheck || err == nil {
		t.Errorf("exit code %d: %s", o.code, o.stderr)
	}
	contains(t, o.stdout, "critical  schema x.db", "penstock migrate")
}
