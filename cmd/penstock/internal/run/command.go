package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/sink/webhook"
	"github.com/penstock/penstock/work"
)

// Exit codes of sysexits.h after which no attempt can help, and those of a shell that cannot run or find a command.
const (
	exUsage   = 64
	exDataErr = 65
	notRun    = 126
	notFound  = 127
)

// execution runs a command per job.
type execution struct {
	queue, command string
	timeout        time.Duration // 0 for none
	stdout, stderr io.Writer     // nil means discard
	reports        string        // folder for the reports of commands; empty if the queue keeps none
	works          atomic.Bool   // the command was found at least once

	http *webhook.Sink // instead of the command
	log  *slog.Logger

	hurried  context.Context // its end kills the running commands
	giveBack func(context.Context, penstock.Job) error
}

var (
	errJobTimeout = errors.New("it ran longer than its timeout")
	errJobHurried = errors.New("the worker was hurried")
)

// leftBehind is how long processes that an ended command left behind may use its stderr.
const leftBehind = 2 * time.Second

// handle is the work.Handler.
func (e *execution) handle(ctx context.Context, job penstock.Job) error {
	running, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(e.hurried, func() { cancel(errJobHurried) })()
	if e.timeout > 0 {
		defer time.AfterFunc(e.timeout, func() { cancel(errJobTimeout) }).Stop()
	}
	said := &lastLines{}
	var err error
	if e.http != nil {
		err = e.post(running, job)
	} else {
		err = e.run(running, job, said)
	}
	if err == nil {
		return nil
	}
	switch cause := context.Cause(running); {
	case cause == errJobTimeout:
		return said.after(fmt.Sprintf("killed after %s", e.timeout))
	case cause == errJobHurried:
		settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		if err := e.giveBack(settle, job); err != nil {
			return fmt.Errorf("%w, and the job could not be given back: %w", errJobHurried, err)
		}
		return work.ErrSettled
	case cause != nil: // work.Run's own
		return cause
	}
	if e.http != nil {
		return err
	}
	return e.verdict(&job, err, said)
}

// run runs the command to its end; the end of ctx kills it.
func (e *execution) run(ctx context.Context, job penstock.Job, said *lastLines) (err error) {
	// Linux kills the command when the thread that started it ends: see ownGroup.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, shell[0], append(shell[1:len(shell):len(shell)], e.command)...)
	cmd.Env = jobEnvironment(os.Environ(), e.queue, &job)
	if e.reports != "" {
		f := e.reportFor(&job)
		cmd.Env = append(cmd.Env, "PENSTOCK_JOB_REPORT="+f.path)
		ended := f.during(ctx)
		defer func() {
			ended()
			f.last(ctx)
		}()
	}
	cmd.Stdin = bytes.NewReader(job.Payload)
	cmd.Stdout = e.stdout
	cmd.Stderr = said
	if e.stderr != nil {
		cmd.Stderr = io.MultiWriter(said, e.stderr)
	}
	cmd.SysProcAttr = ownGroup()
	cmd.Cancel = func() error {
		return killGroup(cmd.Process)
	}
	cmd.WaitDelay = leftBehind
	if err = cmd.Run(); errors.Is(err, exec.ErrWaitDelay) {
		err = nil // it succeeded, and left a process that holds its stderr
	}
	if err == nil {
		e.works.Store(true)
	}
	return err
}

// verdict is the result of a job by its exit code. Until the command was found once, a job that cannot be run spends no attempt.
func (e *execution) verdict(job *penstock.Job, err error, said *lastLines) error {
	exit, ended := errors.AsType[*exec.ExitError](err)
	if !ended {
		return fmt.Errorf("the command could not be run: %w", err)
	}
	failure := said.after(exit.String()) // "exit status 1" or "signal: killed"
	switch exit.ExitCode() {
	case notRun, notFound:
		if !e.works.Load() { // a wrong command, which would use up the attempts of all jobs
			e.log.Warn("the command cannot be run; the job rests, and no attempt is spent", "job", job.ID, "in", unreachable, "err", failure)
			return work.Snooze(unreachable)
		}
	case exUsage, exDataErr:
		e.works.Store(true)
		return penstock.Permanent(failure)
	default:
		e.works.Store(true)
	}
	return failure
}

