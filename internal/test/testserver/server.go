package testserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// server has the parts that private servers share. It is a program in a private folder that can
// be stopped, killed and started again on the same data and the same port.
type server struct {
	// URL of a server that has one; the same after every Start.
	URL string

	name    string
	dir     string
	command func() *exec.Cmd                // one run of the server
	ready   func(ctx context.Context) error // nil once it answers; asked repeatedly
	stopSig syscall.Signal                  // an orderly stop
	killSig syscall.Signal                  // a crash

	mu      sync.Mutex
	guard   *guard
	proc    *process   // nil after Stop and Kill
	helpers []*process // run until Close
}

func (s *server) base() *server { return s }

// Where is the server's URL, and what ends it.
func (s *server) Where() (url string, end func() error) { return s.URL, s.Close }

// How long a server may take to start, which recovery after a crash is part
// of, and to stop. Far more than they need: reaching them is a failure.
const (
	startPatience = 5 * time.Minute
	stopPatience  = time.Minute
)

// prepare makes the folder of a new server and finds it a port. user is for a server that refuses to run as root.
func prepare(name, user string, stop, kill syscall.Signal) (s *server, port int, who *syscall.Credential, err error) {
	if port, err = FreePort(); err != nil {
		return nil, 0, nil, err
	}
	if user != "" {
		if who, err = unprivileged(user); err != nil {
			return nil, 0, nil, err
		}
	}
	s = &server{name: name, stopSig: stop, killSig: kill}
	return s, port, who, s.newDir()
}

// newDir makes the server's folder and the guard that removes it.
func (s *server) newDir() error {
	dir, err := os.MkdirTemp(os.Getenv(envData), "penstock-"+s.name+"-")
	if err != nil {
		return err
	}
	s.dir = dir
	if s.guard, err = startGuard(s.killSig, dir); err != nil {
		os.RemoveAll(dir)
	}
	return err
}

// as builds a command that runs as who, which is nil for the current user.
func (s *server) as(who *syscall.Credential, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = s.dir, baseEnv("HOME="+s.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who}
	return cmd
}

// own gives files to who, which is nil for the current user.
func own(who *syscall.Credential, paths ...string) (err error) {
	for _, path := range paths {
		if who != nil {
			err = errors.Join(err, os.Chown(path, int(who.Uid), int(who.Gid)))
		}
	}
	return err
}

// begin starts a new server, unless what it needs has failed; then nothing of it stays.
func (s *server) begin(failed error) error {
	if failed == nil {
		failed = s.Start()
	}
	if failed != nil {
		s.Close()
	}
	return failed
}

// exchange sends the first words of a protocol and reads as much of the answer as fits.
func exchange(ctx context.Context, port int, send, answer []byte) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", loopback(port))
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if _, err := conn.Write(send); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, answer)
	return err
}

// helper starts a program that the server needs and that runs until Close.
func (s *server) helper(cmd *exec.Cmd) error {
	p, err := startProcess(cmd, s.logPath())
	if err != nil {
		return err
	}
	s.helpers = append(s.helpers, p)
	return s.guard.watch(s.helpers...)
}

// Start starts the server, again on the same data and port after Stop or Kill,
// and returns once it answers. It does nothing if the server runs.
func (s *server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.guard == nil {
		return fmt.Errorf("%s was closed", s.name)
	}
	if s.proc != nil && s.proc.running() {
		return nil
	}
	p, err := startProcess(s.command(), s.logPath())
	if err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	s.proc = p
	if err := s.guard.watch(append(s.helpers, p)...); err != nil {
		return err
	}
	if err := s.awaitReady(p); err != nil {
		_ = s.end(s.killSig)
		return fmt.Errorf("start %s: %w\nend of its log:\n%s", s.name, err, s.LogTail(30))
	}
	return nil
}

func (s *server) awaitReady(p *process) error {
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := s.ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("it ended at once: %s", p.ended())
		case <-ctx.Done():
			return fmt.Errorf("no answer within %s: %w", startPatience, err)
		case <-tick.C:
		}
	}
}

func (s *server) running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc != nil && s.proc.running()
}

// Stop shuts the server down in order; its data stay.
func (s *server) Stop() error { return s.locked(s.stopSig) }

// Kill ends the server as a crash would: it gets no chance to finish anything.
// Its data stay as they are.
func (s *server) Kill() error { return s.locked(s.killSig) }

func (s *server) locked(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end(sig)
}

func (s *server) end(sig syscall.Signal) error {
	if s.proc == nil {
		return nil
	}
	err := s.proc.end(sig, stopPatience)
	s.proc = nil
	return errors.Join(err, s.guard.watch(s.helpers...))
}

// Close kills the server and removes its data. A second Close does nothing.
func (s *server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.guard == nil {
		return nil
	}
	err := s.end(s.killSig)
	for _, h := range s.helpers {
		err = errors.Join(err, h.end(syscall.SIGKILL, stopPatience))
	}
	err = errors.Join(err, s.guard.watch(), s.guard.close())
	s.guard = nil
	return err
}

// Dir is the server's private folder.
func (s *server) Dir() string { return s.dir }

// LogTail returns the last lines of the server's log.
func (s *server) LogTail(lines int) string {
	b, err := os.ReadFile(s.logPath())
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func (s *server) logPath() string { return filepath.Join(s.dir, "server.log") }

// baseEnv is the whole environment of a private server: the variables that
// configure servers and clients (PGDATA, RABBITMQ_NODENAME, …) stay outside.
func baseEnv(extra ...string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}, extra...)
}
