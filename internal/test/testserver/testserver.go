package testserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// The variables that name servers to use instead of private ones.
const (
	EnvPostgres = "PENSTOCK_TEST_POSTGRES"
	EnvRabbitMQ = "PENSTOCK_TEST_RABBITMQ"
	EnvKafka    = "PENSTOCK_TEST_KAFKA" // set by withservers -only kafka
	EnvMariaDB  = "PENSTOCK_TEST_MARIADB"

	// "none": tests that need a server are skipped, also in CI, as by `make check`.
	envServers = "PENSTOCK_TEST_SERVERS"

	// The one that names the folder for the data of private servers.
	envData = "PENSTOCK_TEST_DATA"

	// And those that name the folders of the programs.
	envPostgresBin = "PENSTOCK_TEST_PG_BIN"
	envRabbitMQBin = "PENSTOCK_TEST_RABBITMQ_BIN"
	envMariaDBBin  = "PENSTOCK_TEST_MARIADB_BIN"
	envKafkaJars   = "PENSTOCK_TEST_KAFKA_JARS"
	envArtemis     = "PENSTOCK_TEST_ARTEMIS"

	// And those that name what few tests want.
	envCompiler  = "CC" // of a clock for PostgreSQL that a test sets
	envPgBouncer = "PENSTOCK_TEST_PGBOUNCER"
)

// MissingError: a server's programs are not on this machine.
type MissingError struct {
	Server  string // PostgreSQL, say
	Package string // Debian's package
	URLVar  string // the variable that names a running server; empty if it is of no use
	BinVar  string // the variable that names the folder of its programs, or the one file that is wanted
}

func (e *MissingError) Error() string {
	if e.URLVar == "" {
		return fmt.Sprintf("%s is not installed: set %s to its path, or run `make test` as root on Debian, which installs it", e.Server, e.BinVar)
	}
	return fmt.Sprintf("%s is not installed: set %s to the URL of a running server, or %s to the folder of its programs, "+
		"or run `make test` as root on Debian, which installs it", e.Server, e.URLVar, e.BinVar)
}

// Missing lists the servers that the environment does not name and that cannot
// be started either.
func Missing() []*MissingError {
	var all missing
	all.note(EnvPostgres, postgresBin)
	all.note(EnvRabbitMQ, rabbitmqBin)
	return all
}

// MissingExtras lists what only few tests need, which are skipped without it.
func MissingExtras() []*MissingError {
	var all missing
	all.note(envCompiler, compiler)
	all.note(envPgBouncer, pgbouncer)
	all.note(EnvMariaDB, mariadbBin)
	all.note("", galeraLibrary)
	all.note("", redisServer)
	all.note("", promtool)
	all.note("", chromium)
	return all
}

// chromium finds the browser for the tests of cmd/penstock/internal/console.
func chromium() (string, error) {
	return find(&MissingError{Server: "Chromium, for the console in a browser", Package: "chromium", BinVar: "PATH"}, "chromium")
}

// find looks for a program: the one that the variable names, or the first of those that are there.
func find(missing *MissingError, programs ...string) (string, error) {
	if path := os.Getenv(missing.BinVar); path != "" && missing.BinVar != "PATH" {
		return exec.LookPath(path)
	}
	for _, program := range programs {
		if path, err := exec.LookPath(program); err == nil {
			return path, nil
		}
	}
	return "", missing
}

type missing []*MissingError

// note adds a package that cannot be found and is not named in the variable either, once: Galera also needs MariaDB's.
func (m *missing) note(variable string, find func() (string, error)) {
	var e *MissingError
	if _, err := find(); os.Getenv(variable) == "" && errors.As(err, &e) && !slices.ContainsFunc(*m, func(o *MissingError) bool { return o.Package == e.Package }) {
		*m = append(*m, e)
	}
}

// The servers that this process started for all its tests. They run until it
// ends; then their guards end them.
var (
	sharedPostgres = sync.OnceValues(func() (*Postgres, error) { return NewPostgres() })
	sharedRabbitMQ = sync.OnceValues(func() (*RabbitMQ, error) { return NewRabbitMQ() })
	sharedMariaDB  = sync.OnceValues(func() (*MariaDB, error) { return NewMariaDB() })
)

