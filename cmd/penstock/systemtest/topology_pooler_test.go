package systemtest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/test/testserver"
)

// pooled is a PostgreSQL behind a pooler in transaction mode. The pool is so small that clients
// keep using each other's sessions.
type pooled struct {
	server *testserver.Postgres
	pooler *testserver.PgBouncer
}

const poolSize = 4

func startPooled(t testing.TB, conf ...string) *pooled {
	t.Helper()
	p := &pooled{server: testserver.StartPostgres(t, conf...)}
	p.pooler = testserver.StartPgBouncer(t, p.server.URL, fmt.Sprintf("default_pool_size = %d", poolSize), "server_login_retry = 0.1")
	t.Log(p.pooler.Version)
	return p
}

// database makes a database and returns its URLs, direct and through the pooler.
func (p *pooled) database(t testing.TB) (direct, through string) {
	t.Helper()
	direct = testserver.Database(t, p.server.URL)
	through = onHost(t, direct, p.pooler.URL)
	var major, minor int
	if _, err := fmt.Sscanf(p.pooler.Version, "PgBouncer %d.%d", &major, &minor); err != nil {
		t.Fatalf("%s: %v", p.pooler.Version, err)
	}
	if major == 1 && minor < 21 { // it supports no prepared statements, whatever its client is
		through += "&default_query_exec_mode=exec"
	}
	return direct, through
}

