package sinktest

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// env is one running test.
type env struct {
	*testing.T
	*Destination
	features Features
	log      *slog.Logger
	made     atomic.Int64
}

// open opens a sink and closes it when the test ends.
func (e *env) open() driver.Sink {
	e.Helper()
	return e.closeAtEnd(e.Open(e.T, e.log))
}

func (e *env) closeAtEnd(s driver.Sink) driver.Sink {
	e.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			e.Errorf("Close: %v", err)
		}
	})
	return s
}

// patient is a context for calls that must succeed.
func (e *env) patient() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	e.Cleanup(cancel)
	return ctx
}

// messages makes n messages of different keys. Any goroutine may call it.
func (e *env) messages(n int) []penstock.Message {
	msgs := make([]penstock.Message, n)
	for i := range msgs {
		msgs[i] = e.message("")
		msgs[i].Key = "key-of-" + msgs[i].ID
	}
	return msgs
}

// message makes a message that the destination takes.
func (e *env) message(key string) penstock.Message {
	n := e.made.Add(1)
	id := fmt.Sprintf("id-%d", n)
	return penstock.Message{
		ID: id, Seq: n, Key: key, Topic: e.Topics[n%int64(len(e.Topics))],
		Payload: []byte("payload of " + id), CreatedAt: time.Date(2026, 5, 4, 3, 2, 1, 123456000, time.UTC), Attempt: 1,
	}
}

// mustSend sends and expects every message to be confirmed.
func (e *env) mustSend(s driver.Sink, msgs []penstock.Message) {
	e.Helper()
	if failed := firstError(e.check(msgs, s.Send(e.patient(), msgs))); failed != nil {
		e.Fatalf("Send: %v", failed)
	}
}

// check expects a well-formed answer: nil or one entry per message. It may be called from any
// goroutine.
func (e *env) check(msgs []penstock.Message, errs []error) []error {
	e.Helper()
	if errs != nil && len(errs) != len(msgs) {
		e.Errorf("Send answered %d entries for %d messages", len(errs), len(msgs))
		return driver.SendError(msgs, fmt.Errorf("malformed answer"))
	}
	for _, err := range errs {
		e.keepsSecrets("error", err)
	}
	return errs
}

// wantUnavailable expects every message to have failed with the class Unavailable.
func (e *env) wantUnavailable(msgs []penstock.Message, errs []error) {
	e.Helper()
	errs = e.check(msgs, errs)
	if errs == nil {
		e.Fatalf("Send confirmed %d messages that the broker cannot have", len(msgs))
	}
	for i, err := range errs {
		switch {
		case err == nil:
			e.Fatalf("message %d is confirmed; the broker cannot have it", i)
		case !penstock.IsUnavailable(err):
			e.Fatalf("message %d: %q is not Unavailable: the relay would spend an attempt on it", i, err)
		case penstock.IsPermanent(err):
			e.Fatalf("message %d: %q is Permanent", i, err)
		}
	}
}

// keepsSecrets fails the test if the shown text holds a secret.
func (e *env) keepsSecrets(what string, shown any) {
	e.Helper()
	if shown == nil || e.Destination == nil {
		return
	}
	text := fmt.Sprint(shown)
	for i, secret := range e.Secrets {
		if strings.Contains(text, secret) {
			e.Errorf("secret %d shows in the %s: %s", i, what, strings.ReplaceAll(text, secret, "█████"))
		}
	}
}

// drainAll waits for the messages and expects exactly these, in any order, except that a message
// may be there more than once if repeats is true. It does nothing where the destination cannot be
// read.
func (e *env) drainAll(msgs []penstock.Message, repeats bool) []Received {
	e.Helper()
	if !e.features.ReadBack {
		return nil
	}
	got := e.Drain(e.T, len(msgs))
	count := make(map[string]int, len(got))
	for _, r := range got {
		count[r.ID]++
	}
	missing := 0
	for i := range msgs {
		if count[msgs[i].ID] == 0 {
			missing++
			e.Logf("missing %q of %q", msgs[i].ID, msgs[i].Key)
		} else if count[msgs[i].ID] > 1 && !repeats {
			e.Errorf("message %q arrived %d times", msgs[i].ID, count[msgs[i].ID])
		}
		delete(count, msgs[i].ID)
	}
	if missing > 0 {
		e.Fatalf("%d of %d confirmed messages did not arrive", missing, len(msgs))
	}
	for id := range count {
		e.Errorf("message %q arrived and should not have", id)
	}
	return got
}

// confirmed picks the messages that Send reported as sent.
func confirmed(msgs []penstock.Message, errs []error) []penstock.Message {
	if errs == nil {
		return msgs
	}
	var sent []penstock.Message
	for i, err := range errs {
		if err == nil {
			sent = append(sent, msgs[i])
		}
	}
	return sent
}

func firstError(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// soon waits for done and fails the test if it does not come.
func (e *env) soon(what string, done <-chan struct{}) {
	e.Helper()
	select {
	case <-done:
	case <-time.After(Patience):
		e.Fatalf("%s takes longer than %v", what, Patience)
	}
}

// watched is a context that notes when it is first looked at: the call that has it is under way.
type watched struct {
	context.Context
	once   sync.Once
	looked chan struct{}
}

func watch(ctx context.Context) *watched {
	return &watched{Context: ctx, looked: make(chan struct{})}
}

func (w *watched) Done() <-chan struct{} {
	w.once.Do(func() { close(w.looked) })
	return w.Context.Done()
}

func (w *watched) Err() error {
	w.once.Do(func() { close(w.looked) })
	return w.Context.Err()
}

// newLog returns a logger whose output is shown if the test fails and searched
// for secrets at its end.
func newLog(t *testing.T, secrets []string) *slog.Logger {
	var out lockedBuilder
	t.Cleanup(func() {
		text := out.String()
		for i, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("secret %d shows in the log", i)
				text = strings.ReplaceAll(text, secret, "█████")
			}
		}
		if t.Failed() && text != "" {
			t.Logf("the sink's log:\n%s", text)
		}
	})
	return slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

type lockedBuilder struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuilder) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuilder) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Drain receives n messages of some places, and those that are there beyond n.
func Drain(n int, places []string, receive func(ctx context.Context, place string) []Received) (got []Received) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	for ctx.Err() == nil {
		before := len(got)
		for _, place := range places {
			got = append(got, receive(ctx, place)...)
		}
		if len(got) >= n && len(got) == before {
			return got
		}
	}
	return got
}
