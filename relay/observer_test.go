package relay

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
)

// watcher is an Observer that keeps every event.
type watcher struct {
	Counters
	mu      sync.Mutex
	sinks   []SinkState
	leases  []bool
	sends   []time.Duration
	waits   []time.Duration // from creation to confirm
	fetched int
	settles []time.Duration
}

func (w *watcher) Sent(s Send) {
	w.Counters.Sent(s)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sends = append(w.sends, s.Took)
	for i := range s.Messages {
		if s.Errors == nil || s.Errors[i] == nil {
			w.waits = append(w.waits, s.Answered.Sub(s.Messages[i].CreatedAt))
		}
	}
}

func (w *watcher) Fetched(n int, _ time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fetched += n
}

func (w *watcher) Settled(n int, took time.Duration) {
	w.Counters.Settled(n, took)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.settles = append(w.settles, took)
}

func (w *watcher) Sink(is SinkState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sinks = append(w.sinks, is)
}

func (w *watcher) Lease(held bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leases = append(w.leases, held)
}

// An Observer sees an outage of the sink, and an outage of the database that costs the lease.
func TestObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k, w := &outbox{}, &sink{t: t, before: slowly(70 * time.Millisecond)}, &watcher{}
		down, hang := newFlag(true), newFlag(false)
		k.answer = func(*penstock.Message) error {
			if down.Load() {
				return penstock.Unavailable(errors.New("away"))
			}
			return nil
		}
		l.renewWait = func(ctx context.Context) {
			if hang.Load() {
				<-ctx.Done()
			}
		}
		created := time.Now()
		for range 10 {
			l.publish(penstock.Message{CreatedAt: created})
		}
		r, result := start(t, t.Context(), l, k, func(c *Options) { c.Observer = w })
		pass(time.Minute)
		if !slices.Equal(w.sinks, []SinkState{SinkUnavailable}) || !slices.Equal(w.leases, []bool{true}) || w.Delivered.Load() != 0 {
			t.Errorf("while the sink is down: sink %v, lease %v, %d delivered", w.sinks, w.leases, w.Delivered.Load())
		}
		down.Store(false)
		pass(time.Minute)
		hang.Store(true)
		pass(time.Minute)
		hang.Store(false)
		pass(time.Minute)
		if !slices.Equal(w.leases, []bool{true, false, true}) {
			t.Errorf("the lease was held: %v", w.leases)
		}
		finish(t, r, result, l, k)
		if !slices.Equal(w.sinks, []SinkState{SinkUnavailable, SinkUp, SinkUp}) || !slices.Equal(w.leases, []bool{true, false, true, false}) {
			t.Errorf("in the end: sink %v, lease %v", w.sinks, w.leases)
		}
		if w.Delivered.Load() != 10 || w.fetched != 10 || len(w.waits) != 10 || w.waits[0] < time.Minute || w.waits[9] > time.Minute+10*time.Second {
			t.Errorf("%d delivered, %d fetched, confirmed after %v", w.Delivered.Load(), w.fetched, w.waits)
		}
		if slices.Min(w.sends) != 70*time.Millisecond || len(w.settles) == 0 {
			t.Errorf("Sends took %v, Settles %v", w.sends, w.settles)
		}
	})
}
