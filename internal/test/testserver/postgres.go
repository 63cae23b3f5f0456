package testserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// PasswordRole is a role name for which a private PostgreSQL asks for the
// password. It lets every other role in without one. A test that needs to give a wrong password
// creates this role.
const PasswordRole = "penstock_password"

// Postgres is a private PostgreSQL server. Its URL is that of the database postgres as superuser.
//
// fsync is off: commits survive Kill all the same, because the
// operating system lives on. Say "fsync = on" where the cost of a commit
// matters.
type Postgres struct {
	*server
	// Bin is the folder of the server's programs.
	Bin string

	clock bool // it has its own, not the machine's
}

// NewPostgres starts a private server. conf are lines for postgresql.conf, of
// which the last one about a setting counts. A *MissingError if PostgreSQL is
// not installed.
func NewPostgres(conf ...string) (*Postgres, error) { return initialised(false, conf) }

// initialised starts a server on a new cluster.
func initialised(clock bool, conf []string) (*Postgres, error) {
	return newPostgres(clock, func(p *Postgres, who *syscall.Credential, port int) error { return p.initialise(who, port, conf) })
}

// newPostgres starts a server on the data that fill makes.
func newPostgres(clock bool, fill func(p *Postgres, who *syscall.Credential, port int) error) (*Postgres, error) {
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	s, port, who, err := prepare("postgres", "postgres", syscall.SIGINT, syscall.SIGQUIT)
	if err != nil {
		return nil, err
	}
	s.URL = fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", loopback(port))
	p := &Postgres{server: s, Bin: bin, clock: clock}
	p.ready = func(ctx context.Context) error { return pingPostgres(ctx, p.URL) }
	p.command = func() *exec.Cmd {
		cmd := p.as(who, filepath.Join(bin, "postgres"), "-D", p.data())
		cmd.Env = append(cmd.Env, p.clockEnv()...)
		return cmd
	}
	if clock {
		err = p.makeClock()
	}
	err = errors.Join(err, own(who, p.dir))
	if err == nil {
		err = fill(p, who, port)
	}
	return p, p.begin(err)
}

func (p *Postgres) data() string { return filepath.Join(p.dir, "data") }

func (p *Postgres) initialise(who *syscall.Credential, port int, conf []string) error {
	initdb := p.as(who, filepath.Join(p.Bin, "initdb"), "-D", p.data(),
		"-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, bytes.TrimSpace(out))
	}
	lines := append([]string{
		"listen_addresses = '127.0.0.1'",
		fmt.Sprintf("port = %d", port),
		"unix_socket_directories = ''",
		"max_connections = 200",
		"max_prepared_transactions = 50",
		"fsync = off",
		"full_page_writes = off",
		"dynamic_shared_memory_type = mmap", // in its folder, which goes; a server that is killed leaves it in /dev/shm else
	}, conf...)
	if err := appendFile(filepath.Join(p.data(), "postgresql.conf"), lines); err != nil {
		return err
	}
	hba := []string{
		"host all " + PasswordRole + " 127.0.0.1/32 scram-sha-256",
		"host all,replication all 127.0.0.1/32 trust",
	}
	return os.WriteFile(filepath.Join(p.data(), "pg_hba.conf"), []byte(strings.Join(hba, "\n")+"\n"), 0o644)
}

func appendFile(path string, lines []string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if _, err := f.WriteString("\n" + strings.Join(lines, "\n") + "\n"); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func pingPostgres(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// postgresBin finds the programs: the named folder, else the newest version
// where distributions put them, else the PATH.
func postgresBin() (string, error) {
	if dir, err := named(envPostgresBin, "initdb"); dir != "" || err != nil {
		return dir, err
	}
	best, newest := "", -1
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin"} {
		dirs, _ := filepath.Glob(pattern) // fails only for a bad pattern
		for _, dir := range dirs {
			major := versionIn(dir)
			if hasProgram(dir, "initdb") && major > newest {
				best, newest = dir, major
			}
		}
	}
	if best != "" {
		return best, nil
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	return "", &MissingError{Server: "PostgreSQL", Package: "postgresql", URLVar: EnvPostgres, BinVar: envPostgresBin}
}

// named is the folder that the variable names, which has one of the programs; empty if it names none.
func named(variable string, programs ...string) (string, error) {
	dir := os.Getenv(variable)
	if err := wanted(); err != nil {
		return "", err
	}
	if dir != "" && !slices.ContainsFunc(programs, func(program string) bool { return hasProgram(dir, program) }) {
		return "", fmt.Errorf("%s: there is no %s in %s", variable, strings.Join(programs, " or "), dir)
	}
	return dir, nil
}

// versionIn reads the number of /usr/lib/postgresql/15/bin; -1 without one.
func versionIn(dir string) int {
	digits := strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return -1
		}
		return r
	}, dir)
	n, err := strconv.Atoi(digits)
	if err != nil {
		return -1
	}
	return n
}

func hasProgram(dir, name string) bool {
	_, err := exec.LookPath(filepath.Join(dir, name))
	return err == nil
}

// unprivileged is the user of a server that refuses to run as root: the user of this name, or one without rights.
func unprivileged(name string) (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return nil, fmt.Errorf("the server does not run as root, and there is neither a user %s nor nobody: %w", name, err)
		}
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}
