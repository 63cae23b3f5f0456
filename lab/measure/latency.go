package measure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/readback"
)

// Latency in milliseconds.
type Latency struct {
	P50      float64 `json:"p50"`
	P99      float64 `json:"p99"`
	Max      float64 `json:"max"`
	Messages int     `json:"messages"`
	To       string  `json:"to"` // "consumer", "confirm" or "handler"
}

// latency publishes one message per transaction at a steady rate and times each
// from the commit's answer to its arrival.
func (r *relayRun) latency(ctx context.Context) (err error) {
	if r.cfg.LatencyFor <= 0 {
		return nil
	}
	r.progress("latency at %d messages/s for %s", r.cfg.Rate, r.cfg.LatencyFor)
	return r.inQueue(ctx, func(q *queue) error { return r.timeArrivals(ctx, q) })
}

func (r *relayRun) timeArrivals(ctx context.Context, q *queue) (err error) {
	t := newTiming(int(r.cfg.LatencyFor.Seconds() * float64(r.cfg.Rate)))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var reading sync.WaitGroup
	var readErr error
	to, sink := "confirm", driver.Sink(&timedSink{Sink: q.sink, timing: t})
	if q.reader != nil {
		to, sink = "consumer", q.sink
		reading.Go(func() {
			readErr = q.reader.Read(ctx, func(a readback.Arrival) { t.arrive(a.Payload) })
		})
	}
	stop, err := r.startRelay(ctx, relaying{sink: sink})
	if err != nil {
		return err
	}
	err = r.publishSteadily(ctx, t)
	if err == nil { // The relay drains what is in flight; the end marker then ends the reading.
		_, err = r.awaitSettled(ctx, 20*time.Millisecond)
	}
	if err == nil && q.reader != nil {
		if err = q.reader.Finish(ctx); err == nil {
			reading.Wait()
		}
	}
	if err := errors.Join(err, stop()); err != nil || readErr != nil {
		return errors.Join(err, readErr)
	}
	r.result.LatencyMS, err = t.result(to)
	return err
}

// publishSteadily commits every message of the timing, one by one.
func (r *relayRun) publishSteadily(ctx context.Context, t *timing) error {
	return steadily(ctx, 4, r.cfg.Rate, func(i int) (bool, error) {
		if i >= len(t.committed) {
			return false, nil
		}
		err := r.Store.Publish(ctx, r.outbox, r.load.messages(i, 1)...)
		t.commit(i)
		return true, err
	})
}

// timing has a commit and an arrival per message.
type timing struct {
	mu                 sync.Mutex
	committed, arrived []time.Time
}

func newTiming(n int) *timing {
	return &timing{committed: make([]time.Time, n), arrived: make([]time.Time, n)}
}

func (t *timing) commit(i int) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.committed[i] = now
}

// arrive takes the message's number from its payload.
func (t *timing) arrive(payload []byte) {
	now := time.Now()
	i, ok := number(payload)
	if !ok || i >= len(t.arrived) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.arrived[i].IsZero() {
		t.arrived[i] = now
	}
}

// result leaves out the first tenth, in which connections are made and caches
// are cold. A message that arrived before its commit was answered took 0.
func (t *timing) result(to string) (*Latency, error) {
	took := newHistogram()
	for i := len(t.committed) / 10; i < len(t.committed); i++ {
		if t.arrived[i].IsZero() {
			return nil, fmt.Errorf("message %d of the latency phase never arrived", i)
		}
		took.add(t.arrived[i].Sub(t.committed[i]))
	}
	return &Latency{P50: took.quantileMS(0.5), P99: took.quantileMS(0.99), Max: took.quantileMS(1), Messages: int(took.TotalCount()), To: to}, nil
}

// intervals cuts the time from start to the last commit into n. Messages that have not arrived are
// in none.
func (t *timing) intervals(start time.Time, n int) []Interval {
	length := t.committed[len(t.committed)-1].Sub(start)/time.Duration(n) + 1
	out, took := make([]Interval, n), make([]histogram, n)
	for i := range took {
		took[i] = newHistogram()
	}
	for i, committed := range t.committed {
		if at := int(committed.Sub(start) / length); at >= 0 && at < n && !t.arrived[i].IsZero() {
			took[at].add(t.arrived[i].Sub(committed))
		}
	}
	for i, h := range took {
		out[i] = h.interval(length*time.Duration(i+1), float64(h.TotalCount())/length.Seconds())
	}
	return out
}

// timedSink takes the confirm for the arrival where no consumer can read back.
type timedSink struct {
	driver.Sink
	timing *timing
}

func (s *timedSink) Send(ctx context.Context, msgs []penstock.Message) []error {
	errs := s.Sink.Send(ctx, msgs)
	for i := range msgs {
		if errs == nil || errs[i] == nil {
			s.timing.arrive(msgs[i].Payload)
		}
	}
	return errs
}
