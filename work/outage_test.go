package work_test

import (
	"bytes"
	"context"
	"errors"
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
		said.mu.Lock()
		defer said.mu.Unlock()
		lines := strings.Split(strings.TrimSpace(said.all.String()), "\n")
		lines = slices.DeleteFunc(lines, func(l string) bool { return strings.Contains(l, "a job failed") })
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
