package main

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/store/sqlite"
)

// Changes by other users to a server, and to the tables.
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
		contains(t, f.Found+f.Next+told([]doctor.Finding{f}), fmt.Sprintf("session %d", db.Conn.PgConn().PID()), "pg_terminate_backend", "(ends that session and rolls back its transaction)", "since its last query began")
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.healthy(doctor.CheckHorizon)
	})
	t.Run("a session that waits for another", func(t *testing.T) {
		p, db := on(t)
		p.must("queue", "create", "mails")
		const enqueue = "select penstock.enqueue('mails', 'x', unique_key => 'order:7')"
		db.Exec("begin")
		db.Exec(enqueue)
		waits := db.Connect()
		waited := make(chan error, 1)
		go func() {
			_, err := waits.Exec(t.Context(), "begin; "+enqueue)
			waited <- err
		}()
		holder, victim := db.Conn.PgConn().PID(), waits.PgConn().PID()
		f := p.finds(doctor.CheckHorizon, doctor.Warning, "old-snapshot", fmt.Sprintf("; waiting for a lock of it: session %d", victim))
		contains(t, f.Found+f.Next, fmt.Sprintf("session %d of", holder), fmt.Sprintf("pg_terminate_backend(%d)", holder))
		// The victim has no separate finding, also when its transaction is as old.
		if _, err := db.Connect().Exec(t.Context(), "select pg_sleep(1.2)"); err != nil {
			t.Fatal(err)
		}
		for _, f := range p.examined() {
			if strings.Contains(f.Found, fmt.Sprintf("session %d of", victim)) || strings.Contains(f.Next, fmt.Sprintf("(%d)", victim)) {
				t.Errorf("the session that waits is to be ended: %+v", f)
			}
		}
		db.Exec("rollback")
		if err := <-waited; err != nil {
			t.Fatal(err)
		}
		if _, err := waits.Exec(t.Context(), "rollback"); err != nil {
			t.Fatal(err)
		}
		p.healthy(doctor.CheckHorizon)
	})
	t.Run("an advisory lock of ours", func(t *testing.T) {
		p, db := on(t)
		waits := db.Connect()
		waited := make(chan error, 1)
		for _, lock := range []string{"1885695596, 1", "'penstock._queue'::regclass::oid::int, 1"} {
			db.Exec("select pg_advisory_lock(" + lock + "), pg_advisory_lock(42, 1)")
			go func() {
				_, err := waits.Exec(t.Context(), "select pg_advisory_xact_lock("+lock+")")
				waited <- err
			}()
			f := p.finds(doctor.CheckAdvisory, doctor.Warning, "", "and 1 wait for them")
			// 42 does not belong to Penstock.
			contains(t, f.Found+f.Next, fmt.Sprintf("session %d", db.Conn.PgConn().PID()), "has had 1 of Penstock's advisory locks for ", "pg_terminate_backend")
			db.Exec("select pg_advisory_unlock(" + lock + ")")
			if err := <-waited; err != nil {
				t.Fatal(err)
			}
			p.healthy(doctor.CheckAdvisory)
		}
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
	t.Run("a prepared transaction that holds a segment", func(t *testing.T) {
		p, db := on(t)
		p.must("outbox", "create", "orders")
		for _, sql := range []string{"begin", "insert into penstock.orders (topic, payload) values ('t', '{}')", "prepare transaction 'it''s forgotten'", "select penstock._rotate('orders', true)"} {
			db.Exec(sql)
		}
		p.relayed("orders")
		f := p.finds(doctor.CheckSegments, doctor.Warning, "orders", "because of prepared transaction 'it''s forgotten' (")
		contains(t, f.Next, "rollback prepared 'it''s forgotten', or commit prepared", "superuser")
		db.Exec("rollback prepared 'it''s forgotten'")
		p.healthy(doctor.CheckSegments)
	})
	t.Run("what a monitor's role may not see", func(t *testing.T) {
		p, db := on(t)
		p.must("queue", "create", "mails")
		db.Exec("create role monitor login")
		p.must("queue", "grant", "mails", "monitor", "--operate")
		p.jobs("mails", "1")
		p.claim("mails", "") // by a worker that dies
		p.jobs("mails", "2")
		as, err := url.Parse(p.url)
		if err != nil {
			t.Fatal(err)
		}
		as.User = url.User("monitor")
		monitor := &patient{&desk{t: t}, as.String()}
		f := monitor.finds(doctor.CheckQueue, doctor.Unknown, "", "in mails 1 job counts as running, and 1 job is ready")
		contains(t, f.Found+f.Next, "may not see whether jobs that count as running still have a worker", "as the owner of the schema")
		for _, f := range monitor.examined() {
			if f.Check == doctor.CheckQueue && f.Severity == doctor.OK {
				t.Errorf("of a queue that it may not examine, a role is told %q", f.Found)
			}
		}
		// A worker lives, and its group has no jobs. The role does not see that.
		p.must("queue", "create", "reports")
		p.must("queue", "grant", "reports", "monitor", "--operate")
		if err := p.queues().DriverQueue("reports").(driver.Heartbeater).Heartbeat(t.Context(), admin.Worker{Name: "w", StartedAt: time.Now()}); err != nil {
			t.Fatal(err)
		}
		p.jobs("reports", "1")
		f = monitor.finds(doctor.CheckQueue, doctor.Critical, "reports", "1 job is ready, the oldest for ")
		contains(t, f.Found+f.Why+f.Next, ", and none runs", "may not see whether a worker lives", "as the owner of the tables", "penstock queue workers reports")
		if strings.Contains(f.Found, "no worker seems") {
			t.Errorf("of a worker that lives a role is told: %+v", f)
		}
		if o := invoke(t, "status", "--database-url", as.String()); !strings.Contains(o.stderr, "leases of running jobs are not shown: this role may not read them") {
			t.Errorf("status says nothing of the leases: %+v", o)
		}
	})
	t.Run("a replication slot", func(t *testing.T) {
		p, db := on(t)
		db.Exec("select pg_create_logical_replication_slot('debezium', 'pgoutput')")
		defer db.Exec("select pg_drop_replication_slot('debezium')")
		found := false
		for _, f := range p.examined() {
			found = found || f.Check == doctor.CheckHorizon && f.About == "replication-slot" && strings.Contains(f.Found, "debezium") && f.Severity == doctor.OK && f.Next == ""
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
		create := func() {
			if err := small.CreateOutbox(t.Context(), "orders"); err != nil {
				t.Fatal(err)
			}
		}
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
		create()
		fill()
		sealed(1)
		p.pasted(p.finds(doctor.CheckSegments, doctor.Warning, "orders", "because the outbox has no subscription yet").Next, "--yes")
		create()
		p.relayed("orders")
		fill()
		sealed(1)
		f := p.finds(doctor.CheckSegments, doctor.Warning, "orders", "1 of 3 segments are sealed and cannot be given back, because of subscription billing")
		same(t, "the first step loses no work", f.Next, "start the relay of the subscription; see the relays and the backlog: penstock status orders")
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
		contains(t, f.Next, "create index concurrently")
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
		contains(t, f.Next, "penstock migrate")
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
		contains(t, terminal.OneLine(o.stdout), "critical  permissions: ", "permission denied for schema penstock", "penstock outbox grant")
		db.Exec("grant usage on schema penstock to app")
		o = invoke(t, "doctor", "--config", file, "--measure", "1ms")
		contains(t, terminal.OneLine(o.stdout), "critical  permissions: role app may not run the relay", "penstock outbox grant")
		works := strings.Replace(file, ".yaml", "-works.yaml", 1)
		if err := os.WriteFile(works, []byte("database_url: "+app+"\nworkers: [{queue: mails, exec: 'true'}]\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		p.must("queue", "create", "mails")
		o = invoke(t, "doctor", "--config", works, "--measure", "1ms")
		contains(t, terminal.OneLine(o.stdout), "critical  permissions: role app may not work on queue mails", "penstock queue grant mails app --work")
		p.must("queue", "grant", "mails", "app", "--work")
		for at, severity := range map[string]string{
			file:  "warning   permissions: role app may not run the relay, and the configuration has it do so; it may work on mails",
			works: "ok        permissions: role app may work on mails",
		} {
			o = invoke(t, "doctor", "--config", at, "--measure", "1ms")
			if contains(t, terminal.OneLine(o.stdout), severity); o.code != terminal.ExitOK {
				t.Errorf("exit code %d: %s%s", o.code, o.stdout, o.stderr)
			}
		}
		must(t, "outbox", "grant", "app", "--relay", "--database-url", p.url)
		db.Exec("grant execute on function pg_control_system() to app")
		o = invoke(t, "doctor", "--config", file, "--measure", "1ms")
		if o.code != terminal.ExitOK {
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

// Doctor tests the requirements of the portable profile of its engine.
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
		doctor.CheckLocks: "SKIP LOCKED passes them over", doctor.CheckSchema: "the tables have version", doctor.CheckClock: "of a margin of 10s", doctor.CheckPlans: "fetch reads the rows that it returns and few others"} {
		if !strings.Contains(seen[check], text) {
			t.Errorf("%s is %q, without %q", check, seen[check], text)
		}
	}
	p.must("queue", "create", "mails")
	p.jobs("mails", "1")
	if jobs, err := p.queues().DriverQueue("mails").Claim(t.Context(), driver.Claim{Jobs: 1, Lease: time.Second, Worker: "w2"}); err != nil || len(jobs) != 1 {
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
	p.finds(doctor.CheckSchema, doctor.Critical, "", "there are no Penstock tables")
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
