package conformance_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/clients/conformance"
	"github.com/penstock/penstock/work"
)

// program is a running program of one language.
type program struct {
	hello conformance.Hello
	cmd   *exec.Cmd
	in    io.WriteCloser
	said  tail // on standard error
	ended chan struct{}

	mu      sync.Mutex
	waiting map[int64]chan answer
	workers map[string]*remoteWorker
	early   map[string][]conformance.Event // of workers whose start is not known yet
	failed  error
	last    atomic.Int64
	kinds   atomic.Int64
}

type answer struct {
	ID     int64              `json:"id"`
	Result json.RawMessage    `json:"result"`
	Error  *conformance.Error `json:"error"`
	conformance.Event
}

// tail keeps the end of the output.
type tail struct {
	sync.Mutex
	text []byte
}

func (w *tail) Write(p []byte) (int, error) {
	w.Lock()
	defer w.Unlock()
	w.text = append(w.text, p...)
	w.text = w.text[max(0, len(w.text)-8<<10):]
	return len(p), nil
}

func (w *tail) String() string {
	w.Lock()
	defer w.Unlock()
	return string(bytes.TrimSpace(w.text))
}

// start runs the program of a language until the test ends.
func start(t testing.TB, language string) *program {
	t.Helper()
	p := launch(t, language)
	t.Cleanup(p.kill)
	return p
}

// launch runs it until it is killed.
func launch(t testing.TB, language string) *program {
	t.Helper()
	p := &program{cmd: exec.Command(filepath.Join("..", language, "conformance.sh")), ended: make(chan struct{}),
		waiting: map[int64]chan answer{}, workers: map[string]*remoteWorker{}, early: map[string][]conformance.Event{}}
	p.cmd.Stderr = &p.said
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a script may have children
	in, err := p.cmd.StdinPipe()
	must(t, err)
	out, err := p.cmd.StdoutPipe()
	must(t, err)
	p.in = in
	must(t, p.cmd.Start())
	go p.read(out)
	must(t, p.call(t.Context(), "hello", nil, &p.hello))
	if len(p.hello.Kinds) == 0 || p.hello.Language != language {
		t.Fatalf("%s said hello as %+v, want its language and kinds", language, p.hello)
	}
	return p
}

func (p *program) kill() {
	_ = p.in.Close()
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.ended
}

// terminate sends SIGTERM and returns how the program ended.
func (p *program) terminate() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-p.ended
	if !p.cmd.ProcessState.Success() {
		return fmt.Errorf("after SIGTERM the program ended with %s", p.cmd.ProcessState)
	}
	return nil
}

func (p *program) read(out io.Reader) {
	lines := bufio.NewReaderSize(out, 1<<20)
	var err error
	for err == nil {
		var line []byte
		if line, err = lines.ReadBytes('\n'); err == nil {
			err = p.take(line)
		}
	}
	_ = p.cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = fmt.Errorf("the program ended (%w): %s", err, p.said.String())
	for id, c := range p.waiting {
		close(c)
		delete(p.waiting, id)
	}
	for _, w := range p.workers {
		w.abortAll()
	}
	close(p.ended)
}

