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
