package work_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/work"
)

// The line of a failed job says when it runs again, if the handler chose that.
func TestAFailedJobIsLoggedWithItsPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(0)
		q.waiting = []penstock.Job{ofKind(1, "chosen"), ofKind(2, "other")}
		var log bytes.Buffer
		seen, stop := begin(t, q, func(_ context.Context, job penstock.Job) error {
			if job.Kind() == "chosen" {
				return penstock.RetryAfter(errors.New("busy"), 5*time.Minute)
			}
			return errors.New("down")
		}, work.Options{Concurrency: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if seen.count(work.Failed) != 2 || !strings.Contains(log.String(), "dead=false err=busy retry_in=5m0s kind=chosen") || !strings.Contains(log.String(), "dead=false err=down kind=other") {
			t.Errorf("the log is:\n%s", log.String())
		}
	})
}