// PostgresURL returns the URL of a PostgreSQL server that all tests share, of
// a role that may create databases and roles.
func PostgresURL(tb testing.TB) string {
	tb.Helper()
	return shared(tb, EnvPostgres, sharedPostgres)
}

// RabbitMQURL returns the URL of a RabbitMQ server that all tests share.
func RabbitMQURL(tb testing.TB) string {
	tb.Helper()
	return shared(tb, EnvRabbitMQ, sharedRabbitMQ)
}

// shared is the URL that the variable has, or that of a server which starts with the first test that asks for it.
func shared[S interface{ base() *server }](tb testing.TB, variable string, start func() (S, error)) string {
	tb.Helper()
	if url := os.Getenv(variable); url != "" {
		return url
	}
	s, err := start()
	need(tb, err)
	return s.base().URL
}

// StartPostgres starts a server for this test alone, which the test may stop,
// kill and start again. It is removed when the test ends.
func StartPostgres(tb testing.TB, conf ...string) *Postgres {
	tb.Helper()
	p, err := NewPostgres(conf...)
	return forTest(tb, p, err)
}

// StartRabbitMQ starts a server for this test alone, which the test may stop,
// kill and start again. It is removed when the test ends.
func StartRabbitMQ(tb testing.TB, conf ...string) *RabbitMQ {
	tb.Helper()
	r, err := NewRabbitMQ(conf...)
	return forTest(tb, r, err)
}

// StartMariaDB starts a server for this test alone, as StartPostgres does.
func StartMariaDB(tb testing.TB, options ...string) *MariaDB {
	tb.Helper()
	m, err := NewMariaDB(options...)
	return forTest(tb, m, err)
}

// NeedPrograms ends the test if private servers cannot be started, as StartPostgres and
// StartRabbitMQ would.
func NeedPrograms(tb testing.TB) {
	tb.Helper()
	_, err := postgresBin()
	need(tb, err)
	_, err = rabbitmqBin()
	need(tb, err)
}

// NeedMariaDB ends the test if no MariaDB can be started, as StartMariaDB would.
func NeedMariaDB(tb testing.TB) {
	tb.Helper()
	_, err := mariadbBin()
	need(tb, err)
}

// NeedClock ends the test if no server can be given a clock, as
// StartPostgresWithClock would.
func NeedClock(tb testing.TB) {
	tb.Helper()
	_, err := compiler()
	need(tb, err)
}

// ProgramFolders are the variables of the environment that show where the servers' programs are, for
// a program that starts servers itself.
func ProgramFolders() (env []string) {
	for _, name := range []string{envPostgresBin, envRabbitMQBin, envMariaDBBin, envCompiler, envPgBouncer, "PATH"} {
		if value := os.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

var errNoServers = errors.New(envServers + "=none")

// wanted is an error in a run without servers.
func wanted() error {
	if os.Getenv(envServers) == "none" {
		return errNoServers
	}
	return nil
}

// need ends the test on an error: a missing server skips it, except in CI,
// where a test that silently does not run would be taken for one that passed.
func need(tb testing.TB, err error) {
	tb.Helper()
	var missing *MissingError
	switch {
	case err == nil:
	case errors.Is(err, errNoServers), errors.As(err, &missing) && !inCI():
		tb.Skip(err)
	default:
		tb.Fatal(err)
	}
}

func inCI() bool {
	ci, err := strconv.ParseBool(os.Getenv("CI"))
	return err == nil && ci
}

// forTest is s, closed when the test ends; err is why there is none.
func forTest[S interface{ base() *server }](tb testing.TB, s S, err error) S {
	tb.Helper()
	need(tb, err)
	tb.Cleanup(func() { closeAfter(tb, s.base()) })
	return s
}

func closeAfter(tb testing.TB, s *server) {
	tb.Helper()
	if tb.Failed() {
		tb.Logf("end of the log of %s:\n%s", s.name, s.LogTail(30))
	}
	if err := s.Close(); err != nil {
		tb.Errorf("close %s: %v", s.name, err)
	}
}
