package work_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/work"
)

func ofKind(id int64, kind string) penstock.Job {
	j := penstock.Job{ID: id, CreatedAt: time.Now(), Payload: []byte(fmt.Sprint(kind, id))}
	if kind != "" {
		j.Headers = map[string]string{penstock.HeaderKind: kind}
	}
	return j
}

// rounds is a queue to which released jobs return.
type rounds struct{ releasing }

func (q rounds) Release(ctx context.Context, after time.Duration, leases ...int64) ([]int64, error) {
	var back []penstock.Job
	q.mu.Lock()
	for _, l := range leases {
		if j, ok := q.leases[l]; ok {
			j.Attempt--
			back = append(back, j)
		}
	}
	q.mu.Unlock()
	released, err := q.releasing.Release(ctx, after, leases...)
	if err == nil {
		time.AfterFunc(after, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.waiting = append(q.waiting, back...)
		})
	}
	return released, err
}

// beating keeps the heartbeats.
type beating struct {
	rounds
	beats *[]admin.Worker
}

func (q beating) Heartbeat(_ context.Context, w admin.Worker) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	*q.beats = append(*q.beats, w)
	return nil
}

// Each job goes to the handler of its kind, through the middleware of all and then its own.
func TestMux(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(0)
		q.waiting = []penstock.Job{ofKind(1, "a"), ofKind(2, ""), ofKind(3, "b")}
		var said []string
		says := func(what string) func(work.Handler) work.Handler {
			return func(h work.Handler) work.Handler {
				return func(ctx context.Context, job penstock.Job) error {
					said = append(said, what)
					return h(ctx, job)
				}
			}
		}
		handler := func(kind string) work.Handler {
			return func(_ context.Context, job penstock.Job) error {
				said = append(said, fmt.Sprintf("%s does %s", kind, job.Payload))
				return nil
			}
		}
		var mux work.Mux
		mux.Use(says("all"))
		mux.Handle("a", handler("a"), says("first"), says("second"))
		mux.Handle("b", handler("b"))
		mux.Handle("", handler("default"))
		mux.Use(says("all inside"))
		_, stop := begin(t, releasing{q}, mux.Handler(), work.Options{Concurrency: 1})
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		want := []string{"all", "all inside", "first", "second", "a does a1", "all", "all inside", "default does 2", "all", "all inside", "b does b3"}
		if !slices.Equal(said, want) {
			t.Errorf("got %q, want %q", said, want)
		}
		if kinds := slices.Sorted(slices.Values(mux.Kinds())); !slices.Equal(kinds, []string{"", "a", "b"}) {
			t.Errorf("the kinds are %q", kinds)
		}
		for what, register := range map[string]func(){
			"a kind twice":     func() { mux.Handle("a", nothing) },
			"a kind too long":  func() { mux.Handle(strings.Repeat("k", penstock.MaxKindBytes+1), nothing) },
			"a handler of nil": func() { mux.Handle("c", nil) },
			"no handler":       func() { new(work.Mux).Handler() },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s did not panic", what)
					}
				}()
				register()
			}()
		}
	})
}

// A job without a handler goes round, at most every ten seconds, and spends no attempt. Every other time it may be claimed at once. Once it is an hour old it is a dead letter. But the worker
// must have known it for half an hour: it may have waited for long in the queue.
func TestMuxLeavesOtherKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(0)
		young, old := ofKind(1, "x"), ofKind(2, "y")
		old.CreatedAt = time.Now().Add(-3 * time.Hour)
		q.waiting = []penstock.Job{young, old}
		var log bytes.Buffer
		mux := work.Mux{}
		mux.Handle("", nothing)
		seen, stop := begin(t, rounds{releasing{q}}, mux.Handler(), work.Options{Concurrency: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for _, step := range []struct {
			after time.Duration
			dead  []string
		}{
			{30*time.Minute - time.Second, nil},
			{30 * time.Second, []string{`y2: no handler for kind "y"`}},
			{29*time.Minute + 20*time.Second, []string{`y2: no handler for kind "y"`}},
			{30 * time.Second, []string{`y2: no handler for kind "y"`, `x1: no handler for kind "x"`}},
		} {
			time.Sleep(step.after)
			q.mu.Lock()
			if !slices.Equal(q.dead, step.dead) {
				t.Errorf("%s later the dead letters are %q, want %q", step.after, q.dead, step.dead)
			}
			q.mu.Unlock()
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if slices.Max(q.afters) > 11250*time.Millisecond {
			t.Errorf("a job came back after %s, want at most 10s and an eighth", slices.Max(q.afters))
		}
		if n := seen.count(work.Released); n != len(q.freed) || n < 900 || n > 1200 || len(q.retried) != 0 {
			t.Errorf("released %d times, as the observer has it, and %d as the queue does; retried %q", n, len(q.freed), q.retried)
		}
		if !regexp.MustCompile(`msg="a job failed" job=2 .* kind=y\b`).MatchString(log.String()) {
			t.Errorf("the log does not say the kind of the job that failed:\n%s", log.String())
		}
		if n := strings.Count(log.String(), "no handler for a job's kind in this worker"); n != 2 {
			t.Errorf("the log names kinds %d times, want each of two once:\n%s", n, log.String())
		}
	})
}

