package testserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// PgBouncer is a private pooler in transaction mode in front of a PostgreSQL. Its URL is that of the server's database postgres through
// the pooler; every database and every role of the server goes.
type PgBouncer struct {
	*server
	// Version as the program says it.
	Version string
}

// StartPgBouncer starts a pooler for this test alone in front of the server at
// serverURL. conf are lines for the section [pgbouncer]; they win over the usual
// ones.
func StartPgBouncer(tb testing.TB, serverURL string, conf ...string) *PgBouncer {
	tb.Helper()
	b, err := NewPgBouncer(serverURL, conf...)
	return forTest(tb, b, err)
}

// NewPgBouncer is StartPgBouncer for programs; they Close it.
func NewPgBouncer(serverURL string, conf ...string) (*PgBouncer, error) {
	program, err := pgbouncer()
	if err != nil {
		return nil, err
	}
	version, err := exec.Command(program, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --version: %w", program, err)
	}
	behind, err := url.Parse(serverURL)
	if err != nil {
		return nil, err
	}
	s, port, who, err := prepare("pgbouncer", "postgres", syscall.SIGINT, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	front := *behind
	front.Host = loopback(port)
	first, _, _ := strings.Cut(string(version), "\n")
	s.URL = front.String()
	b := &PgBouncer{server: s, Version: first}
	b.ready = func(ctx context.Context) error { return pingPostgres(ctx, b.URL) }
	ini, users := filepath.Join(b.dir, "pgbouncer.ini"), filepath.Join(b.dir, "users.txt")
	// As a service manager does it starts again after a crash: 1.18 ends with "bad client state" where a client goes
	// away while its cancel request is on the way.
	b.command = func() *exec.Cmd {
		return b.as(who, "/bin/sh", "-c", `until "$0" "$1"; do sleep 0.1; done`, program, ini)
	}
	lines := append([]string{
		"[databases]",
		fmt.Sprintf("* = host=%s port=%s", behind.Hostname(), behind.Port()),
		"[pgbouncer]",
		"listen_addr = 127.0.0.1",
		fmt.Sprintf("listen_port = %d", port),
		"unix_socket_dir =",
		"auth_type = trust", // every role of the server
		"auth_user = " + behind.User.Username(),
		"auth_file = " + users,
		"pool_mode = transaction",
		"default_pool_size = 20",
		"max_client_conn = 500",
		"ignore_startup_parameters = extra_float_digits",
	}, conf...)
	err = errors.Join(
		os.WriteFile(ini, []byte(strings.Join(lines, "\n")+"\n"), 0o600),
		os.WriteFile(users, fmt.Appendf(nil, "%q \"\"\n", behind.User.Username()), 0o600))
	return b, b.begin(errors.Join(err, own(who, b.dir, ini, users)))
}

// pgbouncer finds the program: the named one, else where Debian puts it or the PATH.
func pgbouncer() (string, error) {
	return find(&MissingError{Server: "PgBouncer", Package: "pgbouncer", BinVar: envPgBouncer}, "/usr/sbin/pgbouncer", "pgbouncer")
}