// busy makes clients run short statements through the pooler until the returned function is
// called. So no client gets the same session twice in a row.
func busy(t testing.TB, url string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 2 * poolSize {
		all.Go(func() {
			conn, err := plainSession(ctx, url)
			if err != nil {
				t.Errorf("a client of the pooler: %v", err)
				return
			}
			defer conn.Close(context.WithoutCancel(ctx))
			for ctx.Err() == nil {
				if _, err := conn.Exec(context.WithoutCancel(ctx), "select pg_sleep(0.001)"); err != nil {
					t.Errorf("a client of the pooler: %v", err)
					return
				}
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// plainSession is a session without prepared statements.
func plainSession(ctx context.Context, url string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	return pgx.ConnectConfig(ctx, config)
}

// leaks are the remains of clients in the sessions of the pool: settings other than those that the
// pooler itself manages, advisory locks, temporary tables.
func leaks(t testing.TB, url string) (found []string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	var open []pgx.Tx // each holds on to a session, to see all of them
	for range poolSize {
		conn, err := plainSession(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(ctx)
		tx, err := conn.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, tx)
		rows, err := tx.Query(ctx, `
			select format('session %s: %s = %s', pg_backend_pid(), name, setting) from pg_settings
			 where source = 'session'
			   and name not in ('client_encoding', 'DateStyle', 'TimeZone', 'standard_conforming_strings', 'application_name', 'IntervalStyle')
			union all
			select format('session %s holds the advisory lock %s %s', pid, classid, objid) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()
			union all
			select format('session %s has the temporary table %s', pg_backend_pid(), relname) from pg_class where relnamespace = pg_my_temp_schema()
			union all
			select format('session %s listens to %s', pg_backend_pid(), c) from pg_listening_channels() c`)
		if err != nil {
			t.Fatal(err)
		}
		texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, texts...)
	}
	for _, tx := range open {
		_ = tx.Rollback(ctx)
	}
	return found
}

func wantNoLeaks(t testing.TB, url, after string) {
	t.Helper()
	if found := leaks(t, url); len(found) > 0 {
		t.Errorf("%s left in sessions that others use: %q", after, found)
	}
}

// worksOrSays runs penstock through a pooler. It must work, or refuse and name the pooler.
func worksOrSays(t testing.TB, args ...string) (worked bool) {
	t.Helper()
	o := pen(t, args...)
	switch {
	case o.code == 0:
		return true
	case strings.Contains(o.stderr, "pool"):
		t.Logf("penstock %q refuses: %s", args, o.stderr)
	default:
		t.Errorf("penstock %q: exit code %d, and it does not speak of the pooler: %s", args, o.code, o.stderr)
	}
	return false
}

// migrate through a pooler creates objects only in its schema, and leaves no lock and no setting.
// Nor do the other commands.
func TestTopologyPoolerCommands(t *testing.T) {
	topology(t)
	p := startPooled(t)
	for round := range times(1, 5) {
		direct, through := p.database(t)
		stop := busy(t, through)
		migrated := worksOrSays(t, "migrate", "--database-url", through)
		stop()
		wantNoLeaks(t, through, "migrate")
		elsewhere := texts(t, direct, `select n.nspname || '.' || c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
			where n.nspname not in ('penstock', 'pg_catalog', 'information_schema', 'pg_toast')`)
		if len(elsewhere) > 0 {
			t.Errorf("migrate made %d relations outside its schema: %q", len(elsewhere), elsewhere[:min(5, len(elsewhere))])
		}
		if !migrated {
			if left := texts(t, direct, "select relname::text from pg_class where relnamespace = to_regnamespace('penstock')"); len(left) > 0 {
				t.Errorf("migrate refused and left %d relations: %.5q", len(left), left)
			}
		}
		if out := must(t, "migrate", "--database-url", direct); migrated && !strings.Contains(out, "up to date") {
			t.Errorf("round %d: after a migration through the pooler, migrate says %q", round, out)
		}

		stop = busy(t, through)
		for _, args := range [][]string{
			{"outbox", "create", "orders"},
			{"queue", "create", "jobs"},
			{"inbox", "create", "billing"},
			{"publish", "orders", "--topic", "t", "--payload", "x"},
			{"enqueue", "jobs", "x"},
			{"status"},
			{"status", "orders"},
			{"outbox", "list"},
			{"queue", "list"},
			{"dead", "list", "jobs"},
			{"inbox", "status"},
			{"tail", "orders", "--limit", "1"},
		} {
			worksOrSays(t, append(args, "--database-url", through)...)
			wantNoLeaks(t, through, strings.Join(args, " "))
		}
		stop()
	}
}

// A relay that reaches the database through a pooler in transaction mode loses nothing when
// PostgreSQL crashes, with producers that do not wait for the disk. Xids may then be assigned
// again, and the relay's own connection to the pooler outlives the crash. Alternatively, the relay
// reports at the start that it cannot work there.
func TestTopologyPoolerCrashes(t *testing.T) {
	topology(t)
	p := startPooled(t, "wal_writer_delay = 1s", "synchronous_commit = off") // a crash takes back about this much
	direct, through := p.database(t)
	withOutbox(t, direct, "orders")
	l := newLedger(t, direct, "orders")
	l.database = through // producers may use any pooler
	broker := testserver.RabbitMQURL(t)
	queue := queueFor(t, broker)
	finish := readThroughInbox(t, l, broker, queue)
	run := func(database string) *process {
		return start(t, "relay", "--database-url", database, "--outbox", "orders", "--lease", "2s", "--sink", broker+"?routing_key="+queue)
	}
	relay := run(through)
	refused := false
	relay.await("word of how it goes", func() bool {
		refused = strings.Contains(relay.stderr.String(), "pool")
		return refused || strings.Contains(relay.stderr.String(), "took the lease")
	})
	if refused {
		t.Logf("the relay refuses: %s", relay.stderr.tail())
		relay.signal(syscall.SIGTERM)
		relay.wait()
		relay = run(direct)
	}
	for round := range times(3, 12) {
		stop := l.keepWriting(fmt.Sprint("round ", round), 6)
		before := l.count("rabbitmq")
		eventually(t, "messages flow", func() bool { return l.count("rabbitmq") > before+100 })
		if err := p.server.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := p.server.Start(); err != nil {
			t.Fatal(err)
		}
		before = l.count("rabbitmq")
		eventually(t, "messages flow again", func() bool { return l.count("rabbitmq") > before+100 })
		stop()
	}
	if !refused {
		wantNoLeaks(t, through, "a relay that runs")
	}
	relayed(t, direct, "orders")
	relay.signal(syscall.SIGTERM)
	if o := relay.wait(); o.code != 0 {
		t.Errorf("exit code %d: %s", o.code, o.stderr)
	}
	wantNoLeaks(t, through, "a relay that has ended")
	finish()
	gone := l.vanished(direct)
	l.mustBeSound(direct, "rabbitmq", gone)
	l.mustBeSound(direct, "inbox", gone)
}
