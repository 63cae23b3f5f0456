package testserver

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// MariaDB is a private MariaDB server with the engines InnoDB and MyRocks, or a MySQL server, which has InnoDB. Its URL is that of the
// superuser, without a database.
//
// A commit is not flushed to the disk: it survives Kill all the same, because the
// operating system lives on.
type MariaDB struct {
	*server
	founds bool // a cluster, with the next start
}

// NewMariaDB starts a private server. options are as on mariadbd's command line.
// A *MissingError if MariaDB is not installed.
func NewMariaDB(options ...string) (*MariaDB, error) {
	rocksdb := []string{"--plugin-load-add=ha_rocksdb.so", "--rocksdb-flush-log-at-trx-commit=2", "--rocksdb-manual-wal-flush=off"}
	if ofMySQL() {
		rocksdb = nil
	}
	m, err := newMariaDB(append(rocksdb, options...)...)
	if err != nil {
		return nil, err
	}
	return m, m.begin(nil)
}

// newMariaDB prepares a server.
func newMariaDB(options ...string) (*MariaDB, error) {
	bin, err := mariadbBin()
	if err != nil {
		return nil, err
	}
	s, port, who, err := prepare("mariadb", "mysql", syscall.SIGTERM, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	s.URL = fmt.Sprintf("mysql://root@%s/", loopback(port))
	m := &MariaDB{server: s}
	common := []string{"--no-defaults", "--datadir=" + filepath.Join(m.dir, "data"), "--tmpdir=" + m.dir, "--skip-name-resolve"} // a server that begins removes what others have in the same tmpdir
	run := func(program string, args ...string) *exec.Cmd {
		return m.as(who, program, slices.Concat(common, args)...)
	}
	options = append([]string{
		"--bind-address=127.0.0.1", fmt.Sprintf("--port=%d", port), "--socket=" + filepath.Join(m.dir, "socket"),
		"--max-connections=500", "--max-allowed-packet=16M", "--skip-log-bin", "--innodb-flush-log-at-trx-commit=2", "--innodb-use-native-aio=0",
	}, options...)
	program := filepath.Join(bin, "mariadbd")
	if ofMySQL() {
		program, options = filepath.Join(bin, "mysqld"), append(options, "--mysqlx=OFF", "--pid-file="+filepath.Join(m.dir, "pid"))
	}
	m.command = func() *exec.Cmd {
		if m.founds {
			return run(program, append(slices.Clone(options), "--wsrep-new-cluster")...)
		}
		return run(program, options...)
	}
	m.ready = m.ping
	if err := m.initialise(who, run, options); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (m *MariaDB) initialise(who *syscall.Credential, run func(string, ...string) *exec.Cmd, options []string) error {
	if err := own(who, m.dir); err != nil {
		return err
	}
	install := run("mariadb-install-db", "--auth-root-authentication-method=normal", "--skip-test-db")
	if ofMySQL() {
		// Its root is one of a local socket.
		users := filepath.Join(m.dir, "users.sql")
		if err := errors.Join(os.WriteFile(users, []byte("create user root@'127.0.0.1';\ngrant all on *.* to root@'127.0.0.1' with grant option;\n"), 0o600), own(who, users)); err != nil {
			return err
		}
		install = run(filepath.Join(os.Getenv(envMariaDBBin), "mysqld"), append(slices.Clone(options), "--initialize-insecure", "--init-file="+users)...)
	}
	if out, err := install.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", install.Path, err, bytes.TrimSpace(out))
	}
	return nil
}

func (m *MariaDB) ping(ctx context.Context) error { return onMariaDB(ctx, m.URL, "select 1") }

// onMariaDB executes one statement as the URL's user.
func onMariaDB(ctx context.Context, server, statement string) error {
	return withMariaDB(server, func(db *sql.DB) error {
		_, err := db.ExecContext(ctx, statement)
		return err
	})
}

func withMariaDB(server string, do func(*sql.DB) error) error {
	config, err := mysqlConfig(server)
	if err != nil {
		return err
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	return do(db)
}

func mysqlConfig(server string) (*mysql.Config, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	config := mysql.NewConfig()
	config.User, config.Net, config.Addr = u.User.Username(), "tcp", u.Host
	config.Passwd, _ = u.User.Password()
	config.Logger = &mysql.NopLogger{} // who waits for the server asks it again and again
	return config, nil
}

// MariaDBURL returns the URL of a MariaDB server that all tests share, of a user that may
// create databases.
func MariaDBURL(tb testing.TB) string {
	tb.Helper()
	return shared(tb, EnvMariaDB, sharedMariaDB)
}

// MariaDBDatabase creates a database on the server that all tests share and returns its
// URL. It is dropped when the test ends.
func MariaDBDatabase(tb testing.TB) string {
	tb.Helper()
	server, name := MariaDBURL(tb), databaseName()
	u, err := on(server, name)
	if err != nil {
		tb.Fatal(err)
	}
	if err := onMariaDB(tb.Context(), server, "create database "+name); err != nil {
		tb.Fatalf("create a database for the test: %v", err)
	}
	tb.Cleanup(func() {
		if err := onMariaDB(context.Background(), server, "drop database "+name); err != nil {
			tb.Logf("drop the test's database: %v", err)
		}
	})
	return u
}

// ofMySQL: the folder that the environment names has MySQL's server.
func ofMySQL() bool {
	dir := os.Getenv(envMariaDBBin)
	return dir != "" && !hasProgram(dir, "mariadbd")
}

// mariadbBin is the folder of mariadbd, or of MySQL's mysqld if the environment names that; mariadb-install-db is on the PATH.
func mariadbBin() (string, error) {
	if dir, err := named(envMariaDBBin, "mariadbd", "mysqld"); dir != "" || err != nil {
		return dir, err
	}
	missing := &MissingError{Server: "MariaDB", Package: "mariadb-plugin-rocksdb", URLVar: EnvMariaDB, BinVar: envMariaDBBin}
	if _, err := exec.LookPath("mariadb-install-db"); err != nil {
		return "", missing
	}
	if plugins, _ := filepath.Glob("/usr/lib*/mysql/plugin/ha_rocksdb.so"); len(plugins) == 0 {
		return "", missing
	}
	for _, dir := range append([]string{"/usr/sbin", "/usr/libexec"}, filepath.SplitList(os.Getenv("PATH"))...) {
		if hasProgram(dir, "mariadbd") {
			return dir, nil
		}
	}
	return "", missing
}
