package main

import (
	"bytes"
	"context"
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
	"github.com/penstock/penstock/internal/cli"
	"github.com/penstock/penstock/internal/cli/clitest"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/testserver"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/store/postgres/postgrestest"
	"github.com/penstock/penstock/store/sqlite"
	"github.com/penstock/penstock/work"
)

// patient is a database that doctor looks at.
type patient struct {
	*desk
	url string
}

func newPatient(t *testing.T, url string) *patient { return &patient{urlDesk(t, url), url} }

// examined runs doctor, with what is old and what is measured made short, and checks that its exit code fits.
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
	want := cli.ExitOK
	if doctor.Count(report.Findings, doctor.Critical) > 0 {
		want = cli.ExitCheck
	}
	if code != want {
		p.t.Errorf("exit code %d, want %d: %s", code, want, stderr.String())
	}
	return report.Findings
}

// finds waits until doctor finds it: what is old has to become so.
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

// healthy wants nothing worse than ok of the checks, or of any. The disk is the machine's.
func (p *patient) healthy(checks ...string) {
	p.t.Helper()
	for _, f := range p.examined() {
		if f.Severity != doctor.OK && f.Check != doctor.CheckDisk && (len(checks) == 0 || slices.Contains(checks, f.Check)) {
			p.t.Errorf("%s", told([]doctor.Finding{f}))
		}
	}
}

func told(all []doctor.Finding) string {
	var out strings.Builder
	for _, f := range all {
		fmt.Fprintf(&out, "\n%s %s %s: %s %v", f.Severity, f.Check, f.About, f.Found, f.Measured)
	}
	return out.String()
}

// subscribe takes a lease, which ends with the test, and fetches until something comes.
func (p *patient) subscribe(outbox string) (penstock.Source, penstock.Batch) {
	p.t.Helper()
	source, err := p.store.Subscribe(p.t.Context(), penstock.Subscribe{Outbox: outbox, Subscription: "billing", Holder: "r1", Lease: time.Hour})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { source.Close(context.Background()) })
	batch, err := source.Fetch(p.t.Context(), penstock.Limit{Messages: 100, Bytes: 1 << 20})
	if err != nil {
		p.t.Fatal(err)
	}
	return source, batch
}

// relayed is a subscription that has settled what there was, and is closed.
func (p *patient) relayed(outbox string) { p.relay(outbox, "billing", deliver) }

// eachPatient runs a test over the stores that have an examination of their own.
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
		if o := p.work("mails", nothingToDo, "--exec", "true"); o.code != cli.ExitOK {
			t.Fatal(o.stderr)
		}
		p.healthy()
		clitest.Contains(t, must(t, "doctor", "--database-url", p.url, "--measure", "1ms"), "ok        connection", "0 critical, 0 warnings")
	})
}