// Jobs without a handler take no time, which says nothing about how long handlers take.
func TestMuxClaimsNotAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(0)
		for i := range 50 {
			q.waiting = append(q.waiting, ofKind(int64(i+1), "other"))
		}
		mux := work.Mux{}
		mux.Handle("", nothing)
		_, stop := begin(t, rounds{releasing{q}}, mux.Handler(), work.Options{Concurrency: 1})
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if len(q.claims) < 50 {
			t.Errorf("there were %d claims, want at least one for each job", len(q.claims))
		}
		for i, c := range q.claims {
			if c.Jobs != 1 {
				t.Fatalf("claim %d asks for %d jobs, want 1", i, c.Jobs)
			}
		}
	})
}

// A job without a handler may be claimed at once, and the worker claims nothing meanwhile that an idle worker takes for its next claim. If it meets the
// job again, the job rests for half as long as it knows it.
func TestMuxPassesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(0)
		q.waiting = []penstock.Job{ofKind(1, "x")}
		at := timed{rounds{releasing{q}}, new([]time.Time)}
		mux := work.Mux{}
		mux.Handle("", nothing)
		_, stop := begin(t, at, mux.Handler(), work.Options{Concurrency: 1})
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		for i, after := range q.afters {
			known := (*at.released)[i].Sub((*at.released)[0])
			if i%2 == 0 && i+1 < len(q.afters) {
				if pause := (*at.released)[i+1].Sub((*at.released)[i]); after != 0 || pause < 62*time.Millisecond || pause > 130*time.Millisecond {
					t.Errorf("release %d: the job may be claimed after %s, and this worker did it after %s", i, after, pause)
				}
			} else if want := min(known/2, 10*time.Second); i%2 == 1 && (after < want*7/8-1 || after > want*9/8+1) {
				t.Errorf("release %d after %s: the job rests for %s, want %s ± an eighth", i, known, after, want)
			}
		}
		if n := len(q.afters); n < 20 || n > 50 {
			t.Errorf("the job was released %d times in a minute", n)
		}
	})
}

// timed notes when jobs are released.
type timed struct {
	rounds
	released *[]time.Time
}

func (q timed) Release(ctx context.Context, after time.Duration, leases ...int64) ([]int64, error) {
	*q.released = append(*q.released, time.Now())
	return q.rounds.Release(ctx, after, leases...)
}

// A worker's heartbeats name the kinds that it has met and has no handler for, up to ten.
func TestMuxReportsOtherKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(0)
		q.waiting = []penstock.Job{ofKind(1, "b"), ofKind(2, ""), ofKind(3, "a"), ofKind(4, "b")}
		var beats []admin.Worker
		mux := work.Mux{}
		mux.Handle("", nothing)
		_, stop := begin(t, beating{rounds{releasing{q}}, &beats}, mux.Handler(), work.Options{Worker: "w"})
		last := func(after time.Duration) []string {
			time.Sleep(after)
			q.mu.Lock()
			defer q.mu.Unlock()
			return beats[len(beats)-1].Unhandled
		}
		if kinds := last(time.Minute); !slices.Equal(kinds, []string{"a", "b"}) {
			t.Errorf("after a minute it has no handler for %q", kinds)
		}
		q.mu.Lock()
		for i := range 20 {
			q.waiting = append(q.waiting, ofKind(int64(10+i), fmt.Sprint("c", 10+i)))
		}
		q.mu.Unlock()
		if kinds := last(time.Minute); len(kinds) != admin.MaxUnhandled || kinds[9] != "c17" {
			t.Errorf("of 22 kinds it names %q", kinds)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A worker remembers 10,000 of the jobs that it has no handler for. Others are remembered once it has forgotten some: those that became
// dead letters, and those that it has not met for longer than GiveUp.
func TestMuxRemembersNotAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mux := work.Mux{}
		mux.Handle("", nothing)
		h := mux.Handler()
		dies := func(id int64) bool {
			return penstock.IsPermanent(h(t.Context(), penstock.Job{ID: id, CreatedAt: time.Now().Add(-24 * time.Hour), Headers: map[string]string{penstock.HeaderKind: "x"}}))
		}
		for id := range int64(10_001) {
			if dies(id) {
				t.Fatalf("job %d was given up when it was met first", id)
			}
		}
		time.Sleep(31 * time.Minute)
		if dies(10_000) {
			t.Fatal("one more than 10,000 jobs are remembered")
		}
		if !dies(0) {
			t.Fatal("a job of the 10,000 was forgotten")
		}
		if dies(10_000) {
			t.Fatal("a job is given up that was not remembered before")
		}
		time.Sleep(31 * time.Minute) // other workers have taken those that were met an hour ago
		if !dies(10_000) || dies(10_001) || dies(10_002) {
			t.Fatal("a job has another end than half of an hour after the first meeting")
		}
		time.Sleep(31 * time.Minute)
		if !dies(10_001) || !dies(10_002) {
			t.Fatal("what no worker has brought back for an hour is still remembered, instead of others")
		}
	})
}

