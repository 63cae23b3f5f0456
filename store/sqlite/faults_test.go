package sqlite_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/store/sqlite"
)

// A full disk refuses the message, says so, and loses nothing: what was
// committed is delivered, and once there is room the same call succeeds.
func TestDiskFull(t *testing.T) {
	_, s, app := newFile(t, sqlite.WithPragmas(sqlite.Options{}, "max_page_count(300)"))
	ctx := t.Context()
	src := subscribe(t, s, "billing")
	payload := bytes.Repeat([]byte("x"), 50<<10)
	published := 0
	var full error
	for full == nil && published < 1000 {
		if full = s.Publish(ctx, "orders", penstock.Message{Payload: payload}, penstock.Message{Payload: payload}); full == nil {
			published += 2
		}
	}
	if !errors.Is(full, sqlite.ErrFull) || !strings.Contains(full.Error(), "free space") {
		t.Fatalf("after %d messages: %v", published, full)
	}
	got, batches := fetchAll(t, src)
	if len(got) != published {
		t.Errorf("%d messages were published and %d delivered", published, len(got))
	}
	if err := storetest.Settle(ctx, src, batches...); err != nil {
		t.Errorf("Settle with a full disk: %v", err)
	}
	if err := s.Maintain(ctx, "orders"); err != nil {
		t.Fatal(err)
	}
	if err := s.Publish(ctx, "orders", penstock.Message{Payload: []byte("again")}); err != nil {
		t.Errorf("after room was made: %v", err)
	}
	if got, _ := fetchAll(t, src); len(got) != 1 {
		t.Errorf("got %d messages, want the one published again", len(got))
	}
	if check := scan[string](t, app, `pragma integrity_check`); check != "ok" {
		t.Errorf("integrity_check: %s", check)
	}
}

// A dead letter that cannot be written does not let the cursor pass.
func TestDeadLetterThatCannotBeWritten(t *testing.T) {
	_, s, app := newFile(t, sqlite.Options{})
	mustExec(t, app, `create trigger refused before insert on penstock_entries begin select raise(abort, 'there is no room'); end`)
	ctx := t.Context()
	src := subscribe(t, s, "billing")
	if err := s.Publish(ctx, "orders", penstock.Message{}); err != nil {
		t.Fatal(err)
	}
	_, batches := fetchAll(t, src)
	batches[0].Verdicts = []driver.Verdict{{Outcome: driver.Dead, Failures: []penstock.Failure{{Attempt: 1, Err: "refused"}}}}
	if err := storetest.Settle(ctx, src, batches...); err == nil || !strings.Contains(err.Error(), "there is no room") {
		t.Fatalf("Settle: %v", err)
	}
	if err := s.Maintain(ctx, "orders"); err != nil {
		t.Fatal(err)
	}
	status, err := s.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if sub := status[0].Subscriptions[0]; sub.Backlog != 1 || sub.Settled != 0 || sub.DeadLetters != 0 {
		t.Errorf("after the failed Settle: %+v", sub)
	}
	if err := src.Close(ctx); err != nil {
		t.Fatal(err)
	}
	src = subscribe(t, s, "billing")
	if _, batches = fetchAll(t, src); len(batches) != 1 {
		t.Fatalf("the next reader has %d batches, want the one again", len(batches))
	}
	if err := storetest.Settle(ctx, src, batches...); err != nil {
		t.Errorf("settling it as delivered: %v", err)
	}
}

func TestNotADatabase(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "notes.txt")
	if err := os.WriteFile(text, bytes.Repeat([]byte("not a database "), 100), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		text:                               "give the path of a SQLite database",
		dir:                                "is a directory",
		filepath.Join(dir, "no/such/x.db"): "make the directory first",
		"sqlite:":                          "give a path",
		":memory:":                         "give the path of a file",
		"a\x00b":                           "NUL",
	} {
		s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
		if err == nil {
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%q): %v, want a hint %q", path, err, want)
		}
	}
	if b, _ := os.ReadFile(text); !bytes.HasPrefix(b, []byte("not a database")) {
		t.Error("the text file was changed")
	}
}

// Another program holds the write lock: an error that may be tried again, in
// time, and no wait at all once the context ends.
func TestBusy(t *testing.T) {
	path, _, app := newFile(t, sqlite.Options{})
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{BusyTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	src, err := s.Subscribe(t.Context(), driver.Subscribe{Outbox: "orders", Subscription: "billing"})
	if err != nil {
		t.Fatal(err)
	}
	tx, err := app.Begin() // immediate: the lock
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"Publish": s.Publish(t.Context(), "orders", penstock.Message{}),
		"Renew":   src.Renew(t.Context()),
		"Create":  s.CreateOutbox(t.Context(), "other"),
	} {
		if !errors.Is(err, sqlite.ErrBusy) || !strings.Contains(err.Error(), "try again") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := s.Maintain(t.Context(), "orders"); err != nil {
		t.Errorf("Maintain with nothing to do: %v", err)
	}
	if _, err := src.Fetch(t.Context(), driver.Limit{Messages: 10, Bytes: 1 << 20}); err != nil {
		t.Errorf("a reader does not wait for a writer: %v", err)
	}
	patient := open(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- patient.Publish(ctx, "orders", penstock.Message{}) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled while waiting: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := src.Renew(t.Context()); err != nil {
		t.Errorf("after the other writer has gone: %v", err)
	}
}

// A user who may read the file and not write to it.
func TestReadOnly(t *testing.T) {
	path, s, app := newFile(t, sqlite.Options{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
	as := asSelf
	if os.Getuid() == 0 { // no permission stops root
		as = asNobody(t, filepath.Dir(path))
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Dir(path), 0o755) })
	for _, step := range []struct {
		file, dir os.FileMode
		hint      string
	}{
		{0o444, 0o755, "let this user write"},
		{0o444, 0o555, "let this user write"},
		{0o000, 0o755, "may read and write"},
	} {
		if err := errors.Join(os.Chmod(path, step.file), os.Chmod(filepath.Dir(path), step.dir)); err != nil {
			t.Fatal(err)
		}
		c := start(t, childWrite, path, as)
		if err := c.wait(); err == nil || !strings.Contains(c.output(), step.hint) {
			t.Errorf("file %o, directory %o: %v: %s; want the hint %q", step.file, step.dir, err, c.output(), step.hint)
		}
	}
}

func asSelf(*exec.Cmd) {}

// asNobody starts a copy of this program as a user without rights, who must be
// able to enter dir.
func asNobody(t *testing.T, dir string) func(*exec.Cmd) {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	program := filepath.Join(bin, "child")
	if err := os.WriteFile(program, self, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(bin), 0o755); err != nil { // the parent of all of this test's folders
		t.Fatal(err)
	}
	for _, dir := range []string{dir, bin} {
		for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			if info, err := os.Stat(dir); err != nil || info.Mode()&0o001 == 0 {
				t.Skipf("nobody may enter %s: set TMPDIR to a folder open to all", dir)
			}
		}
	}
	return func(cmd *exec.Cmd) {
		cmd.Path = program
		cmd.Dir = bin
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
}
