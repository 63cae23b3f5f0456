package previous_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/sink/previous"
)

// sink notes its messages and refuses those that the test says.
type sink struct {
	sent   []penstock.Message
	refuse map[string]error
	keeps  bool
	closed bool
}

func (s *sink) Send(_ context.Context, msgs []penstock.Message) []error {
	var errs []error
	refused := map[string]bool{}
	for i, m := range msgs {
		err := s.refuse[m.ID]
		if err == nil && refused[m.Key] {
			err = errors.New("an earlier one of the key was refused")
		}
		if err != nil {
			refused[m.Key] = s.keeps
			if errs == nil {
				errs = make([]error, len(msgs))
			}
			errs[i] = err
			continue
		}
		s.sent = append(s.sent, m)
	}
	return errs
}

func (s *sink) Close(context.Context) error { s.closed = true; return nil }

func (s *sink) KeepsOrder() bool { return s.keeps }

// plain is a sink that promises nothing.
type plain struct{ *sink }

func (p plain) KeepsOrder(bool) {}

func message(key string, seq int64) penstock.Message {
	return penstock.Message{ID: fmt.Sprintf("%s%d", key, seq), Seq: seq, Key: key}
}

func send(t *testing.T, p driver.Sink, msgs ...penstock.Message) []error {
	t.Helper()
	return p.Send(t.Context(), msgs)
}

// wantSent checks the messages sent since the last call, as id<previous.
func (s *sink) wantSent(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, m := range s.sent {
		text := m.ID
		if previous, ok := m.Headers[penstock.HeaderPrevious]; ok {
			text += "<" + previous
		}
		got = append(got, text)
	}
	s.sent = nil
	if !slices.Equal(got, want) {
		t.Errorf("sent %q, want %q", got, want)
	}
}

func TestPreviousIsTheLastThatWasConfirmed(t *testing.T) {
	t.Parallel()
	s := &sink{refuse: map[string]error{}, keeps: true}
	p := previous.Wrap(s, 0)
	send(t, p, message("a", 1), message("b", 2), message("", 3), message("a", 4), message("", 5))
	s.wantSent(t, "a1", "b2", "3", "a4<a1", "5")
	s.refuse["a6"] = errors.New("no")
	errs := send(t, p, message("a", 6), message("b", 7), message("a", 8))
	s.wantSent(t, "b7<b2")
	if errs[0] == nil || errs[1] != nil || errs[2] == nil {
		t.Errorf("got errors %v, want those of the sink", errs)
	}
	send(t, p, message("a", 8)) // a6 has become a dead letter
	s.wantSent(t, "a8<a4")
	delete(s.refuse, "a6")
	send(t, p, message("a", 6)) // which was sent back
	send(t, p, message("a", 9))
	s.wantSent(t, "a6", "a9<a8")
}

func TestPreviousInAReplay(t *testing.T) {
	t.Parallel()
	s := &sink{keeps: true}
	p := previous.Wrap(s, 0)
	for seq := range int64(5) {
		send(t, p, message("a", seq+1))
	}
	s.wantSent(t, "a1", "a2<a1", "a3<a2", "a4<a3", "a5<a4")
	send(t, p, message("a", 2), message("a", 3))
	send(t, p, message("a", 6))
	send(t, p, message("a", 4), message("a", 5), message("a", 7))
	s.wantSent(t, "a2", "a3<a2", "a6<a5", "a4<a3", "a5<a4", "a7<a6")
	send(t, p, message("a", 2), message("a", 7), message("a", 8))
	s.wantSent(t, "a2", "a7<a2", "a8<a7")
	for range 2 { // a source without positions: all are new
		s.sent = nil
		send(t, p, penstock.Message{ID: "x", Key: "b"})
		send(t, p, penstock.Message{ID: "y", Key: "b"})
	}
	s.wantSent(t, "x<y", "y<x")
}

// A failover, or a restore, lost the last transactions: positions are used again for other
// messages. Those follow the last sent message, and each other.
func TestPreviousWherePositionsComeAgain(t *testing.T) {
	t.Parallel()
	s := &sink{keeps: true}
	p := previous.Wrap(s, 0)
	start := time.Now()
	written := func(name string, seq int64, at int) penstock.Message {
		return penstock.Message{ID: name, Seq: seq, Key: "a", CreatedAt: start.Add(time.Duration(at) * time.Second)}
	}
	kept, lost := written("kept", 1, 1), written("lost", 4, 2)
	send(t, p, kept, lost)
	s.wantSent(t, "kept", "lost<kept")
	// The cursor that covered kept is also lost.
	send(t, p, kept, written("n2", 2, 3))
	send(t, p, written("n3", 3, 4))
	send(t, p, written("n4", 4, 5), written("n5", 5, 6), kept, written("n2", 2, 3), written("n6", 6, 7))
	s.wantSent(t, "kept", "n2<lost", "n3<n2", "n4<n3", "n5<n4", "kept", "n2<kept", "n6<n5")
	// A transaction that drew a position and committed late counts as new.
	send(t, p, written("late", 7, 9), written("n8", 8, 8), written("n9", 9, 10))
	s.wantSent(t, "late<n6", "n8<late", "n9<n8")
	send(t, p, written("n8", 8, 8), written("n9", 9, 10))
	s.wantSent(t, "n8<n2", "n9<n8")
}