func (p *program) take(line []byte) error {
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		return fmt.Errorf("it wrote %.200q: %w", line, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if a.Event.Event != "" {
		if w := p.workers[a.Worker]; w != nil {
			w.take(a.Event)
		} else {
			p.early[a.Worker] = append(p.early[a.Worker], a.Event)
		}
		return nil
	}
	c, ok := p.waiting[a.ID]
	if !ok {
		return fmt.Errorf("it answered %.200q, without a request", line)
	}
	delete(p.waiting, a.ID)
	c <- a
	return nil
}

// args are those of a request.
type args map[string]any

// call sends a request and waits for its answer.
func (p *program) call(ctx context.Context, op string, with args, result any) error {
	id := p.last.Add(1)
	line := args{"id": id, "op": op}
	for name, value := range with {
		line[name] = value
	}
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	c := make(chan answer, 1)
	p.mu.Lock()
	if p.failed != nil {
		defer p.mu.Unlock()
		return p.failed
	}
	p.waiting[id] = c
	_, err = p.in.Write(append(text, '\n'))
	p.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case a, ok := <-c:
		switch {
		case !ok:
			return p.failed
		case a.Error != nil:
			return a.Error
		case result == nil:
			return nil
		}
		return json.Unmarshal(a.Result, result)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// remoteWorker is a worker in a program. Its handler is in the test.
type remoteWorker struct {
	p       *program
	handler func(ctx context.Context, tx string, j penstock.Job) error

	mu    sync.Mutex
	calls map[string]context.CancelCauseFunc
}

// work makes a worker of the program call h, until ctx ends.
func (p *program) work(ctx context.Context, with args, h func(ctx context.Context, tx string, j penstock.Job) error) error {
	w := &remoteWorker{p: p, handler: h, calls: map[string]context.CancelCauseFunc{}}
	var started struct {
		Worker string `json:"worker"`
	}
	if err := p.call(ctx, "work", with, &started); err != nil {
		return err
	}
	p.mu.Lock()
	p.workers[started.Worker] = w
	for _, e := range p.early[started.Worker] {
		w.take(e)
	}
	delete(p.early, started.Worker)
	p.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-p.ended:
	}
	err := p.call(context.WithoutCancel(ctx), "stop", args{"worker": started.Worker}, nil)
	p.mu.Lock()
	delete(p.workers, started.Worker)
	p.mu.Unlock()
	return err
}

// take is called with each event, one after another.
func (w *remoteWorker) take(e conformance.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.Event == "aborted" {
		if abort := w.calls[e.Call]; abort != nil {
			abort(map[string]error{"lease_lost": penstock.ErrLeaseLost, "stopping": work.ErrStopping, "timeout": context.DeadlineExceeded}[e.Cause])
		}
		return
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	w.calls[e.Call] = cancel
	go func() {
		with := outcomeOf(w.call(ctx, e))
		w.mu.Lock()
		delete(w.calls, e.Call)
		w.mu.Unlock()
		with["call"] = e.Call
		_ = w.p.call(context.Background(), "outcome", with, nil) // a worker that has ended reports it in other ways
		cancel(nil)
	}()
}

func (w *remoteWorker) abortAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, abort := range w.calls {
		abort(errors.New("the program ended"))
	}
}

func (w *remoteWorker) call(ctx context.Context, e conformance.Event) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &work.PanicError{Value: r}
		}
	}()
	return w.handler(context.WithValue(ctx, callKey{}, func(with args) (s conformance.Stepped, err error) {
		with["call"] = e.Call
		return s, known(w.p.call(ctx, "step", with, &s))
	}), e.Tx, e.Job.Job())
}

type callKey struct{}

// step runs a step of the job that the program's handler has.
func step(ctx context.Context, name, result string, more args) (conformance.Stepped, error) {
	with := args{"name": name, "result": result}
	maps.Copy(with, more)
	return ctx.Value(callKey{}).(func(args) (conformance.Stepped, error))(with)
}

// errUnreadable makes the handler in the program throw an error without a text.
var errUnreadable = errors.New("unreadable")

// outcomeOf returns how a handler ended.
func outcomeOf(err error) args {
	if err == nil || err == errUnreadable {
		return args{"outcome": map[error]string{nil: "done", errUnreadable: "unreadable"}[err]}
	}
	if after, ok := work.SnoozeDelay(err); ok {
		return args{"outcome": "snooze", "after_ms": after.Milliseconds()}
	}
	if after, ok := penstock.RetryDelay(err); ok {
		return args{"outcome": "retry", "after_ms": after.Milliseconds(), "reason": err.Error()}
	}
	switch {
	case penstock.IsPermanent(err):
		return args{"outcome": "dead_letter", "reason": err.Error()}
	case errors.Is(err, work.ErrCancelled):
		return args{"outcome": "cancelled"}
	}
	return args{"outcome": "error", "reason": err.Error()}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
