package systemtest

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/sqlite"
)

// refused runs penstock and requires one line on stderr that has the next step.
func refused(t *testing.T, code int, next string, args ...string) (o outcome) {
	t.Helper()
	o = pen(t, args...)
	lines := strings.Split(strings.TrimSpace(o.stderr), "\n")
	last := lines[len(lines)-1]
	if args[0] != "relay" && len(lines) != 1 {
		t.Errorf("penstock %q wrote %d lines: %s", args, len(lines), o.stderr)
	}
	if o.code != code || !strings.HasPrefix(last, "penstock: ") || !strings.Contains(last, next) {
		t.Errorf("penstock %q: exit code %d, stderr %q; want %d and %q", args, o.code, o.stderr, code, next)
	}
	return o
}

// verbs that need a migrated database, and the right to use it.
var verbs = []string{"status", "outbox list", "outbox create other", "publish orders --topic t", "tail orders", "relay --outbox orders --sink discard"}

func eachVerb(t *testing.T, code int, next, database string) {
	t.Helper()
	for _, verb := range verbs {
		refused(t, code, next, append(strings.Fields(verb), "--database-url", database)...)
	}
}

func TestNewerSchema(t *testing.T) {
	t.Parallel()
	database := ordersDatabase(t)
	execSQL(t, database, "insert into penstock._migration (version_id, is_applied) values (99999, true)")

	file := filepath.Join(t.TempDir(), "newer.db")
	withOutbox(t, "sqlite:"+file, "orders")
	onFile(t, file, "insert into penstock_schema (version_id, is_applied) values (99999, true)")

	for _, database := range []string{database, "sqlite:" + file} {
		refused(t, 4, "newer", "migrate", "--database-url", database)
		for _, verb := range verbs {
			if strings.HasPrefix(verb, "publish") {
				// Producers only insert. That works while relays are upgraded.
				continue
			}
			refused(t, 4, "newer", append(strings.Fields(verb), "--database-url", database)...)
		}
	}
}

func onFile(t *testing.T, file, statement string) {
	t.Helper()
	db, err := sqlite.OpenDB(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func(db *sql.DB) { _ = db.Close() }(db)
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

func TestWrongPassword(t *testing.T) {
	t.Parallel()
	server := testserver.StartPostgres(t)
	execSQL(t, server.URL, "create role "+testserver.PasswordRole+" login password 'right'")
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	const wrong = "s3cr3t-w0rd"
	u.User = url.UserPassword(testserver.PasswordRole, wrong)
	for _, verb := range append(verbs, "migrate", "demo --limit 1") {
		args := append(strings.Fields(verb), "--database-url", u.String())
		if o := refused(t, 4, "password", args...); strings.Contains(o.stdout+o.stderr, wrong) {
			t.Errorf("%s shows the password: %s", verb, o.stderr)
		}
	}
}

func TestNoPermission(t *testing.T) {
	t.Parallel()
	database := ordersDatabase(t)
	role := fmt.Sprintf("penstock_test_%08x", rand.Uint32())
	execSQL(t, database, fmt.Sprintf("create role %s login password 'p'", role))
	t.Cleanup(func() { execSQL(t, database, fmt.Sprintf("drop owned by %s; drop role %s", role, role)) })
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "p")
	eachVerb(t, 4, "grant", u.String())
	refused(t, 4, "grant", "demo", "--limit", "1", "--database-url", u.String())

	// A producer may publish and nothing else.
	execSQL(t, database, fmt.Sprintf("select penstock.grant_producer('orders', '%s')", role))
	must(t, "publish", "orders", "--topic", "t", "--database-url", u.String())
	refused(t, 4, "grant", "tail", "orders", "--database-url", u.String())
	refused(t, 4, "grant", "outbox", "drop", "orders", "--yes", "--database-url", u.String())

	// A relay may relay and read, and not publish.
	execSQL(t, database, fmt.Sprintf("revoke all on penstock.orders from %s; select penstock.grant_relay('%s')", role, role))
	must(t, "status", "--database-url", u.String())
	if out := must(t, "tail", "orders", "--json", "--database-url", u.String()); strings.Count(out, "\n") != 1 {
		t.Errorf("tail shows %q", out)
	}
	refused(t, 4, "only the owner of the schema", "outbox", "create", "more", "--database-url", u.String())
}

// On a full disk, the error names its next step. All messages that were published before are
// there, and the file works again once there is room.
func TestFullDiskOnSQLite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	database := "sqlite:" + filepath.Join(dir, "full.db")
	withOutbox(t, database, "orders")

	// A limit on the size of files stands for the disk, in KiB.
	limited := exec.Command("bash", "-c", `ulimit -f 2048; exec "$0" "$@"`, binary,
		"publish", "orders", "--batch", "1", "--json", "--database-url", database)
	message := fmt.Sprintf(`{"topic":"t","payload":%q}`+"\n", strings.Repeat("x", 100_000))
	limited.Stdin = strings.NewReader(strings.Repeat(message, 100))
	o := startCommand(t, limited).wait()
	if o.code != 4 || !strings.HasPrefix(o.stderr, "penstock: publishing lines ") || strings.Count(o.stderr, "\n") != 1 || !strings.Contains(o.stderr, "free space") {
		t.Fatalf("exit code %d, stderr %q", o.code, o.stderr)
	}
	var summary struct{ Published int }
	if err := json.Unmarshal([]byte(o.stdout), &summary); err != nil || summary.Published == 0 || summary.Published == 100 {
		t.Fatalf("stdout %q, %v", o.stdout, err)
	}
	if there := strings.Count(must(t, "tail", "orders", "--json", "--database-url", database), "\n"); there != summary.Published {
		t.Errorf("%d messages are there, %d were published", there, summary.Published)
	}
	must(t, "publish", "orders", "--topic", "again", "--database-url", database)
	if there := strings.Count(must(t, "tail", "orders", "--json", "--database-url", database), "\n"); there != summary.Published+1 {
		t.Errorf("%d messages are there, want %d", there, summary.Published+1)
	}
}

// An error that a relay cannot wait for ends it at the start.
func TestRelayOfNoOutbox(t *testing.T) {
	t.Parallel()
	database := "sqlite:" + filepath.Join(t.TempDir(), "x.db")
	inStore(t, database, func(ctx context.Context, s driver.Store) error { return s.Migrate(ctx) })
	refused(t, 1, "penstock outbox", "relay", "--outbox", "nothing", "--sink", "discard", "--database-url", database)
}