func TestPreviousLeavesTheCallersMessagesAlone(t *testing.T) {
	t.Parallel()
	s := &sink{}
	p := previous.Wrap(s, 0)
	first, second := message("a", 1), message("a", 2)
	first.Headers = map[string]string{penstock.HeaderPrevious: "of another outbox", "h": "1"}
	second.Headers = map[string]string{"h": "2"}
	kept := []map[string]string{maps.Clone(first.Headers), maps.Clone(second.Headers)}
	msgs := []penstock.Message{first}
	p.Send(t.Context(), msgs)
	p.Send(t.Context(), []penstock.Message{second})
	if !maps.Equal(first.Headers, kept[0]) || !maps.Equal(second.Headers, kept[1]) {
		t.Errorf("the caller's headers became %v and %v", first.Headers, second.Headers)
	}
	if s.sent[0].Headers["h"] != "1" || s.sent[1].Headers["h"] != "2" {
		t.Errorf("sent with the headers %v and %v", s.sent[0].Headers, s.sent[1].Headers)
	}
	s.wantSent(t, "a1", "a2<a1")
}

func TestPreviousKeepsTheSinksPromise(t *testing.T) {
	t.Parallel()
	for _, keeps := range []bool{true, false} {
		s := &sink{keeps: keeps}
		p := previous.Wrap(s, 0)
		if p.KeepsOrder() != keeps {
			t.Errorf("KeepsOrder of one that says %v: %v", keeps, p.KeepsOrder())
		}
		if previous.Wrap(plain{s}, 0).KeepsOrder() {
			t.Error("a sink that promises nothing keeps order")
		}
		if err := p.Close(t.Context()); err != nil || !s.closed {
			t.Errorf("Close: %v, the sink is closed: %v", err, s.closed)
		}
	}
}

func TestPreviousForgets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sink{}
		p := previous.Wrap(s, 2)
		send(t, p, message("a", 1), message("b", 2))
		send(t, p, message("a", 3), message("c", 4)) // b is the one put longest ago
		send(t, p, message("b", 5))
		s.wantSent(t, "a1", "b2", "a3<a1", "c4", "b5")
		time.Sleep(previous.MaxAge)
		send(t, p, message("b", 6))
		s.wantSent(t, "b6<b5")
		time.Sleep(previous.MaxAge + 1)
		send(t, p, message("b", 7))
		s.wantSent(t, "b7")
	})
}

// Sources return strings that are parts of large chunks. None of those is kept.
func TestPreviousKeepsNoChunks(t *testing.T) {
	const keys, chunk = 400, 256 << 10
	s := &sink{}
	p := previous.Wrap(s, 0)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for n := range keys {
		large := fmt.Sprintf("key-%04d id-%04d %s", n, n, strings.Repeat("x", chunk))
		send(t, p, penstock.Message{Key: large[:8], ID: large[9:16], Seq: int64(n + 1)})
		s.sent = nil
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if kept := int64(after.HeapAlloc) - int64(before.HeapAlloc); kept > keys*chunk/4 {
		t.Errorf("%d bytes are kept for %d keys", kept, keys)
	}
	runtime.KeepAlive(p)
}

// Messages are refused, confirmed twice or sent again. The message that a header names was always
// confirmed before, and each new message names the new one before it.
func TestPreviousUnderRandomUse(t *testing.T) {
	t.Parallel()
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	r := testseed.New(t.Name(), 0)
	s := &sink{refuse: map[string]error{}, keeps: true}
	p := previous.Wrap(s, 0)
	confirmed, last := map[string]bool{}, map[string]string{}
	var seq int64
	top := map[string]int64{}
	var waiting []penstock.Message
	for range 3000 * testseed.Rounds() {
		for range r.IntN(4) {
			seq++
			waiting = append(waiting, message(string(rune('a'+r.IntN(5))), seq))
		}
		if len(waiting) == 0 {
			continue
		}
		n := 1 + r.IntN(min(8, len(waiting)))
		clear(s.refuse)
		for _, m := range waiting[:n] {
			if r.IntN(5) == 0 {
				s.refuse[m.ID] = errors.New("no")
			}
		}
		s.sent = nil
		errs := send(t, p, waiting[:n]...)
		for _, m := range s.sent {
			previous, ok := m.Headers[penstock.HeaderPrevious]
			if m.Seq > top[m.Key] {
				if previous != last[m.Key] {
					t.Fatalf("%s names %q, want %q", m.ID, previous, last[m.Key])
				}
				last[m.Key], top[m.Key] = m.ID, m.Seq
			} else if ok && (!confirmed[previous] || previous >= m.ID && len(previous) >= len(m.ID)) {
				t.Fatalf("%s, which came again, names %q", m.ID, previous)
			}
			confirmed[m.ID] = true
		}
		var again []penstock.Message
		for i, m := range waiting[:n] {
			switch {
			case errs != nil && errs[i] != nil && r.IntN(3) > 0: // otherwise it is a dead letter
				again = append(again, m)
			case r.IntN(10) == 0:
				again = append(again, m) // its verdict was lost
			}
		}
		waiting = append(again, waiting[n:]...)
	}
}
