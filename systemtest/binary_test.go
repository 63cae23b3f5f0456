package systemtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/store/postgres/postgrestest"
)

// binary is the penstock that all tests run.
var binary string

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == natsNodeCommand {
		fmt.Fprintln(os.Stderr, serveNATSNode(os.Args[2:]))
		os.Exit(1)
	}
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "penstock-systemtest-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "penstock")
	build := exec.Command("go", "build", "-o", binary, "github.com/penstock/penstock/cmd/penstock")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "building penstock:", err)
		return 1
	}
	return postgrestest.Run(m)
}

// patience bounds waiting for what must happen; it decides nothing else.
const patience = 2 * time.Minute

// outcome is what a process left.
type outcome struct {
	stdout, stderr string
	code           int // 128 + n after signal n
}

// process is a running penstock.
type process struct {
	t      testing.TB
	cmd    *exec.Cmd
	args   []string
	stdout *output
	stderr *output
	done   chan struct{}
}

// start runs penstock in an empty directory of its own, without the
// environment's database.
func start(t testing.TB, args ...string) *process {
	t.Helper()
	return startCommand(t, exec.Command(binary, args...))
}

func startCommand(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, args: cmd.Args[1:], stdout: newOutput(), stderr: newOutput(), done: make(chan struct{})}
	if cmd.Dir == "" {
		cmd.Dir = t.TempDir()
	}
	given := cmd.Env
	cmd.Env = nil
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "PENSTOCK_") && !strings.HasPrefix(variable, "PG") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	if os.Getenv("TMPDIR") == "" { // a process that is killed leaves what it has there
		cmd.Env = append(cmd.Env, "TMPDIR="+t.TempDir())
	}
	cmd.Env = append(cmd.Env, given...) // the last one counts
	cmd.Stdout, cmd.Stderr = p.stdout, p.stderr
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting penstock: %v", err)
	}
	go func() {
		_ = cmd.Wait() // the code is read from ProcessState
		close(p.done)
	}()
	t.Cleanup(func() {
		p.kill()
		if text := p.stderr.tail(); t.Failed() && text != "" {
			t.Logf("penstock %q wrote to stderr:\n%s", p.args, text)
		}
	})
	return p
}

// pen runs penstock to its end.
func pen(t testing.TB, args ...string) outcome {
	t.Helper()
	return start(t, args...).wait()
}

// must runs penstock and wants it to succeed.
func must(t testing.TB, args ...string) string {
	t.Helper()
	o := pen(t, args...)
	if o.code != 0 {
		t.Fatalf("penstock %q: exit code %d: %s", args, o.code, o.stderr)
	}
	return o.stdout
}

// wait returns when the process has ended.
func (p *process) wait() outcome {
	p.t.Helper()
	return p.waitFor(patience)
}

func (p *process) waitFor(patience time.Duration) outcome {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("penstock %q does not end; stderr: %s", p.args, p.stderr.tail())
	}
	code := p.cmd.ProcessState.ExitCode()
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = 128 + int(status.Signal())
	}
	return outcome{p.stdout.String(), p.stderr.String(), code}
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatalf("signal %v: %v", s, err)
	}
}

// kill is kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

// says waits until stderr has the text.
func (p *process) says(text string) {
	p.t.Helper()
	p.await(fmt.Sprintf("%q on stderr", text), func() bool { return strings.Contains(p.stderr.String(), text) })
}

// await waits until the process has written something that makes ok true.
func (p *process) await(what string, ok func() bool) {
	p.t.Helper()
	deadline := time.After(patience)
	for !ok() {
		select {
		case <-p.stdout.wrote:
		case <-p.stderr.wrote:
		case <-p.done:
			if !ok() {
				p.t.Fatalf("penstock %q ended before %s; stderr: %s", p.args, what, p.stderr.tail())
			}
		case <-deadline:
			p.t.Fatalf("penstock %q: no %s; stderr: %s", p.args, what, p.stderr.tail())
		}
	}
}

// output collects what a process writes and tells that it did.
type output struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	wrote chan struct{}
}

func newOutput() *output { return &output{wrote: make(chan struct{}, 1)} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case o.wrote <- struct{}{}:
	default:
	}
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func (o *output) tail() string {
	s := o.String()
	return s[max(0, len(s)-4000):]
}

// eventually waits until ok; between tries it lets others run.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("still not: %s", what)
		}
	}
}

// subscription is what status says about one.
type subscription struct {
	Subscription string
	Backlog      int64
	Settled      int64
	Holder       string
}

// status reads the only subscription of an outbox; ok is false without one.
func status(t testing.TB, databaseURL, outbox string) (s subscription, ok bool) {
	t.Helper()
	var all struct {
		Outboxes []struct {
			Outbox        string
			Subscriptions []subscription
		}
	}
	out := must(t, "status", outbox, "--json", "--database-url", databaseURL)
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatalf("status --json: %v: %s", err, out)
	}
	if len(all.Outboxes) != 1 || len(all.Outboxes[0].Subscriptions) == 0 {
		return s, false
	}
	return all.Outboxes[0].Subscriptions[0], true
}

// relayed waits until nothing is left to relay.
func relayed(t testing.TB, databaseURL, outbox string) {
	t.Helper()
	eventually(t, "an empty backlog", func() bool {
		s, ok := status(t, databaseURL, outbox)
		return ok && s.Backlog == 0
	})
}