// A handler by kind gets the transaction of WorkTx, through its middleware. A job of another kind is left to other workers.
func TestTxMux(t *testing.T) {
	var mux work.TxMux[*int]
	said := ""
	mux.Use(func(h work.Handler) work.Handler {
		return func(ctx context.Context, job penstock.Job) error {
			said += "all "
			return h(ctx, job)
		}
	})
	bad := errors.New("bad")
	mux.Handle("a", func(_ context.Context, tx *int, job penstock.Job) error {
		*tx++
		said += string(job.Payload)
		return bad
	}, work.MaxAttempts(1))
	h, a, b := mux.Handler(), 0, 0
	last := ofKind(1, "a")
	last.Attempt = 1
	if err := h(t.Context(), &a, last); !penstock.IsPermanent(err) || !errors.Is(err, bad) {
		t.Errorf("the last attempt: %v", err)
	}
	if err := h(t.Context(), &b, ofKind(2, "a")); err != bad || a != 1 || b != 1 || said != "all a1all a2" {
		t.Errorf("got %v, transactions were used %d and %d times, want once each; %q", err, a, b, said)
	}
	if err := h(t.Context(), &a, ofKind(3, "b")); err == nil || penstock.IsPermanent(err) || a != 1 || err.Error() != `no handler for kind "b"` {
		t.Errorf("another kind: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a handler of nil did not panic")
		}
	}()
	mux.Handle("c", nil)
}

// Timeout, MaxAttempts and Backoff decide for the jobs of a kind. Other ends of a job stay as they are.
func TestMuxOptions(t *testing.T) {
	bad := errors.New("bad")
	for _, c := range []struct {
		name    string
		attempt int
		use     func(work.Handler) work.Handler
		err     error
		is      func(error) bool
	}{
		{"the last attempt", 3, work.MaxAttempts(3), bad, penstock.IsPermanent},
		{"one before", 2, work.MaxAttempts(3), bad, func(err error) bool { return err == bad }},
		{"a snooze", 3, work.MaxAttempts(3), work.Snooze(time.Second), func(err error) bool { return !penstock.IsPermanent(err) }},
		{"a job that is done", 3, work.MaxAttempts(3), nil, func(err error) bool { return err == nil }},
		{"a cancelled job", 3, work.MaxAttempts(3), work.ErrCancelled, func(err error) bool { return err == work.ErrCancelled }},
		{"a settled job", 3, work.MaxAttempts(3), work.ErrSettled, func(err error) bool { return err == work.ErrSettled }},
		{"a failure", 4, work.Backoff(minutes), bad, func(err error) bool { d, ok := penstock.RetryDelay(err); return ok && d == 4*time.Minute }},
		{"a time of its own", 4, work.Backoff(minutes), penstock.RetryAfter(bad, time.Second), func(err error) bool { d, _ := penstock.RetryDelay(err); return d == time.Second }},
		{"a snooze that backs off", 4, work.Backoff(minutes), work.Snooze(time.Second), func(err error) bool { _, ok := penstock.RetryDelay(err); return !ok }},
	} {
		err := c.use(func(context.Context, penstock.Job) error { return c.err })(t.Context(), penstock.Job{Attempt: c.attempt})
		if !c.is(err) {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
	stopping, stop := context.WithCancelCause(t.Context())
	stop(work.ErrStopping)
	if err := work.MaxAttempts(1)(func(context.Context, penstock.Job) error { return bad })(stopping, penstock.Job{Attempt: 1}); err != bad {
		t.Errorf("a job that the worker interrupted: got %v", err)
	}

	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		err := work.Timeout(time.Minute)(func(ctx context.Context, _ penstock.Job) error {
			<-ctx.Done()
			return ctx.Err()
		})(t.Context(), penstock.Job{})
		if time.Since(start) != time.Minute || err == nil || !strings.HasPrefix(err.Error(), "the job ran longer than its timeout of 1m0s") {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
	})
}

// A limit that no job could keep would end every job: each first attempt as a dead letter, or each context before the handler begins.
func TestMiddlewareWithoutALimit(t *testing.T) {
	for name, make := range map[string]func(){
		"work: Timeout of 0s":     func() { work.Timeout(0) },
		"work: Timeout of -1s":    func() { work.Timeout(-time.Second) },
		"work: MaxAttempts of 0":  func() { work.MaxAttempts(0) },
		"work: Backoff without a": func() { work.Backoff(nil) },
	} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.HasPrefix(text, name) {
					t.Errorf("%s: got the panic %q", name, text)
				}
			}()
			make()
		}()
	}
}