func TestDoctorFindsWhatWaits(t *testing.T) {
	t.Parallel()
	eachPatient(t, func(t *testing.T, p *patient) {
		t.Run("a subscription that nobody relays", func(t *testing.T) {
			p := &patient{&desk{t: t, store: p.store, open: p.open}, p.url}
			p.outbox("left")
			p.relayed("left")
			if err := p.store.Publish(t.Context(), "left", numbered(1)...); err != nil {
				t.Fatal(err)
			}
			p.finds(doctor.CheckSubscription, doctor.Critical, "left/billing", "no relay holds it, and 1 message waits")
			p.relayed("left")
			p.healthy(doctor.CheckSubscription)
		})
		t.Run("a relay that stands still", func(t *testing.T) {
			p := &patient{&desk{t: t, store: p.store, open: p.open}, p.url}
			p.outbox("still", numbered(1)...)
			source, batch := p.subscribe("still")
			p.finds(doctor.CheckRelay, doctor.Critical, "still/billing", "r1 holds it and has settled nothing")
			if err := source.(penstock.SinkReporter).ReportSink(t.Context(), time.Now().Add(-time.Hour), "no route to host"); err != nil {
				t.Fatal(err)
			}
			p.finds(doctor.CheckRelay, doctor.Critical, "still/billing", "taken nothing for 1h: no route to host")
			if err := errors.Join(source.(penstock.SinkReporter).ReportSink(t.Context(), time.Time{}, ""), source.Settle(t.Context(), penstock.Settled{Batch: batch})); err != nil {
				t.Fatal(err)
			}
			p.healthy(doctor.CheckRelay)
		})
		t.Run("a poisoned key", func(t *testing.T) {
			p := &patient{&desk{t: t, store: p.store, open: p.open}, p.url}
			p.outbox("poisoned", penstock.Message{Key: "ann", Topic: "t", Payload: []byte("x")}, penstock.Message{Key: "bob", Topic: "t", Payload: []byte("x")})
			p.relay("poisoned", "billing", func(m penstock.Message) penstock.Verdict {
				if m.Key == "bob" {
					return dies(m)
				}
				return penstock.Verdict{Outcome: penstock.Parked, RetryIn: time.Hour, Failures: []penstock.Failure{{Attempt: 1, At: time.Now(), Err: "it is not JSON"}}}
			})
			p.finds(doctor.CheckParked, doctor.Warning, "poisoned/billing", "ann, attempt 1: it is not JSON")
			p.finds(doctor.CheckDead, doctor.Warning, "poisoned/billing", "1 dead letter waits")
			p.must("outbox", "drop", "poisoned", "--yes")
			p.healthy(doctor.CheckParked, doctor.CheckDead)
		})
		t.Run("jobs that nobody runs", func(t *testing.T) {
			p := &patient{&desk{t: t, store: p.store, open: p.open}, p.url}
			p.must("queue", "create", "idle")
			p.jobs("idle", "{}")
			p.finds(doctor.CheckQueue, doctor.Critical, "idle", "no worker seems to run: 1 job is ready")
			p.must("queue", "pause", "idle")
			p.finds(doctor.CheckQueue, doctor.Warning, "idle", "it is paused")
			p.must("queue", "drop", "idle", "--yes")
			p.healthy(doctor.CheckQueue)
		})
	})
}