// jobEnvironment is the worker's environment with the job's variables. It leaves out Penstock's own variables, which have passwords
// and tokens, or belong to a job of which this process is a command. It also leaves out libpq's variables with the database's
// password or with the path of a file with a secret.
func jobEnvironment(ours []string, queue string, job *penstock.Job) []string {
	env := slices.DeleteFunc(slices.Clone(ours), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return strings.HasPrefix(v, "PENSTOCK_") || slices.Contains(withheld, name)
	})
	env = append(env,
		"PENSTOCK_JOB_QUEUE="+queue, fmt.Sprintf("PENSTOCK_JOB_ID=%d", job.ID), "PENSTOCK_JOB_KIND="+job.Kind(), "PENSTOCK_JOB_KEY="+job.Key,
		"PENSTOCK_JOB_GROUP="+job.Group, fmt.Sprintf("PENSTOCK_JOB_ATTEMPT=%d", job.Attempt))
	for _, name := range slices.Sorted(maps.Keys(job.Headers)) { // if two become one, the last counts
		value := job.Headers[name]
		env = append(env, "PENSTOCK_JOB_HEADER_"+strings.Map(variableRune, name)+"="+value)
		if strings.EqualFold(name, "traceparent") || strings.EqualFold(name, "tracestate") {
			env = append(env, strings.ToUpper(name)+"="+value)
		}
	}
	return env
}

// withheld are variables of the worker that a command does not get. PGSERVICE and PGSYSCONFDIR lead to service files, which may have a
// password.
var withheld = []string{"PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE", "PGSYSCONFDIR", "PGSSLKEY", "PGSSLPASSWORD", "TRACEPARENT", "TRACESTATE"}

// variableRune maps a character of a header's name to one of a variable's name.
func variableRune(r rune) rune {
	switch {
	case r >= 'a' && r <= 'z':
		return r - 'a' + 'A'
	case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		return r
	}
	return '_'
}

// keptStderr is how many bytes of a command's stderr are kept as the error.
const keptStderr = 2 << 10

// lastLines keeps the last lines that are written to it. The error that holds it lasts for at most
// one attempt.
type lastLines struct {
	kept []byte
	cut  bool
}

func (l *lastLines) Write(p []byte) (int, error) {
	l.kept = append(l.kept, p...)
	if extra := len(l.kept) - keptStderr; extra > 0 {
		l.kept, l.cut = append(l.kept[:0], l.kept[extra:]...), true
	}
	return len(p), nil
}

// after returns the failure with the lines that were written before.
func (l *lastLines) after(what string) error {
	text := string(l.kept)
	if l.cut { // not from the middle of a line, if there is another
		if _, rest, ok := strings.Cut(text, "\n"); ok && strings.TrimSpace(rest) != "" {
			text = rest
		}
	}
	if text = strings.TrimSpace(text); text == "" {
		return errors.New(what)
	}
	return fmt.Errorf("%s: %s", what, text)
}