// The log names a job whose handler ignores its timeout, while it runs and when it ends. Others are not named.
func TestTimeoutThatIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(3)
		q.waiting[1].Headers = map[string]string{penstock.HeaderTimeout: "1"}
		var log bytes.Buffer
		_, stop := begin(t, q, work.Timeout(2*time.Second)(func(ctx context.Context, j penstock.Job) error {
			switch j.ID {
			case 1: // within its time
				time.Sleep(time.Second)
			case 2: // it ignores it
				time.Sleep(time.Minute)
			case 3: // it ends with it
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}), work.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		time.Sleep(2 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		for _, want := range []string{
			`msg="a job runs longer than its timeout: its handler ignores the end of its context" job=2 attempt=1 timeout=1s`,
			`msg="a job ran longer than its timeout, and its outcome counts" job=2 attempt=1 timeout=1s after=1m0s`,
		} {
			if s := log.String(); !strings.Contains(s, want) || strings.Count(s, "longer than its timeout,")+strings.Count(s, "longer than its timeout:") != 2 {
				t.Errorf("the log has\n%swant one line\n%s", s, want)
			}
		}
	})
}

// A job's own limits come before those of its handler, with and without a Mux.
func TestJobLimits(t *testing.T) {
	own := map[string]string{penstock.HeaderTimeout: "2", penstock.HeaderMaxAttempts: "5"}
	bad := errors.New("bad")
	if err := work.MaxAttempts(1)(func(context.Context, penstock.Job) error { return bad })(t.Context(), penstock.Job{Attempt: 1, Headers: own}); err != bad {
		t.Errorf("the handler's limit of attempts counts: got %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(3)
		q.waiting[0].Headers = own
		q.waiting[1].Headers = map[string]string{penstock.HeaderDeadline: time.Now().Add(-time.Second).UTC().Format(time.RFC3339)}
		var mu sync.Mutex
		ran := map[int64]time.Duration{}
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, stop)
		err := work.Run(ctx, releasing{q}, work.Timeout(time.Second)(func(ctx context.Context, j penstock.Job) error {
			start := time.Now()
			<-ctx.Done()
			mu.Lock()
			ran[j.ID] = time.Since(start)
			mu.Unlock()
			return nil
		}), work.Options{Concurrency: 3})
		if want := map[int64]time.Duration{1: 2 * time.Second, 3: time.Second}; err != nil || !maps.Equal(ran, want) {
			t.Errorf("jobs ran for %v, %v, want %v", ran, err, want)
		}
		if len(q.freed) == 0 || len(q.dead) > 0 {
			t.Errorf("the job whose deadline had passed was not given back: %v, dead %v", q.freed, q.dead)
		}
	})
}

func minutes(attempt int) time.Duration { return time.Duration(attempt) * time.Minute }

