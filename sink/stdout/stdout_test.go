package stdout_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/sinktest"
	"github.com/penstock/penstock/sink/stdout"
)

func TestConformance(t *testing.T) {
	sinktest.Run(t, sinktest.Harness{
		Features: sinktest.Features{ReadBack: true, InOrder: true},
		New: func(*testing.T) *sinktest.Destination {
			var out lockedBuffer
			return &sinktest.Destination{
				Topics: []string{"orders.placed", "anything at all"},
				Open:   func(*testing.T, *slog.Logger) driver.Sink { return stdout.New(&out) },
				Drain:  func(t *testing.T, _ int) []sinktest.Received { return parse(t, out.take()) },
			}
		},
	})
}

func parse(t *testing.T, text string) []sinktest.Received {
	t.Helper()
	var got []sinktest.Received
	for l := range strings.Lines(text) {
		var v struct {
			ID, Key, Topic string
			Headers        map[string]string
			Payload        *string
			PayloadBase64  []byte    `json:"payload_base64"`
			CreatedAt      time.Time `json:"created_at"`
		}
		if err := json.Unmarshal([]byte(l), &v); err != nil {
			t.Fatalf("%q: %v", l, err)
		}
		if (v.Payload == nil) == (v.PayloadBase64 == nil) {
			t.Errorf("%s: want exactly one of payload and payload_base64", l)
		}
		if v.Payload != nil {
			v.PayloadBase64 = []byte(*v.Payload)
		}
		got = append(got, sinktest.Received{ID: v.ID, Key: v.Key, Topic: v.Topic, Headers: v.Headers, Payload: v.PayloadBase64, CreatedAt: v.CreatedAt})
	}
	return got
}

func ExampleSink() {
	sink := stdout.New(os.Stdout)
	errs := sink.Send(context.Background(), []penstock.Message{
		{
			ID: "1f/7", Seq: 7, Key: "N123AA", Topic: "flight.departed", Headers: map[string]string{"tenant": "a<b"},
			Payload: []byte(`{"to":"LAX"}`), CreatedAt: time.Date(2013, 1, 1, 5, 17, 0, 0, time.UTC), Attempt: 1,
		},
		{ID: "1f/8", Seq: 8, Payload: []byte{0xff, 0}, CreatedAt: time.Date(2013, 1, 1, 5, 18, 0, 0, time.UTC), Attempt: 2},
	})
	fmt.Println(errs)
	// Output:
	// {"id":"1f/7","seq":7,"key":"N123AA","topic":"flight.departed","headers":{"tenant":"a<b"},"payload":"{\"to\":\"LAX\"}","created_at":"2013-01-01T05:17:00Z","attempt":1}
	// {"id":"1f/8","seq":8,"key":"","topic":"","payload_base64":"/wA=","created_at":"2013-01-01T05:18:00Z","attempt":2}
	// []
}

// A full disk takes part of a line: that message and all behind it are not sent, and the next Send
// starts on a new line.
func TestWriterFailsWithinALine(t *testing.T) {
	w := &failingWriter{room: 250, err: syscall.ENOSPC}
	s := stdout.New(w)
	msgs := make([]penstock.Message, 5)
	for i := range msgs {
		msgs[i] = penstock.Message{ID: fmt.Sprint(i), Payload: []byte("x"), Attempt: 1}
	}
	errs := s.Send(context.Background(), msgs)
	whole := strings.Count(w.String(), "\n")
	if whole == 0 || whole == len(msgs) || strings.HasSuffix(w.String(), "\n") {
		t.Fatalf("the test wants a torn line, got %q", w.String())
	}
	for i, err := range errs {
		switch {
		case i < whole && err != nil:
			t.Errorf("message %d was written whole: %v", i, err)
		case i >= whole && (!errors.Is(err, syscall.ENOSPC) || !penstock.IsUnavailable(err)):
			t.Errorf("message %d: %v; want ENOSPC, Unavailable", i, err)
		}
	}
	w.room = 1 << 20
	if errs := s.Send(context.Background(), msgs[whole:]); errs != nil {
		t.Fatal(errs)
	}
	lines := strings.Split(strings.TrimSpace(w.String()), "\n")
	if len(lines) != len(msgs)+1 {
		t.Fatalf("%d lines, want the messages and one torn line:\n%s", len(lines), w.String())
	}
	for i, l := range lines {
		if valid := json.Valid([]byte(l)); valid == (i == whole) {
			t.Errorf("line %d valid: %v: %s", i, valid, l)
		}
	}
}

// A reader that does not read delays a Send only until its context ends, and lines after that are
// whole.
func TestBlockedReader(t *testing.T) {
	r, w := io.Pipe()
	counted := &countingWriter{w: w}
	s := stdout.New(counted)
	msgs := []penstock.Message{{ID: "1"}}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if errs := s.Send(ctx, msgs); errs == nil || !penstock.IsUnavailable(errs[0]) {
		t.Fatalf("nobody reads, Send answers %v", errs)
	}
	ctx, cancel = context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if errs := s.Send(ctx, msgs); errs == nil || !penstock.IsUnavailable(errs[0]) {
		t.Fatalf("the write that was left behind still runs, Send answers %v", errs)
	}
	if n := counted.begun.Load(); n != 1 {
		t.Errorf("%d writes have begun, want one at a time", n)
	}
	if err := s.Close(ctx); err == nil {
		t.Error("Close did not tell that a write is waiting")
	}
	if err := s.Close(context.Background()); err != nil {
		t.Errorf("second Close: %v", err)
	}
	buf := make([]byte, 1<<10)
	n, err := r.Read(buf)
	if err != nil || parse(t, string(buf[:n]))[0].ID != "1" {
		t.Errorf("%q, %v", buf[:n], err)
	}
}

func TestParseURL(t *testing.T) {
	for _, u := range []string{"stdout", "stdout:", "-"} {
		if _, err := stdout.Driver.Parse(u); err != nil {
			t.Errorf("%s: %v", u, err)
		}
	}
	if _, err := stdout.Driver.Parse("stdout?pretty=true"); err == nil {
		t.Error("a setting was accepted")
	}
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.buf.Reset()
	return b.buf.String()
}

// failingWriter accepts as many bytes as there is room for.
type failingWriter struct {
	strings.Builder
	room int
	err  error
}

func (w *failingWriter) Write(p []byte) (int, error) {
	n := min(len(p), w.room)
	w.room -= n
	w.Builder.Write(p[:n])
	if n < len(p) {
		return n, w.err
	}
	return n, nil
}

// countingWriter counts the writes that have begun.
type countingWriter struct {
	w     io.Writer
	begun atomic.Int32
}

func (c *countingWriter) Write(p []byte) (int, error) {
	c.begun.Add(1)
	return c.w.Write(p)
}
