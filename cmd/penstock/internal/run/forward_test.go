package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/internal/forward"
)

// forwards is a forwarding with a database that answers as the test says.
func forwards(log io.Writer, answers ...func(ctx context.Context) error) *forwarding {
	r := &Relays{o: Options{Log: slog.New(slog.NewTextHandler(log, nil))}}
	f := newForwarding(&subscription{Subscription: &config.Subscription{Outbox: "orders", Name: "mails"}, relays: r}, "emails")
	f.pause = time.Millisecond
	var mu sync.Mutex
	f.forward = func(ctx context.Context) (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		next := answers[0]
		if len(answers) > 1 {
			answers = answers[1:]
		}
		err := next(ctx)
		return forward.Begun(err), err
	}
	return f
}

func fails(err error) func(context.Context) error { return func(context.Context) error { return err } }

func untilEnd(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// It is on standby, waits for a database that is down, takes over again after it was fenced, and
// ends when it is drained.
func TestForwardingGoesOn(t *testing.T) {
	var log bytes.Buffer
	held := &penstock.HeldError{Holder: "web-1"}
	var f *forwarding
	drains := func(ctx context.Context) error {
		f.Drain()
		return untilEnd(ctx)
	}
	f = forwards(&log, fails(io.ErrUnexpectedEOF), fails(held), fails(held), fails(penstock.ErrFenced), fails(penstock.ErrNoQueue), drains)
	if err := f.Run(t.Context()); err != nil {
		t.Errorf("drained, and yet: %v", err)
	}
	for text, times := range map[string]int{"standing by": 1, "lost the lease": 1, "trying again": 2} {
		if n := strings.Count(log.String(), text); n != times {
			t.Errorf("%q is there %d times, want %d, in %s", text, n, times, log.String())
		}
	}
}

func TestForwardingFailsAtTheStart(t *testing.T) {
	f := forwards(io.Discard, fails(penstock.ErrNoQueue))
	if err := f.Run(t.Context()); !errors.Is(err, penstock.ErrNoQueue) || !strings.Contains(fmt.Sprint(err), `subscription "mails"`) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f = forwards(io.Discard, untilEnd)
	if err := f.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// gone is a subscription whose outbox was dropped.
type gone struct{ forward.Subscription }

func (gone) Maintain(context.Context) error { return penstock.ErrNoOutbox }

// An error that would end the start is waited for once the run had begun, however soon it comes. At the start it is returned,
// however long it takes.
func TestForwardingFailsOnceItRan(t *testing.T) {
	var f *forwarding
	f = forwards(io.Discard, func(ctx context.Context) error {
		return forward.Run(ctx, gone{}, time.Minute, slog.New(slog.DiscardHandler))
	}, func(ctx context.Context) error {
		f.Drain()
		return untilEnd(ctx)
	})
	if err := f.Run(t.Context()); err != nil {
		t.Errorf("drained, and yet: %v", err)
	}
	f = forwards(io.Discard, func(context.Context) error {
		time.Sleep(2 * f.pause) // a database that is slow
		return penstock.ErrNoQueue
	})
	if err := f.Run(t.Context()); !errors.Is(err, penstock.ErrNoQueue) {
		t.Errorf("got %v", err)
	}
}

// Drained before it began, or while it waits for the database.
func TestForwardingDrainedWithoutASubscription(t *testing.T) {
	var f *forwarding
	calls := 0
	f = forwards(io.Discard, func(ctx context.Context) error {
		f.Drain()
		<-ctx.Done()
		if calls++; calls > 3 {
			return nil
		}
		return ctx.Err()
	})
	if err := f.Run(t.Context()); err != nil || calls != 1 {
		t.Errorf("drained, and yet it was tried %d times: %v", calls, err)
	}
}
