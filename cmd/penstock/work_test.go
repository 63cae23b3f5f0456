package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/internal/test/postgrestest"
)

// work runs the worker until the queue has the expected state.
func (d *desk) work(queue string, until func(*admin.QueueStatus) bool, args ...string) outcome {
	d.t.Helper()
	ctx, drain := context.WithCancel(d.t.Context())
	defer drain()
	go func() {
		for ctx.Err() == nil {
			if q := d.find(ctx, queue); q != nil && until(q) {
				drain()
			}
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return d.runIn(ctx, false, "", append([]string{"work", queue}, args...)...)
}

// nothingToDo is true when no job runs or could.
func nothingToDo(q *admin.QueueStatus) bool { return q.Ready+q.Running+q.Waiting == 0 }

// deadErrors are the dead letters of a queue as payload and error.
func (d *desk) deadErrors(queue string) map[string]string {
	d.t.Helper()
	dead, err := d.queues().DeadJobs(d.t.Context(), admin.DeadJobQuery{Queue: queue})
	if err != nil {
		d.t.Fatal(err)
	}
	found := map[string]string{}
	for _, l := range dead {
		found[string(l.Job.Payload)] = l.Err()
	}
	return found
}

func TestExitCodeIsTheVerdict(t *testing.T) {
	eachStore(t, func(t *testing.T, d *desk) {
		d.must("queue", "create", "scripts")
		d.jobs("scripts", "exit 0", "true", "echo used wrongly >&2; exit 64", "exit 65", "exit 75", "exit 1", "kill -9 $$")
		o := d.work("scripts", nothingToDo, "--exec", "sh") // each payload is a script
		if o.code != terminal.ExitOK || !strings.Contains(o.stderr, "done=2 failed=3 dead=2 lost=0") {
			t.Errorf("exit code %d: %s", o.code, o.stderr)
		}
		same(t, "dead", fmt.Sprint(d.deadErrors("scripts")), "map[echo used wrongly >&2; exit 64:exit status 64: used wrongly exit 65:exit status 65]")
		q := d.queue("scripts")
		same(t, "tried again later, the rest done", fmt.Sprint(q.Delayed, jobsIn(q)), "3 3")
		if _, keeps := d.queues().(driver.WorkerStore); keeps {
			contains(t, d.must("queue", "workers", "scripts"), "penstock "+version)
		}
	})
}

// A wrong command spends no attempt of any job. Once the command has run, a job that cannot be run failed.
func TestCommandThatIsNotFound(t *testing.T) {
	d := urlDesk(t, sqliteFile(t))
	d.must("queue", "create", "scripts", "--max-attempts", "1")
	d.jobs("scripts", "exit 0", "exit 0")
	o := d.work("scripts", func(q *admin.QueueStatus) bool { return q.Delayed+q.DeadLetters == 2 }, "--exec", "no-such-command")
	contains(t, o.stderr, "the command cannot be run; the job rests, and no attempt is spent", "exit status 127: ", "done=0 failed=0 dead=0")
	d.must("queue", "create", "more", "--max-attempts", "1")
	d.jobs("more", "exit 0", "exit 126")
	d.work("more", func(q *admin.QueueStatus) bool { return q.DeadLetters == 1 }, "--exec", "sh", "--concurrency", "1")
	same(t, "dead", fmt.Sprint(d.deadErrors("more")), "map[exit 126:exit status 126]")
}

func TestLastAttemptMakesADeadLetterWithTheLastLines(t *testing.T) {
	eachStore(t, func(t *testing.T, d *desk) {
		d.must("queue", "create", "scripts", "--max-attempts", "1")
		long := "i=0; while [ $i -lt 1000 ]; do echo line $i >&2; i=$((i+1)); done; exit 3"
		d.jobs("scripts", "exit 75", "kill -9 $$", "no-such-command", long)
		o := d.work("scripts", func(q *admin.QueueStatus) bool { return q.DeadLetters == 4 }, "--exec", "exec sh", "--output", "discard")
		if strings.Contains(o.stdout+o.stderr, "line 0\n") {
			t.Errorf("what is to be discarded is shown: %s", o.stderr)
		}
		dead := d.deadErrors("scripts")
		same(t, "exit 75", dead["exit 75"], "exit status 75")
		same(t, "killed", dead["kill -9 $$"], "signal: killed")
		contains(t, dead["no-such-command"], "exit status 127: ", "no-such-command")
		text := dead[long]
		contains(t, text, "exit status 3: line ", "line 998\nline 999")
		if len(text) > 2<<10+100 || strings.Contains(text, "line 1\n") {
			t.Errorf("%d bytes are kept: %s", len(text), text)
		}
	})
}

func TestCommandGetsPayloadAndVariables(t *testing.T) {
	d := urlDesk(t, sqliteFile(t))
	d.must("queue", "create", "mails")
	t.Setenv("PENSTOCK_JOB_HEADER_OLD", "of the job whose command this is")
	t.Setenv("TRACEPARENT", "of that job")
	t.Setenv("SHOP", "ours")
	job := penstock.NewJob{Key: "k 1", Group: "acme", Payload: []byte("a\x00b\n"), Headers: map[string]string{"Content-Type": "t/x", "é\n": "v\nw", "traceparent": "00-ab"}}
	ids, err := d.queues().DriverQueue("mails").Enqueue(t.Context(), job, penstock.NewJob{Group: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	o := d.work("mails", func(q *admin.QueueStatus) bool { return jobsIn(q) == 0 }, "--group", "acme", "--concurrency", "1",
		"--exec", `cat; for v in QUEUE ID KEY GROUP ATTEMPT HEADER_CONTENT_TYPE HEADER___ HEADER_OLD; do eval "echo $v=\"\$PENSTOCK_JOB_$v\""; done; echo "$TRACEPARENT,$SHOP"`)
	want := fmt.Sprintf("a\x00b\nQUEUE=mails\nID=%d\nKEY=k 1\nGROUP=acme\nATTEMPT=1\nHEADER_CONTENT_TYPE=t/x\nHEADER___=v\nw\nHEADER_OLD=\n00-ab,ours\n", ids[0].ID) +
		fmt.Sprintf("QUEUE=mails\nID=%d\nKEY=\nGROUP=acme\nATTEMPT=1\nHEADER_CONTENT_TYPE=\nHEADER___=\nHEADER_OLD=\n,ours\n", ids[1].ID)
	same(t, "what the commands saw", o.stdout, want)
}

// A report that a command writes to its file is kept with its job, visible while it runs, and there for the next attempt. An invalid report is logged and does no
// harm.
func TestCommandReports(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	d := urlDesk(t, postgrestest.Database(t))
	d.must("queue", "create", "films")
	d.must("queue", "set", "films", "--keep-done", "1h")
	wait := filepath.Join(t.TempDir(), "wait")
	for _, script := range []string{`echo '{"frames": 17}' >"$PENSTOCK_JOB_REPORT"`, `echo half a >"$PENSTOCK_JOB_REPORT"; echo film >>"$PENSTOCK_JOB_REPORT"`, `true`,
		`mkfifo "$PENSTOCK_JOB_REPORT"`, `ln -s /etc/passwd "$PENSTOCK_JOB_REPORT"`, `head -c 70000 /dev/zero >"$PENSTOCK_JOB_REPORT"`,
		`if [ -e "$PENSTOCK_JOB_REPORT" ]; then sed 's/1/2/' "$PENSTOCK_JOB_REPORT" >"$PENSTOCK_JOB_REPORT.2"; mv "$PENSTOCK_JOB_REPORT.2" "$PENSTOCK_JOB_REPORT"; else echo '{"part":1}' >"$PENSTOCK_JOB_REPORT"; exit 1; fi`,
		`echo '{"now": 1}' >"$PENSTOCK_JOB_REPORT"; while [ ! -e '` + wait + `' ]; do sleep 0.05; done; printf '"end"' >"$PENSTOCK_JOB_REPORT"`} {
		d.must("enqueue", "films", script)
	}
	o := d.work("films", func(q *admin.QueueStatus) bool {
		if running, err := d.store.(interface {
			Running(ctx context.Context, queue string, most int) ([]doctor.Running, error)
		}).Running(t.Context(), "films", 10); err == nil && len(running) == 1 && string(running[0].Report) == `{"now": 1}` {
			_ = os.WriteFile(wait, nil, 0o600)
		}
		return nothingToDo(q) && q.Delayed == 0
	}, "--exec", `sh -c "$(cat)"`, "--concurrency", "2")
	contains(t, o.stderr, "a report cannot be used")
	var reports []string
	for line := range strings.Lines(d.must("queue", "done", "films", "--json")) {
		var j admin.DoneJob
		if err := json.Unmarshal([]byte(line), &j); err != nil {
			t.Fatal(err)
		}
		reports = append(reports, fmt.Sprint(j.ID, " ", string(j.Report)))
	}
	slices.Sort(reports)
	same(t, "what is kept", strings.Join(reports, "\n"), "1 {\"frames\":17}\n2 \"half a\\nfilm\"\n3 \n4 \n5 \n6 \n7 {\"part\":2}\n8 \"end\"")
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "penstock-reports-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestWorkOnSeveralGroups(t *testing.T) {
	eachStore(t, func(t *testing.T, d *desk) {
		d.must("queue", "create", "mails")
		for _, group := range []string{"a", "b", "b", "c", ""} {
			d.must("enqueue", "mails", "x", "--group", group)
		}
		echo := []string{"--exec", `echo "$PENSTOCK_JOB_GROUP."`}
		lines := func(o outcome) string {
			done := strings.Split(strings.TrimSpace(o.stdout), "\n")
			slices.Sort(done)
			return strings.Join(done, " ")
		}
		o := d.work("mails", func(q *admin.QueueStatus) bool { return jobsIn(q) == 2 }, append(echo, "--group", "a", "-g", "b")...)
		same(t, "the two", lines(o), "a. b. b.")
		contains(t, o.stderr, `groups="[a b]"`)
		o = d.work("mails", func(q *admin.QueueStatus) bool { return jobsIn(q) == 0 }, append(echo, "--all-groups")...)
		same(t, "the others", lines(o), ". c.")
		d.must("enqueue", "mails", "x", "--group", "a")
		d.must("enqueue", "mails", "x")
		o = d.work("mails", func(q *admin.QueueStatus) bool { return jobsIn(q) == 1 }, echo...)
		same(t, "without a group", lines(o), ".")
		d.cli("work", "mails", "--exec", "true", "--all-groups", "--group", "a").wants(t, terminal.ExitUsage, "--all-groups is given with --group")
	})
}

// A worker of some kinds runs their jobs and leaves the others alone.
func TestWorkOnSomeKinds(t *testing.T) {
	eachStore(t, func(t *testing.T, d *desk) {
		d.must("queue", "create", "mails")
		for _, kind := range []string{"a", "b", "c"} {
			d.must("enqueue", "mails", "x", "--kind", kind)
		}
		d.must("enqueue", "mails", "x")
		o := d.work("mails", func(q *admin.QueueStatus) bool { return jobsIn(q) == 1 && q.Delayed == 1 },
			"--exec", `echo "$PENSTOCK_JOB_KIND."`, "--kind", "a", "--kind", "", "--kind", "c", "--concurrency", "1")
		same(t, "the kinds", o.stdout, "a.\nc.\n.\n")
		contains(t, o.stderr, "no handler for a job's kind in this worker", "kind=b", `kinds="[a  c]"`)
		d.cli("work", "mails", "--exec", "true", "--kind", "a\nb").wants(t, terminal.ExitUsage, "--kind is not possible")
		d.cli("work", "mails", "--exec", "true", "--kind", "a", "--kind", "a").wants(t, terminal.ExitUsage, "kinds has \"a\" twice")
	})
}

func TestCommandNeedNotReadItsPayload(t *testing.T) {
	d := urlDesk(t, sqliteFile(t))
	d.must("queue", "create", "mails")
	d.jobs("mails", strings.Repeat("x", 4<<20))
	o := d.work("mails", func(q *admin.QueueStatus) bool { return jobsIn(q) == 0 }, "--exec", "true")
	contains(t, o.stderr, "done=1 failed=0")
}

// lifeline is a pipe that a command and its children hold open while they live.
type lifeline struct {
	t    *testing.T
	path string
	in   *bufio.Reader
}

func newLifeline(t *testing.T) *lifeline {
	path := filepath.Join(t.TempDir(), "lifeline")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return &lifeline{t: t, path: path}
}

// command is a command that holds the line forever, and so does its child.
func (l *lifeline) command() string {
	return fmt.Sprintf("exec 3>%s; echo $$ >&3; sleep 1000 & wait", l.path)
}

// open has the line read. Without further flags it waits for a command that writes.
func (l *lifeline) open(flags int) {
	file, err := os.OpenFile(l.path, os.O_RDONLY|flags, 0)
	if err != nil {
		l.t.Error(err)
		return
	}
	l.t.Cleanup(func() { file.Close() })
	if err := file.SetReadDeadline(time.Now().Add(time.Minute)); err != nil { // rather than for ever
		l.t.Error(err)
	}
	l.in = bufio.NewReader(file)
}

// up waits until the command runs.
func (l *lifeline) up() {
	l.open(0)
	if l.in == nil {
		return
	}
	if line, err := l.in.ReadString('\n'); err != nil {
		l.t.Errorf("%q, %v", line, err)
	}
}

// down waits until no process holds the line.
func (l *lifeline) down() {
	if rest, err := io.ReadAll(l.in); err != nil || len(rest) > 0 {
		l.t.Errorf("%q, %v", rest, err)
	}
}

func TestTimeoutKillsTheCommandAndItsChildren(t *testing.T) {
	d := urlDesk(t, sqliteFile(t))
	for timeout, ran := 50*time.Millisecond, false; !ran; timeout *= 2 { // a busy machine may kill the command before it has begun
		queue := "mails" + timeout.String()
		d.must("queue", "create", queue, "--max-attempts", "1")
		d.jobs(queue, "")
		line := newLifeline(t)
		line.open(syscall.O_NONBLOCK)
		d.work(queue, func(q *admin.QueueStatus) bool { return q.DeadLetters == 1 }, "--timeout", timeout.String(), "--exec", line.command())
		pid, err := io.ReadAll(line.in) // until no process holds the line
		if err != nil {
			t.Fatalf("%q, %v", pid, err)
		}
		same(t, "dead letter", d.deadErrors(queue)[""], "killed after "+timeout.String())
		ran = len(pid) > 0
	}
}

func TestCommandOfALostLeaseIsKilled(t *testing.T) {
	d := urlDesk(t, sqliteFile(t))
	d.must("queue", "create", "mails")
	id := d.jobs("mails", "")[0]
	line := newLifeline(t)
	down := make(chan struct{})
	go func() {
		defer close(down)
		line.up()
		d.must("job", "cancel", "mails", fmt.Sprint(id))
		line.down()
	}()
	o := d.work("mails", func(*admin.QueueStatus) bool {
		select {
		case <-down:
			return true
		default:
			return false
		}
	}, "--lease", "6s", "--exec", line.command())
	same(t, "exit code", fmt.Sprint(o.code), "0")
	contains(t, o.stderr, "done=0 failed=0 dead=0 lost=1", "a job was removed while it ran, as job cancel does")
	if strings.Contains(o.stderr, "elsewhere") {
		t.Errorf("a cancelled job runs nowhere: %s", o.stderr)
	}
	same(t, "left", fmt.Sprint(jobsIn(d.queue("mails"))), "0")
}

func TestDrainLetsCommandsEnd(t *testing.T) {
	d := urlDesk(t, sqliteFile(t))
	d.must("queue", "create", "mails")
	d.jobs("mails", "", "")
	line := newLifeline(t)
	ctx, drain := context.WithCancel(t.Context())
	release := filepath.Join(t.TempDir(), "release")
	if err := syscall.Mkfifo(release, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		line.up()
		drain()
		if err := os.WriteFile(release, []byte("go\n"), 0); err != nil { // once the command reads
			t.Error(err)
		}
	}()
	o := d.runIn(ctx, false, "", "work", "mails", "--concurrency", "1", "--exec", fmt.Sprintf("exec 3>%s; echo up >&3; read x < %s; echo ended", line.path, release))
	same(t, "output", o.stdout, "ended\n")
	same(t, "exit code", fmt.Sprint(o.code), "0")
	same(t, "left", fmt.Sprint(d.queue("mails").Ready), "1")
}

// TestHurryKillsAndGivesBack runs a job that never ends.
func TestHurryKillsAndGivesBack(t *testing.T) {
	eachStore(t, func(t *testing.T, d *desk) {
		d.must("queue", "create", "mails")
		d.jobs("mails", "")
		line := newLifeline(t)
		var log bytes.Buffer
		a := d.app(strings.NewReader(""), io.Discard, &log)
		a.OnSignals = func(first, second func()) func() {
			go func() {
				line.up()
				first()
				second()
			}()
			return func() {}
		}
		code := runWith(t.Context(), a, []string{"work", "mails", "--concurrency", "1", "--exec", line.command()})
		contains(t, log.String(), "done=0 failed=0 dead=0 lost=0")
		if code != terminal.ExitInterrupted {
			t.Errorf("it ended with %d: %s", code, log.String())
		}
		line.down()
		jobs := d.claim("mails", "")
		if len(jobs) != 1 {
			t.Fatalf("the job was not given back: %v", d.queue("mails"))
		}
		attempt := 2
		if _, ok := d.queues().DriverQueue("mails").(driver.Releaser); ok {
			attempt = 1 // as if it had not been claimed
		}
		same(t, "attempt", fmt.Sprint(jobs[0].Attempt), fmt.Sprint(attempt))
	})
}

func TestWorkEndsWhereItCannotWork(t *testing.T) {
	eachStore(t, func(t *testing.T, d *desk) {
		d.cli("work", "nothing", "--exec", "true").wants(t, terminal.ExitFailure, `queue "nothing": no such queue: penstock queue list`)
	})
}

// A configuration has workers and subscriptions: one process forwards messages into a queue and runs its jobs.
func TestWorkersOfAConfiguration(t *testing.T) {
	eachStore(t, func(t *testing.T, d *desk) {
		d.must("outbox", "create", "orders")
		d.must("queue", "create", "mails")
		folder := t.TempDir()
		file := filepath.Join(folder, "penstock.yaml")
		text := fmt.Sprintf(`database_url: sqlite:replaced.db
subscriptions: [{name: mails, outbox: orders, sink: queue:mails}]
workers: [{queue: mails, exec: "cat >> %s/ran; echo >> %[1]s/ran", concurrency: 1}]
`, folder)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		ran := func() string {
			text, _ := os.ReadFile(filepath.Join(folder, "ran"))
			return strings.Join(strings.Fields(string(text)), " ")
		}
		d.jobs("mails", "first")
		for _, step := range []struct{ verb, want string }{{"work", "first"}, {"relay", "first second"}} {
			if _, forwards := d.open().(driver.Forwarder); !forwards && step.verb == "relay" {
				continue
			}
			if step.verb == "relay" {
				d.must("publish", "orders", "--payload", "second")
			}
			ctx, drain := context.WithCancel(t.Context())
			go func() {
				for ctx.Err() == nil && ran() != step.want {
					time.Sleep(5 * time.Millisecond)
				}
				drain()
			}()
			o := d.runIn(ctx, false, "", step.verb, "--config", file)
			if o.code != terminal.ExitOK || ran() != step.want || !strings.Contains(o.stderr, "done=1 failed=0") {
				t.Fatalf("%s: exit code %d, it ran %q: %s", step.verb, o.code, ran(), o.stderr)
			}
		}
	})
}
