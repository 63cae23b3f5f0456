package work_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/work"
)

// linesOf keeps what is logged.
type linesOf struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *linesOf) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

// lines of the log, but for those of the worker's start and end.
func (l *linesOf) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(strings.Split(strings.TrimSpace(l.all.String()), "\n"), func(line string) bool {
		return line == "" || strings.Contains(line, "worker has st")
	})
}

// At the level of debugging each job that is done is a line, and otherwise none.
func TestWorkLogsDoneJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for level, want := range map[slog.Level]int{slog.LevelDebug: 3, slog.LevelInfo: 0} {
			var said linesOf
			seen, stop := begin(t, newFakeQueue(3), func(context.Context, penstock.Job) error {
				time.Sleep(time.Minute)
				return nil
			}, work.Options{Lease: time.Hour, Logger: slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: level}))})
			for seen.count(work.Done) < 3 {
				time.Sleep(time.Second)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
			if n := strings.Count(said.all.String(), `msg="a job is done"`); n != want || want > 0 && !strings.Contains(said.all.String(), "attempt=1 after=1m0s") {
				t.Errorf("at %s: %d lines, want %d: %s", level, n, want, said.all.String())
			}
		}
	})
}

// An outage is one line at its beginning and one at its end, however long it is, and whichever calls of the worker fail.
func TestWorkLogsAnOutageOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(3)
		var said linesOf
		_, stop := begin(t, q, func(_ context.Context, j penstock.Job) error {
			time.Sleep(time.Minute)
			if string(j.Payload) == "j0" {
				return errors.New("no luck")
			}
			return nil
		}, work.Options{Concurrency: 2, Lease: time.Hour, Logger: slog.New(slog.NewTextHandler(&said, nil))})
		time.Sleep(time.Second)
		for _, fails := range []bool{true, false} {
			q.mu.Lock()
			for _, call := range []string{"claim", "ack", "retry", "extend", "maintain"} {
				delete(q.fails, call)
				if fails {
					q.fails[call] = errors.New("away")
				}
			}
			q.mu.Unlock()
			time.Sleep(30 * time.Minute)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		lines := slices.DeleteFunc(said.lines(), func(l string) bool { return strings.Contains(l, "a job failed") })
		if len(lines) != 2 || !strings.Contains(lines[0], "err=away") || !strings.Contains(lines[1], "the database answers again") {
			t.Errorf("an outage of half an hour was told by %d lines, want one and one:\n%s", len(lines), strings.Join(lines[:min(len(lines), 20)], "\n"))
		}
	})
}

// The log also has the later cause of an outage: a server that was stopped has another password now.
func TestWorkLogsTheNextErrorOfAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(0)
		var said linesOf
		_, stop := begin(t, q, nothing, work.Options{Logger: slog.New(slog.NewTextHandler(&said, nil))})
		time.Sleep(time.Second)
		for _, err := range []error{errors.New("terminated"), errors.New("wrong password"), nil} {
			q.mu.Lock()
			for _, call := range []string{"claim", "maintain"} {
				delete(q.fails, call)
				if err != nil {
					q.fails[call] = err
				}
			}
			q.mu.Unlock()
			time.Sleep(time.Minute)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		for _, text := range []string{"err=terminated", `err="wrong password"`, "the database answers again"} {
			if n := strings.Count(said.all.String(), text); n != 1 {
				t.Errorf("the log has %q %d times, want once: %s", text, n, said.all.String())
			}
		}
	})
}

// Errors that alternate in an outage are one line each, a minute apart. Errors that are all different are one line a minute.
func TestWorkLogsAlternatingErrorsOnce(t *testing.T) {
	for name, c := range map[string]struct {
		text func(n int) string
		most int
	}{
		"two errors":    {func(n int) string { return fmt.Sprint("error ", n%2) }, 2 + 1},
		"each is new":   {func(n int) string { return fmt.Sprint("error ", n) }, 31 + 1},
		"one, repeated": {func(int) string { return "error" }, 1 + 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := newFakeQueue(0)
			var said linesOf
			_, stop := begin(t, q, nothing, work.Options{Logger: slog.New(slog.NewTextHandler(&said, nil))})
			time.Sleep(time.Second)
			for n := range 30 * 60 {
				q.set("claim", errors.New(c.text(n)), 0)
				time.Sleep(time.Second)
			}
			q.set("claim", nil, 0)
			time.Sleep(time.Minute)
			if err := stop(); err != nil {
				t.Error(err)
			}
			if lines := said.lines(); len(lines) > c.most || len(lines) < 2 || !strings.Contains(lines[len(lines)-1], "answers again") {
				t.Errorf("%s: an outage of half an hour is %d lines, want %d, the last one of its end:\n%s", name, len(lines), c.most, strings.Join(lines[:min(len(lines), 20)], "\n"))
			}
		})
	}
}

// A worker whose role has no right to the queue ends with that error. One that loses it while it works continues, and says so once.
func TestWorkWithoutTheRight(t *testing.T) {
	for _, call := range []string{"claim", "maintain"} {
		synctest.Test(t, func(t *testing.T) {
			q := newFakeQueue(0)
			q.set(call, errForbidden, 0)
			q.set("claim", errForbidden, time.Second) // it is the later one
			if err := work.Run(t.Context(), q, nothing, work.Options{Logger: slog.New(slog.DiscardHandler)}); !errors.Is(err, errForbidden) {
				t.Errorf("a worker that may not %s: %v, want %v", call, err, errForbidden)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(0)
		var said linesOf
		_, stop := begin(t, q, nothing, work.Options{Logger: slog.New(slog.NewTextHandler(&said, nil))})
		time.Sleep(time.Second)
		for _, err := range []error{errForbidden, nil} {
			q.set("claim", err, 0)
			q.set("maintain", err, 0)
			time.Sleep(time.Hour)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if lines := said.lines(); len(lines) != 2 || !strings.Contains(lines[0], errForbidden.Error()) || !strings.Contains(lines[1], "answers again") {
			t.Errorf("the log of a right that was lost and granted again:\n%s", strings.Join(lines[:min(len(lines), 20)], "\n"))
		}
	})
}

// The log has a line when the worker starts, once a claim has worked, and one when it has stopped.
func TestWorkLogsStartAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(3)
		q.set("claim", errors.New("away"), 0)
		var said linesOf
		_, stop := begin(t, q, nothing, work.Options{Concurrency: 2, Worker: "w1", Logger: slog.New(slog.NewTextHandler(&said, nil))})
		time.Sleep(time.Minute)
		if n := strings.Count(said.all.String(), "has started"); n != 0 {
			t.Errorf("%d lines say that it has started before a claim worked", n)
		}
		q.set("claim", nil, 0)
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		for _, line := range []string{`msg="a worker has started" worker=w1 concurrency=2 groups=[]`, `msg="the worker has stopped" done=3 failed=0 dead=0 lost=0 settled=0`} {
			if n := strings.Count(said.all.String(), line); n != 1 {
				t.Errorf("the log has %s %d times, want once:\n%s", line, n, said.all.String())
			}
		}
	})
}