// sharedWriter is w for several commands at a time. Commands get a file directly; any other writer
// gets one write after another.
func sharedWriter(w io.Writer) io.Writer {
	if f, ok := w.(*os.File); ok {
		return f
	}
	return &lockedWriter{w: w}
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// unreachable is how long a job waits whose endpoint cannot be reached, or whose command cannot be run. That does not count as an
// attempt.
const unreachable = 5 * time.Second

// post is run for an endpoint.
func (e *execution) post(ctx context.Context, job penstock.Job) error {
	// A repeated request has the same id; the name distinguishes it from those of other queues.
	m := penstock.Message{ID: fmt.Sprintf("%s-%d", strings.Map(printable, e.queue), job.ID), Key: job.Key, Topic: e.queue,
		Headers: job.Headers, Payload: job.Payload, CreatedAt: job.CreatedAt, Attempt: job.Attempt}
	err := errors.Join(e.http.Send(ctx, []penstock.Message{m})...)
	if answer, ok := errors.AsType[*webhook.StatusError](err); ok && answer.Status == http.StatusTooManyRequests {
		if after, asked := penstock.RetryDelay(err); asked {
			return work.HoldGroup(after, answer.Error())
		}
	}
	if penstock.IsUnavailable(err) {
		after, asked := penstock.RetryDelay(err)
		if !asked {
			after = unreachable
		}
		e.log.Warn("the endpoint cannot be reached; the job rests, and no attempt is spent", "job", job.ID, "in", after, "err", err)
		return work.Snooze(after)
	}
	return err
}

// printable removes characters that an id cannot hold.
func printable(r rune) rune {
	if r < ' ' || r > '~' {
		return '_'
	}
	return r
}

// reportEvery is how often the report of a running command is checked.
const reportEvery = time.Second

// reportFile is where a command writes its progress or its result: PENSTOCK_JOB_REPORT names it.
type reportFile struct {
	path string
	log  *slog.Logger
	seen os.FileInfo // of the last report
}

// reportFor names a file for a job. It has the report of an earlier attempt, or the command creates it if it has something to report.
func (e *execution) reportFor(job *penstock.Job) *reportFile {
	f := &reportFile{path: filepath.Join(e.reports, fmt.Sprintf("%d-%d.json", job.ID, job.Attempt)), log: e.log.With("job", job.ID)}
	if job.Report != nil {
		err := os.WriteFile(f.path, job.Report, 0o600)
		if err == nil {
			f.seen, err = os.Lstat(f.path)
		}
		if err != nil {
			f.log.Warn("a command does not have the report of an earlier attempt", "err", err)
		}
	}
	return f
}

// during reports the file's contents at intervals, until the command has ended. Text that is not JSON is not complete yet.
func (f *reportFile) during(ctx context.Context) (ended func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(reportEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if text := f.read(); json.Valid(text) {
				f.report(ctx, text)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// last reports the file's contents at the end, as a text if they are not JSON, and removes it.
func (f *reportFile) last(ctx context.Context) {
	defer func() { _ = os.Remove(f.path) }()
	text := f.read()
	if len(text) == 0 || ctx.Err() != nil {
		return
	}
	if !json.Valid(text) {
		text, _ = json.Marshal(strings.TrimSpace(strings.ToValidUTF8(string(text), "\uFFFD")))
	}
	f.report(ctx, text)
}

// read returns contents that are not reported yet. It reads only a file: another object may make its reader wait.
func (f *reportFile) read() []byte {
	info, err := os.Lstat(f.path)
	if err != nil || !info.Mode().IsRegular() || f.seen != nil && os.SameFile(f.seen, info) && f.seen.Size() == info.Size() && f.seen.ModTime().Equal(info.ModTime()) {
		return nil
	}
	file, err := os.Open(f.path)
	if err != nil {
		f.log.Warn("a report cannot be read", "err", err)
		return nil
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, penstock.MaxReportBytes+1))
	if f.seen = info; err != nil || len(text) > penstock.MaxReportBytes {
		f.log.Warn("a report cannot be used", "err", err, "bytes", info.Size(), "most", penstock.MaxReportBytes)
		return nil
	}
	return text
}

// report does not fail the job, whose own work is done.
func (f *reportFile) report(ctx context.Context, text []byte) {
	if err := work.Report(ctx, json.RawMessage(text)); err != nil && ctx.Err() == nil && !errors.Is(err, penstock.ErrLeaseLost) {
		f.log.Warn("a report is not kept", "err", err)
	}
}
