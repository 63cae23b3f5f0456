package systemtest

import (
	"bytes"
	"context"
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

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/internal/test/postgrestest"
)

// envBinary names an existing penstock binary.
const envBinary = "PENSTOCK_TEST_BINARY"

// binary is the penstock that all tests run.
var binary string

// buildExamples builds the programs of examples/ that tests run, once, and returns their folder.
var buildExamples func() (string, error)

// buildTo builds programs without debug information, which takes half of the time.
func buildTo(output string, packages ...string) error {
	if out, err := exec.Command("go", append([]string{"build", "-ldflags", "-s -w", "-o", output}, packages...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("building %q: %w\n%s", packages, err, out)
	}
	return nil
}

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
	if binary = os.Getenv(envBinary); binary == "" {
		binary = filepath.Join(dir, "penstock")
		if err := buildTo(binary, ".."); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	buildExamples = sync.OnceValues(func() (string, error) {
		programs := filepath.Join(dir, "examples") + string(filepath.Separator)
		return programs, buildTo(programs, "../../../examples/orders", "../../../examples/service", "../../../examples/worker", "../../../examples/consumer")
	})
	return postgrestest.Run(m)
}

// patience bounds waiting for things that must happen; it decides nothing else.
const patience = 15 * time.Minute

// outcome is the result of a process.
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

// start runs penstock in a separate, empty directory, without the environment's database.
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
	if os.Getenv("TMPDIR") == "" { // a killed process leaves files there
		cmd.Env = append(cmd.Env, "TMPDIR="+t.TempDir())
	}
	cmd.Env = append(cmd.Env, given...) // the last one counts
	cmd.Stdout, cmd.Stderr = p.stdout, p.stderr
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting penstock: %v", err)
	}
	go func() {
		_ = cmd.Wait() // the exit code is read from ProcessState
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

// must runs penstock and requires that it succeeds.
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
	_ = p.cmd.Process.Kill() // it may have ended already
	<-p.done
}

// says waits until stderr has the text.
func (p *process) says(text string) {
	p.t.Helper()
	p.await(fmt.Sprintf("%q on stderr", text), func() bool { return strings.Contains(p.stderr.String(), text) })
}

// await waits until the output makes ok true.
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

// output collects the output of a process, and signals each write.
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

// inStore uses the store at a URL in this process: tests of cmd/penstock cover the output and the refusals of
// verbs.
func inStore(t testing.TB, url string, do func(ctx context.Context, s driver.Store) error) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	store, err := drivers.OpenStore(ctx, url, "", nil)
	if err == nil {
		err = errors.Join(do(ctx, store), store.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// withOutbox creates an outbox, and the tables that it needs.
func withOutbox(t testing.TB, url, outbox string) {
	t.Helper()
	inStore(t, url, func(ctx context.Context, s driver.Store) error {
		return errors.Join(s.Migrate(ctx), s.CreateOutbox(ctx, outbox))
	})
}

// ordersDatabase is a database of PostgreSQL with the outbox "orders".
func ordersDatabase(t testing.TB) (url string) {
	t.Helper()
	url = postgrestest.Database(t)
	withOutbox(t, url, "orders")
	return url
}

func publish(t testing.TB, url, outbox, payload string) {
	t.Helper()
	inStore(t, url, func(ctx context.Context, s driver.Store) error {
		return s.Publish(ctx, outbox, penstock.Message{Topic: "t", Payload: []byte(payload)})
	})
}

// subscriptionOf is the status of an outbox's subscription, or of the first without a name. It may not
// exist.
func subscriptionOf(t testing.TB, url, outbox, name string) (found admin.SubscriptionStatus, ok bool) {
	t.Helper()
	inStore(t, url, func(ctx context.Context, s driver.Store) (err error) {
		found, ok, err = look(ctx, s, outbox, name)
		return err
	})
	return found, ok
}

func look(ctx context.Context, s driver.Store, outbox, name string) (admin.SubscriptionStatus, bool, error) {
	all, err := s.Status(ctx)
	for _, o := range all {
		for _, s := range o.Subscriptions {
			if o.Outbox == outbox && (name == "" || s.Subscription == name) {
				return s, true, err
			}
		}
	}
	return admin.SubscriptionStatus{}, false, err
}

// awaitSubscription waits until an outbox's subscription, or the first without a name, is in the
// wanted state.
func awaitSubscription(t testing.TB, url, outbox, name, what string, is func(admin.SubscriptionStatus) bool) (found admin.SubscriptionStatus) {
	t.Helper()
	inStore(t, url, func(ctx context.Context, s driver.Store) error {
		eventually(t, what, func() bool {
			now, ok, err := look(ctx, s, outbox, name)
			if err != nil {
				t.Fatal(err)
			}
			found = now
			return ok && is(now)
		})
		return nil
	})
	return found
}

// relayed waits until nothing is left to relay.
func relayed(t testing.TB, url, outbox string) {
	t.Helper()
	awaitSubscription(t, url, outbox, "", "an empty backlog", func(s admin.SubscriptionStatus) bool { return s.Backlog == 0 })
}
