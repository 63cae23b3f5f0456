package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/postgres/postgrestest"
)

// A subscription whose sink is a queue fills it, and stops when it is told to.
func TestRelayIntoAQueue(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { relayIntoAQueue(t, urlDesk(t, "sqlite:"+filepath.Join(t.TempDir(), "test.db"))) })
	t.Run("postgres", func(t *testing.T) { relayIntoAQueue(t, urlDesk(t, postgrestest.Database(t))) })
}

func relayIntoAQueue(t *testing.T, d *desk) {
	d.outbox("orders", numbered(30)...)
	d.must("queue", "create", "emails")

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan outcome, 1)
	go func() { ended <- d.runIn(ctx, false, "", "relay", "--outbox", "orders", "--sink", "queue:emails") }()
	for ready := 0; ready < 30; {
		var s statusOf
		if err := json.Unmarshal([]byte(d.must("status", "emails", "--json")), &s); err != nil {
			t.Fatal(err)
		}
		ready = int(s.Queues[0].Ready)
		if t.Context().Err() != nil {
			t.Fatal("the queue does not fill")
		}
	}
	stop()
	if o := <-ended; o.code != exitInterrupted {
		t.Errorf("exit code %d: %s", o.code, o.stderr)
	}
	var s statusOf
	if err := json.Unmarshal([]byte(d.must("status", "--json")), &s); err != nil || s.Outboxes[0].Subscriptions[0].Backlog != 0 || s.Queues[0].Ready != 30 {
		t.Errorf("%+v, %v", s, err)
	}

	d.cli("relay", "--outbox", "orders", "--sink", "queue:nothing", "--log-level", "error").wants(t, exitFailure, `subscription "default": queue "nothing": no such queue: penstock queue list`)
	d.cli("relay", "--outbox", "nothing", "--sink", "queue:emails", "--log-level", "error").wants(t, exitFailure, `outbox "nothing": no such outbox: penstock outbox list`)
	d.cli("relay", "--outbox", "orders", "--sink", "queue:emails", "--topic", "a").wants(t, exitUsage, "--topic has no meaning with a queue as the sink")
}

func TestNotEveryStoreForwards(t *testing.T) {
	d := memoryDesk(t)
	d.outbox("orders")
	d.cli("relay", "--outbox", "orders", "--sink", "queue:emails", "--log-level", "error").wants(t, exitUsage, "is for PostgreSQL and SQLite")
}

// forwards is a forwarding with a database that answers what the test says.
func forwards(log io.Writer, answers ...func(ctx context.Context) error) *forwarding {
	a := &app{stderr: &scrubber{w: log}, logLevel: "info", logFormat: "text"}
	logger, err := a.logger()
	if err != nil {
		panic(err)
	}
	queue := "emails"
	job := &relayJob{outbox: "orders", subscription: "mails"}
	f := newForwarding(job, queue, nil, logger)
	f.pause = time.Millisecond
	var mu sync.Mutex
	f.forward = func(ctx context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		next := answers[0]
		if len(answers) > 1 {
			answers = answers[1:]
		}
		return next(ctx)
	}
	return f
}

func fails(err error) func(context.Context) error { return func(context.Context) error { return err } }

func untilEnd(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// It stands by, waits for a database that is down, takes over again after it was
// fenced, and ends when it is drained.
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
