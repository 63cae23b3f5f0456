package testserver

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	amqp "github.com/rabbitmq/amqp091-go"
)

func query[T any](t *testing.T, url, sql string) T {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	var v T
	if err := conn.QueryRow(t.Context(), sql).Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestPostgresKeepsWhatWasCommitted(t *testing.T) {
	t.Parallel()
	p := StartPostgres(t, "work_mem = '5MB'")
	if got := query[string](t, p.URL, "show work_mem"); got != "5MB" {
		t.Errorf("work_mem = %s: the line for postgresql.conf was not used", got)
	}
	n := 0
	for name, end := range map[string]func() error{"Stop": p.Stop, "Kill": p.Kill} {
		n++
		if err := execute(p.URL, "create table if not exists kept (i int); insert into kept values (1)"); err != nil {
			t.Fatal(err)
		}
		if err := end(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := pgx.Connect(t.Context(), p.URL); err == nil {
			t.Fatalf("after %s the server still answers", name)
		}
		if err := p.Start(); err != nil {
			t.Fatalf("Start after %s: %v", name, err)
		}
		if got := query[int](t, p.URL, "select count(*) from kept"); got != n {
			t.Errorf("after %s and Start: %d rows, want %d", name, got, n)
		}
	}
}

func TestPostgresAsksOneRoleForItsPassword(t *testing.T) {
	t.Parallel()
	p := StartPostgres(t)
	if err := execute(p.URL, "create role "+PasswordRole+" login password 'right'"); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(p.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(PasswordRole, "right")
	if err := execute(u.String(), "select 1"); err != nil {
		t.Errorf("right password: %v", err)
	}
	u.User = url.UserPassword(PasswordRole, "wrong")
	var refused *pgconn.PgError
	if err := execute(u.String(), "select 1"); !errors.As(err, &refused) || refused.Code != "28P01" {
		t.Errorf("wrong password: got %v, want SQLSTATE 28P01", err)
	}
}

func TestRabbitMQKeepsWhatWasConfirmed(t *testing.T) {
	t.Parallel()
	r := StartRabbitMQ(t)
	n := 0
	for name, end := range map[string]func() error{"Stop": r.Stop, "Kill": r.Kill} {
		n++
		publishConfirmed(t, r.URL, "kept")
		if err := end(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := amqp.Dial(r.URL); err == nil {
			t.Fatalf("after %s the node still answers", name)
		}
		if err := r.Start(); err != nil {
			t.Fatalf("Start after %s: %v", name, err)
		}
		if got := depth(t, r.URL, "kept"); got != n {
			t.Errorf("after %s and Start: %d messages, want %d", name, got, n)
		}
	}
	out, err := r.Ctl("list_queues", "--quiet", "--no-table-headers", "name")
	if err != nil || strings.TrimSpace(out) != "kept" {
		t.Errorf("Ctl: %q, %v", out, err)
	}
}

func channel(t *testing.T, url string) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func publishConfirmed(t *testing.T, url, queue string) {
	t.Helper()
	ch := channel(t, url)
	if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	c, err := ch.PublishWithDeferredConfirmWithContext(t.Context(), "", queue, true, false,
		amqp.Publishing{DeliveryMode: amqp.Persistent})
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := c.WaitContext(t.Context()); err != nil || !ok {
		t.Fatalf("not confirmed: %v", err)
	}
}

func depth(t *testing.T, url, queue string) int {
	t.Helper()
	q, err := channel(t, url).QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	return q.Messages
}

// A test process that is killed has no chance to clean up: its servers must
// end and their folders vanish all the same.
func TestServersEndWithTheirProcess(t *testing.T) {
	t.Parallel()
	if os.Getenv("TESTSERVER_CHILD") != "" {
		p, r := StartPostgres(t), StartRabbitMQ(t)
		os.Stdout.WriteString(strings.Join([]string{p.Dir(), p.URL, r.Dir(), r.URL}, " ") + "\n")
		select {} // until killed
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestServersEndWithTheirProcess$")
	cmd.Env = append(os.Environ(), "TESTSERVER_CHILD=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // "signal: killed"
	if f := strings.Fields(line); err != nil || len(f) != 4 {
		if strings.Contains(line, "SKIP") || strings.Contains(line, "is not installed") {
			t.Skip("a server is not installed: ", line)
		}
		t.Fatalf("the child did not start its servers: %q, %v", line, err)
	} else {
		awaitGone(t, f[0], f[1])
		awaitGone(t, f[2], f[3])
	}
}

func awaitGone(t *testing.T, dir, server string) {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		conn, dialErr := new(net.Dialer).DialContext(ctx, "tcp", u.Host)
		if dialErr == nil {
			conn.Close()
		}
		_, statErr := os.Stat(dir)
		if dialErr != nil && os.IsNotExist(statErr) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("still there a minute after its process was killed: %s (stat: %v), %s (dial: %v)", dir, statErr, u.Host, dialErr)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func TestDatabase(t *testing.T) {
	server := PostgresURL(t)
	var name string
	t.Run("inner", func(t *testing.T) {
		db := Database(t, server)
		name = query[string](t, db, "select current_database()")
		if got := query[int](t, server, "select count(*) from pg_database where datname = '"+name+"'"); got != 1 {
			t.Errorf("%d databases %s", got, name)
		}
	})
	if got := query[int](t, server, "select count(*) from pg_database where datname = '"+name+"'"); got != 0 {
		t.Errorf("the database %s outlives its test", name)
	}
}

// verdict records how need ends a test.
type verdict struct {
	testing.TB
	skipped, failed string
}

func (v *verdict) Helper()        {}
func (v *verdict) Skip(a ...any)  { v.skipped = a[0].(error).Error() }
func (v *verdict) Fatal(a ...any) { v.failed = a[0].(error).Error() }

func TestMissingServer(t *testing.T) {
	missing := &MissingError{Server: "PostgreSQL", URLVar: EnvPostgres, BinVar: "PENSTOCK_TEST_PG_BIN"}

	t.Setenv("CI", "")
	v := &verdict{}
	need(v, missing)
	if v.failed != "" || !strings.Contains(v.skipped, "make test") || !strings.Contains(v.skipped, EnvPostgres) {
		t.Errorf("without CI: %+v, want a skip that names the next step", v)
	}

	t.Setenv("CI", "true")
	v = &verdict{}
	need(v, missing)
	if v.skipped != "" || v.failed == "" {
		t.Errorf("with CI=true: %+v, want a failure", v)
	}

	t.Setenv("CI", "")
	v = &verdict{}
	need(v, errors.New("it is installed and does not start"))
	if v.skipped != "" || v.failed == "" {
		t.Errorf("server that does not start: %+v, want a failure", v)
	}
}

func TestNamedFolderWithoutPrograms(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PENSTOCK_TEST_PG_BIN", dir)
	t.Setenv("PENSTOCK_TEST_RABBITMQ_BIN", dir)
	t.Setenv("PENSTOCK_TEST_MARIADB_BIN", dir)
	if _, err := mariadbBin(); err == nil || !strings.Contains(err.Error(), "PENSTOCK_TEST_MARIADB_BIN") {
		t.Errorf("MariaDB: %v", err)
	}
	if _, err := postgresBin(); err == nil || !strings.Contains(err.Error(), "PENSTOCK_TEST_PG_BIN") {
		t.Errorf("PostgreSQL: %v", err)
	}
	if _, err := rabbitmqBin(); err == nil || !strings.Contains(err.Error(), "PENSTOCK_TEST_RABBITMQ_BIN") {
		t.Errorf("RabbitMQ: %v", err)
	}
}

func TestNamedFolderForData(t *testing.T) {
	parent := t.TempDir()
	t.Setenv("PENSTOCK_TEST_DATA", parent)
	s := &server{name: "none", killSig: syscall.SIGKILL}
	if err := s.newDir(); err != nil {
		t.Fatal(err)
	}
	if filepath.Dir(s.Dir()) != parent {
		t.Errorf("the data are in %s", s.Dir())
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(s.Dir()); !os.IsNotExist(err) {
		t.Errorf("after Close: %v", err)
	}
}

func TestNewestVersionIsFound(t *testing.T) {
	for dir, want := range map[string]int{
		"/usr/lib/postgresql/15/bin":          15,
		"/opt/homebrew/opt/postgresql@17/bin": 17,
		"/usr/lib/postgresql/bin":             -1,
	} {
		if got := versionIn(filepath.FromSlash(dir)); got != want {
			t.Errorf("versionIn(%s) = %d, want %d", dir, got, want)
		}
	}
}

// A clock that is set moves for every session at once, in both directions, and
// nothing that waits for a time to pass is disturbed.
func TestClock(t *testing.T) {
	t.Parallel()
	p := StartPostgresWithClock(t)
	conn, err := pgx.Connect(t.Context(), p.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	for _, offset := range []time.Duration{0, -time.Hour, 48 * time.Hour, 1500 * time.Millisecond} {
		if err := p.SetClock(offset); err != nil {
			t.Fatal(err)
		}
		var now time.Time
		var slept string
		before := time.Now().Add(offset).Truncate(time.Microsecond)
		if err := conn.QueryRow(t.Context(), "select clock_timestamp(), pg_sleep(0.01)::text").Scan(&now, &slept); err != nil {
			t.Fatal(err)
		}
		if after := time.Now().Add(offset); now.Before(before) || now.After(after) {
			t.Errorf("set to %s the clock says %s, want between %s and %s", offset, now, before, after)
		}
	}
}

// Transactions of one client may run in several of the server's sessions, and of
// several clients in one.
func TestPgBouncer(t *testing.T) {
	t.Parallel()
	b := StartPgBouncer(t, StartPostgres(t).URL, "default_pool_size = 1")
	t.Log(b.Version)
	var pids [2]uint32
	for i := range pids {
		pids[i] = query[uint32](t, b.URL+"&default_query_exec_mode=simple_protocol", "select pg_backend_pid()::bigint")
	}
	if pids[0] != pids[1] {
		t.Errorf("the sessions are %d, want one and the same", pids)
	}
}

// Galera needs MariaDB's package, and installs it once.
func TestAMissingPackageIsNamedOnce(t *testing.T) {
	t.Setenv("PATH", "")
	for _, name := range []string{envServers, EnvMariaDB} {
		t.Setenv(name, "")
	}
	seen := map[string]bool{}
	for _, m := range MissingExtras() {
		if seen[m.Package] {
			t.Errorf("%s is missing twice", m.Package)
		}
		seen[m.Package] = true
	}
	if !seen["mariadb-plugin-rocksdb"] {
		t.Errorf("found without a PATH: %v", seen)
	}
}