func TestDoctorFindsAWorkerThatHangs(t *testing.T) {
	t.Parallel()
	eachPatient(t, func(t *testing.T, p *patient) {
		p.must("queue", "create", "mails")
		p.jobs("mails", "1", "2")
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- work.Run(ctx, p.queues().Queue("mails"), func(ctx context.Context, _ penstock.Job) error {
				<-ctx.Done()
				return ctx.Err()
			}, work.Options{Concurrency: 1, Worker: "w1", Lease: time.Minute, DrainTimeout: time.Millisecond})
		}()
		f := p.finds(doctor.CheckWorkers, doctor.Critical, "mails", "no job has begun or ended: job 1 (attempt 1")
		clitest.Contains(t, f.Found+f.Next, "held by w1", "1 job is ready", "penstock job cancel mails 1")
		stop()
		<-ended
		p.must("job", "cancel", "mails", "1", "2")
		p.healthy(doctor.CheckWorkers)

		// Its worker is gone, and there is no other.
		p.jobs("mails", "3")
		if jobs, err := p.queues().Queue("mails").Claim(t.Context(), penstock.Claim{Jobs: 1, Lease: time.Second, Worker: "w2"}); err != nil || len(jobs) != 1 {
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
		q := p.queues().Queue("mails")
		claim := func(n int) (leases []int64) {
			jobs, err := q.Claim(t.Context(), penstock.Claim{Jobs: n, Lease: time.Hour, Worker: "w1"})
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
	for _, sink := range []string{"amqp://app:hunter2@" + down + "/", "nats://" + down + "?connect_timeout=1s", "kafka://" + down + "?delivery_timeout=2s", "http://" + down + "/x#allow_private=true"} {
		f := p.finds(doctor.CheckSink, doctor.Critical, "", down, "--sink", sink)
		if strings.Contains(fmt.Sprint(f), "hunter2") {
			t.Errorf("a password is shown: %v", f)
		}
	}
	file := yaml(t, "database_url: "+p.url+"\nsubscriptions:\n  - {name: billing, outbox: orders, sink: 'amqp://"+down+"/'}\n  - {name: audit, outbox: gone, sink: discard}\n")
	o := invoke(t, "doctor", "--config", file, "--measure", "1ms")
	o.wants(t, cli.ExitCheck, "2 critical findings need somebody")
	clitest.Contains(t, cli.OneLine(o.stdout), "critical  sink orders/billing → rabbitmq:", "gone/audit: the configuration names an outbox that is not there", "orders/billing: no relay has ever run it", "next: penstock outbox create")
	for _, f := range p.examined("--sink", "http://"+up+"/x#allow_private=true", "--sink", "stdout") {
		if f.Check == doctor.CheckSink && f.Severity != doctor.OK {
			t.Errorf("it is up: %v", f)
		}
	}
}

// What others do to a server, and to the tables.
func TestDoctorFindsWhatIsDoneToPostgres(t *testing.T) {
	t.Parallel()
	server := testserver.StartPostgres(t, "fsync = on", "full_page_writes = on", "max_prepared_transactions = 5", "wal_level = logical")
	database := postgrestest.OnServer(server.URL)
	on := func(t *testing.T) (*patient, *postgrestest.DB) {
		p := newPatient(t, database(t))
		return p, postgrestest.On(t, p.url)
	}
	t.Run("a pinned snapshot", func(t *testing.T) {
		p, db := on(t)
		tx, err := db.Conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "select count(*) from pg_class"); err != nil {
			t.Fatal(err)
		}
		f := p.finds(doctor.CheckHorizon, doctor.Warning, "old-snapshot", "idle in a transaction")
		clitest.Contains(t, f.Found+f.Next+told([]doctor.Finding{f}), fmt.Sprintf("session %d", db.Conn.PgConn().PID()), "pg_terminate_backend", "since its last query began")
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.healthy(doctor.CheckHorizon)
	})
	t.Run("a prepared transaction", func(t *testing.T) {
		p, db := on(t)
		for _, sql := range []string{"create table t (n int)", "begin", "insert into t values (1)", "prepare transaction 'forgotten'"} {
			db.Exec(sql)
		}
		p.finds(doctor.CheckHorizon, doctor.Warning, "prepared", "'forgotten'")
		db.Exec("rollback prepared 'forgotten'")
		p.healthy(doctor.CheckHorizon)
	})
	t.Run("a replication slot", func(t *testing.T) {
		p, db := on(t)
		db.Exec("select pg_create_logical_replication_slot('debezium', 'pgoutput')")
		defer db.Exec("select pg_drop_replication_slot('debezium')")
		found := false
		for _, f := range p.examined() {
			found = found || f.Check == doctor.CheckHorizon && f.About == "replication-slot" && strings.Contains(f.Found, "debezium") && f.Next != ""
		}
		if !found {
			t.Error("nothing is said of the slot")
		}
	})
	t.Run("a subscription that holds segments", func(t *testing.T) {
		p, db := on(t)
		small, err := postgres.Open(t.Context(), p.url, postgres.Options{Segments: 3, SegmentBytes: 64 << 10})
		if err != nil {
			t.Fatal(err)
		}
		defer small.Close()
		if err := small.CreateOutbox(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		p.relayed("orders")
		fill := func() {
			for range 200 {
				if err := small.Publish(t.Context(), "orders", penstock.Message{Topic: "t", Payload: bytes.Repeat([]byte("x"), 1000)}); err != nil {
					t.Fatal(err)
				}
			}
		}
		sealed := func(n int64) {
			db.Eventually("segments are sealed", func() bool {
				if err := small.Maintain(t.Context(), "orders"); err != nil {
					t.Fatal(err)
				}
				return db.Number(`select count(*) from penstock._segments('orders') s where pg_relation_size(s.oid) > 0 and s.slot <> pg_sequence_last_value('penstock."_orders.slot"')`) >= n
			})
		}
		fill()
		sealed(1)
		p.finds(doctor.CheckSegments, doctor.Warning, "orders", "1 of 3 segments are sealed and cannot be given back, because of subscription billing")
		fill()
		sealed(2)
		p.finds(doctor.CheckSegments, doctor.Critical, "orders", "2 of 3 segments")
		p.relayed("orders")
		p.healthy(doctor.CheckSegments)
	})
	t.Run("a missing index on an adopted table", func(t *testing.T) {
		p, db := on(t)
		db.Exec(outboxMessages)
		f := p.finds(doctor.CheckAdopted, doctor.Warning, "outbox_messages", "[missing-index]", "--adopt", "dotnet", "--table", "outbox_messages")
		clitest.Contains(t, f.Next, "create index concurrently")
		must(t, "adopt", "check", "--preset", "dotnet", "--fix", "--yes", "--database-url", p.url)
		for _, f := range p.examined("--adopt", "dotnet", "--table", "outbox_messages") {
			if f.Check == doctor.CheckAdopted && f.Severity != doctor.OK {
				t.Errorf("with the index: %v", f)
			}
		}
	})
	t.Run("a function that somebody has changed", func(t *testing.T) {
		p, db := on(t)
		db.Exec("alter function penstock._segments(text) cost 7")
		p.healthy(doctor.CheckSchema)
		db.Exec("create or replace function penstock._segments(outbox text) returns table (slot int, oid oid) language sql stable as 'select 1, 1::oid where false'")
		f := p.finds(doctor.CheckSchema, doctor.Warning, "", "_segments")
		clitest.Contains(t, f.Next, "penstock migrate")
		must(t, "migrate", "--database-url", p.url)
		p.healthy(doctor.CheckSchema)
	})
	t.Run("settings of the role", func(t *testing.T) {
		p, db := on(t)
		db.Exec("alter database " + pgx.Identifier{db.Conn.Config().Database}.Sanitize() + " set synchronous_commit = off")
		p.finds(doctor.CheckSettings, doctor.Warning, "", "synchronous_commit is off", "--sink", "stdout")
	})
	t.Run("a role without rights", func(t *testing.T) {
		p, db := on(t)
		p.outbox("orders")
		db.Exec("drop role if exists app")
		db.Exec("create role app login")
		defer db.Exec("drop role app")
		app := strings.Replace(p.url, "postgres@", "app@", 1)
		file := yaml(t, "database_url: "+app+"\nsubscriptions:\n  - {name: billing, outbox: orders, sink: discard}\n")
		o := invoke(t, "doctor", "--config", file, "--measure", "1ms")
		clitest.Contains(t, cli.OneLine(o.stdout), "critical  permissions: ", "permission denied for schema penstock", "penstock outbox grant")
		db.Exec("grant usage on schema penstock to app")
		o = invoke(t, "doctor", "--config", file, "--measure", "1ms")
		clitest.Contains(t, cli.OneLine(o.stdout), "critical  permissions: role app may not run the relay", "penstock outbox grant")
		must(t, "outbox", "grant", "app", "--relay", "--database-url", p.url)
		db.Exec("grant execute on function pg_control_system() to app")
		o = invoke(t, "doctor", "--config", file, "--measure", "1ms")
		if o.code != cli.ExitOK {
			t.Errorf("exit code %d: %s%s", o.code, o.stdout, o.stderr)
		}
		db.Exec("drop owned by app")
	})
	t.Run("a pooler in between", func(t *testing.T) {
		p, _ := on(t)
		pooler := testserver.StartPgBouncer(t, p.url)
		through := strings.Replace(pooler.URL, "/postgres?", p.url[strings.LastIndex(p.url, "/"):strings.LastIndex(p.url, "?")]+"?", 1) + "&default_query_exec_mode=exec"
		(&patient{p.desk, through}).finds(doctor.CheckPooler, doctor.Warning, "", "another server process for every transaction")
		p.healthy(doctor.CheckPooler)
	})
}

func TestDoctorFindsAClockThatIsWrong(t *testing.T) {
	t.Parallel()
	server := testserver.StartPostgresWithClock(t)
	p := newPatient(t, postgrestest.OnServer(server.URL)(t))
	portable := newPatient(t, "portable+"+testserver.Database(t, server.URL))
	p.healthy(doctor.CheckClock)
	portable.healthy(doctor.CheckClock)
	if err := server.SetClock(-time.Hour); err != nil {
		t.Fatal(err)
	}
	p.finds(doctor.CheckClock, doctor.Warning, "", "differ by 1h0m0s")
	portable.finds(doctor.CheckClock, doctor.Warning, "", "the margin for late commits is 10s")
}

// The portable profile's engine is tried for what the profile counts on.
func TestDoctorOfThePortableProfile(t *testing.T) {
	t.Parallel()
	direct := testserver.Database(t, testserver.PostgresURL(t))
	p := newPatient(t, "portable+"+direct)
	p.outbox("orders")
	p.relayed("orders")
	p.healthy()
	seen := map[string]string{}
	for _, f := range p.examined() {
		seen[f.Check] += f.Found
	}
	for check, text := range map[string]string{doctor.CheckConnection: "PostgreSQL answers", doctor.CheckServer: "in the dialect of PostgreSQL", doctor.CheckIsolation: "read committed", doctor.CheckListen: "LISTEN and NOTIFY work",
		doctor.CheckLocks: "SKIP LOCKED passes them over", doctor.CheckSchema: "the tables have version", doctor.CheckClock: "of a margin of 10s", doctor.CheckPlans: "fetch reads what it returns"} {
		if !strings.Contains(seen[check], text) {
			t.Errorf("%s is %q, without %q", check, seen[check], text)
		}
	}
	p.must("queue", "create", "mails")
	p.jobs("mails", "1")
	if jobs, err := p.queues().Queue("mails").Claim(t.Context(), penstock.Claim{Jobs: 1, Lease: time.Second, Worker: "w2"}); err != nil || len(jobs) != 1 {
		t.Fatal(jobs, err)
	}
	p.finds(doctor.CheckWorkers, doctor.Critical, "mails", "held by w2, whose lease ended")
	p.must("queue", "drop", "mails", "--yes")

	pooler := testserver.StartPgBouncer(t, direct)
	through := strings.Replace(pooler.URL, "/postgres?", direct[strings.LastIndex(direct, "/"):strings.LastIndex(direct, "?")]+"?", 1)
	for _, f := range (&patient{p.desk, "portable+" + through}).examined() {
		if f.Severity != doctor.OK && f.Check != doctor.CheckDisk {
			t.Errorf("behind a pooler: %+v", f)
		}
	}
	conn, err := pgx.Connect(t.Context(), direct)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(t.Context(), "alter database "+pgx.Identifier{conn.Config().Database}.Sanitize()+" set default_transaction_isolation = 'repeatable read'"); err != nil {
		t.Fatal(err)
	}
	p.finds(doctor.CheckIsolation, doctor.Warning, "", "transactions are repeatable read")
	if _, err := conn.Exec(t.Context(), "drop schema penstock_portable cascade"); err != nil {
		t.Fatal(err)
	}
	p.finds(doctor.CheckSchema, doctor.Critical, "", "there are no tables")
}

func TestDoctorFindsWhatIsDoneToAFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "test.db")
	p := newPatient(t, "sqlite:"+file)
	p.outbox("orders", numbered(1)...)
	db, err := sqlite.OpenDB(file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil) // immediate
	if err != nil {
		t.Fatal(err)
	}
	p.finds(doctor.CheckLock, doctor.Critical, file, "another program has been writing")
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	p.healthy(doctor.CheckLock, doctor.CheckIntegrity)

	// An index that lacks an entry.
	for _, sql := range []string{"create table t (n int)", "create index t_n on t (n)", "insert into t values (1)", "pragma writable_schema = on",
		"update sqlite_schema set rootpage = (select rootpage from sqlite_schema where name = 'penstock_outboxes') where name = 't_n'", "pragma writable_schema = reset"} {
		if _, err := db.Exec(sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	if f := p.finds(doctor.CheckIntegrity, doctor.Critical, file, ""); f.Found == "" {
		t.Error("it does not say what is wrong")
	}
}

func TestDoctorWithoutADatabase(t *testing.T) {
	t.Chdir(t.TempDir())
	o := invoke(t, "doctor", "--database-url", "postgres://app:hunter2@127.0.0.1:1/shop", "--sink", "discard")
	o.wants(t, cli.ExitDatabase, "the database could not be looked at")
	clitest.Contains(t, o.stdout, "critical  connection", "ok        sink discard")
	invoke(t, "doctor", "--database-url", "sqlite:x.db", "--measure", "0s").wants(t, cli.ExitUsage, "--measure is 0")
	invoke(t, "doctor", "--database-url", "sqlite:x.db", "--sink", "what").wants(t, cli.ExitUsage, "--sink: ")
	o = invoke(t, "doctor", "--database-url", "sqlite:x.db")
	if _, err := os.Stat("x.db"); o.code != cli.ExitCheck || err == nil {
		t.Errorf("exit code %d: %s", o.code, o.stderr)
	}
	clitest.Contains(t, o.stdout, "critical  schema x.db", "penstock migrate")
}