// The page and the clients of all languages have the times of Mux, and its words.
func TestLanguagesAgreeOnKinds(t *testing.T) {
	for file, has := range map[string][]string{
		"docs/guides/queues.md":                                     {"at most 10 s, ± an eighth", "10,000 such jobs in 15 s", "1.25 × the longest pause", "older than 1 hour", "known it for half", "`no handler for kind"},
		"clients/python/src/penstock/_desk.py":                      {"give_up: float = 3600.0", "POLL_MAX * 1.25"},
		"clients/java/penstock/src/main/java/io/penstock/Desk.java": {"POLL_MAX * 5 / 4"},
		"work/end.go":                                                {"jobs are left to other workers, and are dead letters after"},
		"clients/python/src/penstock/_kinds.py":                      {"PASS_FOR = 10.0", "FORGET_AFTER = 15.0", "(now - first) / 2", "half = self.o.give_up / 2", "no handler for kind", "jobs are left to other workers, and are dead letters after"},
		"clients/typescript/src/work.ts":                             {"strangeAfter = 10_000", "forgetAfter = 15_000", "pollMax * 1.25", "(at - first) / 2", "giveUp: 3_600_000", ">= giveUp / 2", "no handler for kind", "jobs are left to other workers, and are dead letters after"},
		"clients/java/penstock/src/main/java/io/penstock/Kinds.java": {"PAUSE = Duration.ofSeconds(10)", "FORGET_AFTER = Duration.ofSeconds(15)", "(now - last.first) / 2", "GIVE_UP = Duration.ofHours(1)", "half = giveUp.dividedBy(2)", "no handler for kind", "jobs are left to other workers, and are dead letters after"},
	} {
		text, err := os.ReadFile(filepath.Join("..", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range has {
			if !strings.Contains(string(text), one) {
				t.Errorf("%s does not say %s", file, one)
			}
		}
	}
}

// The page of queues lists the options of workers in each language. Their names and defaults are those of the code.
func TestLanguagesAgreeOnOptions(t *testing.T) {
	read := func(file string) string {
		text, err := os.ReadFile(filepath.Join("..", file))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var o work.Options
	o.SetDefaults()
	ofGo := reflect.ValueOf(o)
	// Where each language has a default, and how many of its units a second has.
	languages := []struct {
		name, text, pattern string
		second              float64
	}{
		{"Python", read("clients/python/src/penstock/_desk.py"), `(?m)^    %s: [\w |]+ = (.+)$`, 1},
		{"TypeScript", read("clients/typescript/src/work.ts"), `\b%s: ([\d_]+|''|\(\) => \{\}),`, 1000},
		{"Java", read("clients/java/penstock/src/main/java/io/penstock/WorkOptions.java") + read("clients/java/penstock/src/main/java/io/penstock/Kinds.java"), `(?m)^    .*\b%s = (?:Duration\.of(?:Seconds|Hours))?\(?([^);]+)`, 1},
	}
	page := read("docs/guides/queues.md")
	_, page, _ = strings.Cut(page, "## Options of a worker\n")
	page, _, _ = strings.Cut(page, "\n## ")
	rows := regexp.MustCompile("(?m)^\\| ([^|]+) \\| `([^|]+)` \\| `([^|]+)` \\| `([^|]+)` \\| `([^|]+)` \\| ([^|]+) \\|$").FindAllStringSubmatch(page, -1)
	if len(rows) != 6 {
		t.Fatalf("the page has %d options", len(rows))
	}
	for _, row := range rows {
		usual, inGo, differs := strings.Cut(row[6], ", in Go ")
		if !differs {
			inGo = usual
		}
		got := "1 h" // Mux.GiveUp, which TestMuxLeavesOtherKinds has
		switch field := ofGo.FieldByName(row[2]); {
		case field.IsValid() && field.Kind() == reflect.Interface:
			got = "nothing"
		case field.IsValid() && field.Type() == reflect.TypeFor[time.Duration]():
			got = fmt.Sprintf("%g s", time.Duration(field.Int()).Seconds())
		case field.IsValid() && field.Kind() == reflect.String:
			got = fmt.Sprintf("`'%s'`", field)
		case field.IsValid():
			got = fmt.Sprint(field)
		case row[2] != "Mux.GiveUp":
			got = "no such option"
		}
		if got != inGo {
			t.Errorf("Go: %s: the default of %s is %s, and on the page %s", row[1], row[2], got, inGo)
		}
		for i, l := range languages {
			name := row[3+i]
			if name == "byKind(…, giveUp)" {
				name = "GIVE_UP"
			}
			found := regexp.MustCompile(fmt.Sprintf(l.pattern, name)).FindStringSubmatch(l.text)
			if found == nil {
				t.Errorf("%s has no option %s", l.name, name)
				continue
			}
			got := found[1]
			n, err := strconv.ParseFloat(strings.ReplaceAll(got, "_", ""), 64)
			switch {
			case got == `""` || got == "''":
				got = "`''`"
			case err != nil:
				got = "nothing"
			case strings.HasSuffix(usual, " s"):
				got = fmt.Sprintf("%g s", n/l.second)
			case strings.HasSuffix(usual, " h") && l.name != "Java": // which has hours
				got = fmt.Sprintf("%g h", n/l.second/3600)
			case strings.HasSuffix(usual, " h"):
				got = fmt.Sprintf("%g h", n)
			}
			if got != usual {
				t.Errorf("%s: the default of %s is %s, and on the page %s", l.name, name, got, usual)
			}
		}
	}
}
