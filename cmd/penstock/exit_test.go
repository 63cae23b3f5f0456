package main

import (
	"database/sql"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/sqlite"
)

// full is a disk without free space.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// Output that cannot be written makes every verb fail, however it writes.
func TestFullStdoutIsAnError(t *testing.T) {
	url := sqliteDatabase(t)
	for _, args := range []string{"outbox create orders", "publish orders --topic t --payload x", "tail orders", "tail orders --json", "status", "status --json", "outbox list", "version",
		"queue create mails", "enqueue mails x", "completion bash", "--help"} {
		if !strings.HasPrefix(args, "-") && !strings.HasPrefix(args, "version") && !strings.HasPrefix(args, "completion") {
			args += " --database-url " + url
		}
		var stderr strings.Builder
		code := run(t.Context(), strings.Fields(args), strings.NewReader(""), full{}, &stderr)
		outcome{"", stderr.String(), code}.wants(t, terminal.ExitFailure, "writing to standard output: no space left on device")
	}
}

func TestRefusingDatabases(t *testing.T) {
	t.Run("SQLite, read-only", func(t *testing.T) {
		if os.Getuid() == 0 {
			t.Skip("root may write to any file")
		}
		url := sqliteDatabase(t)
		if err := os.Chmod(strings.TrimPrefix(url, "sqlite:"), 0o400); err != nil {
			t.Fatal(err)
		}
		invoke(t, "outbox", "create", "orders", "--database-url", url).wants(t, terminal.ExitDatabase, "let this user write")
	})
	t.Run("SQLite, no database", func(t *testing.T) {
		t.Chdir(t.TempDir())
		write(t, "notes.txt", strings.Repeat("these are notes\n", 100))
		invoke(t, "status", "--database-url", "sqlite:notes.txt").wants(t, terminal.ExitDatabase, "give the path of a SQLite database")
	})
	t.Run("PostgreSQL, read-only", func(t *testing.T) {
		t.Chdir(t.TempDir())
		url := testserver.Database(t, testserver.PostgresURL(t))
		must(t, "migrate", "--database-url", url)
		invoke(t, "outbox", "create", "orders", "--database-url", url+"&default_transaction_read_only=on").wants(t, terminal.ExitDatabase, "target_session_attrs=read-write")
	})
}

// A held lock is waited for, up to a limit.
func TestBusyDatabase(t *testing.T) {
	t.Parallel()
	url := sqliteFile(t)
	must(t, "migrate", "--database-url", url)
	db, err := sqlite.OpenDB(strings.TrimPrefix(url, "sqlite:"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	hold(t, db)
	invoke(t, "outbox", "create", "orders", "--database-url", url).wants(t, terminal.ExitDatabase, "locked by another writer")
}

// hold keeps a write transaction open until the test ends.
func hold(t *testing.T, db *sql.DB) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(t.Context(), "begin immediate"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
}

func TestExitCodesOfStates(t *testing.T) {
	for state, want := range map[string]int{"25006": terminal.ExitDatabase, "55P03": terminal.ExitDatabase, "57014": terminal.ExitDatabase, "53300": terminal.ExitDatabase, "53100": terminal.ExitDatabase, "08006": terminal.ExitDatabase, "22023": terminal.ExitFailure} {
		if got := terminal.ExitCode(fmt.Errorf("doing it: %w", &pgconn.PgError{Code: state})); got != want {
			t.Errorf("%s: exit code %d, want %d", state, got, want)
		}
	}
}

func TestUnknownShell(t *testing.T) {
	invoke(t, "completion", "tcsh").wants(t, terminal.ExitUsage, `"tcsh" is not a verb of penstock completion`)
	if out := must(t, "completion"); !strings.Contains(out, "powershell") {
		t.Errorf("got %q", out)
	}
}
