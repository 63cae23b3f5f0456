package forward_test

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
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/forward"
)

// fake is a subscription with numbered messages, whose every call may fail.
type fake struct {
	ready, moved      int
	fetched           int
	renewed           []time.Time
	maintained        int
	failMove, failNow error
	endless           bool // there is always more, and moving takes a second
}

func (f *fake) Fetch(context.Context, driver.Limit) (b driver.Batch, err error) {
	f.fetched++
	if f.failNow != nil {
		return b, f.failNow
	}
	for range f.ready {
		b.Messages = append(b.Messages, penstock.Message{})
	}
	return b, nil
}

func (f *fake) Move(_ context.Context, b driver.Batch) error {
	if err := f.failMove; err != nil {
		f.failMove = nil
		return err
	}
	f.moved += len(b.Messages)
	if f.endless {
		time.Sleep(time.Second)
	} else {
		f.ready -= len(b.Messages)
	}
	return nil
}

func (f *fake) Renew(context.Context) error {
	f.renewed = append(f.renewed, time.Now())
	return nil
}

func (f *fake) Maintain(context.Context) error {
	f.maintained++
	return nil
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f := &fake{ready: 3, failMove: errors.New("by intent")}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- forward.Run(ctx, f, 30*time.Second, slog.New(slog.NewTextHandler(&log, nil))) }()
		time.Sleep(500 * time.Millisecond)
		if f.moved != 0 || !strings.Contains(log.String(), "by intent") {
			t.Errorf("%d moved after an error, log %q", f.moved, log.String())
		}
		time.Sleep(time.Second)
		if f.moved != 3 {
			t.Errorf("%d moved, want 3", f.moved)
		}
		time.Sleep(time.Minute)
		before := f.fetched
		time.Sleep(10 * time.Second)
		if n := f.fetched - before; n < 190 || n > 210 {
			t.Errorf("fetched %d times in ten idle seconds, want about 200", n)
		}
		if len(f.renewed) < 6 || f.renewed[1].Sub(f.renewed[0]) > 11*time.Second {
			t.Errorf("renewed at %v, want every ten seconds", f.renewed)
		}
		if f.maintained < 60 || f.maintained > 72 {
			t.Errorf("maintained %d times in 71 seconds", f.maintained)
		}
		f.ready = 1
		time.Sleep(51 * time.Millisecond)
		if f.moved != 4 {
			t.Error("a message waits for longer than 50 ms")
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A backlog that takes longer than the lease does not lose it.
func TestRunRenewsInABacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{ready: 1, endless: true}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if err := forward.Run(ctx, f, 30*time.Second, slog.New(slog.DiscardHandler)); err != nil {
			t.Error(err)
		}
		if len(f.renewed) != 5 && len(f.renewed) != 6 {
			t.Errorf("renewed %d times in a minute, want every ten seconds", len(f.renewed))
		}
	})
}

func TestRunEndsWithWhatWaitingDoesNotCure(t *testing.T) {
	for _, reason := range []error{penstock.ErrNoOutbox, penstock.ErrNoQueue, penstock.ErrFenced, penstock.ErrClosed} {
		if err := forward.Run(t.Context(), &fake{failNow: reason}, time.Minute, slog.New(slog.DiscardHandler)); !errors.Is(err, reason) {
			t.Errorf("got %v, want %v", err, reason)
		}
	}
}

func TestJobs(t *testing.T) {
	m := penstock.Message{ID: "m", Key: "k", Topic: "t", Payload: []byte("p"), Headers: map[string]string{"a": "b"}}
	jobs := forward.Jobs([]penstock.Message{m, {ID: "n"}})
	if j := jobs[0]; j.Key != "k" || string(j.Payload) != "p" || len(j.Headers) != 3 || j.Headers["a"] != "b" || j.Headers[forward.HeaderMessageID] != "m" || j.Headers[forward.HeaderTopic] != "t" {
		t.Errorf("got %+v", j)
	}
	if j := jobs[1]; len(j.Headers) != 1 {
		t.Errorf("got %+v", j)
	}
	if len(m.Headers) != 1 {
		t.Error("the message's headers were changed")
	}
}
