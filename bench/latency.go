package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/readback"
)

// latency publishes one message per transaction at a steady rate and times each
// from the commit's answer to its arrival.
func (r *relayRun) latency(ctx context.Context) (err error) {
	if r.LatencyFor < 0 {
		return nil
	}
	r.Progress(fmt.Sprintf("latency at %d messages/s for %s", r.Rate, r.LatencyFor))
	sink, broker, close, err := r.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, close()) }()
	if err := warmUp(ctx, sink); err != nil {
		return err
	}
	total := int(r.LatencyFor.Seconds() * float64(r.Rate))
	t := &timing{committed: make([]time.Time, total), arrived: make([]time.Time, total)}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	var reading sync.WaitGroup
	var readErr error
	to := "confirm"
	if broker != nil {
		to = "consumer"
		reading.Go(func() {
			readErr = broker.Read(ctx, func(a readback.Arrival) { t.arrive(a.Payload) })
		})
	} else {
		sink = &timedSink{Sink: sink, timing: t}
	}
	stop, err := r.startRelay(ctx, sink, nil)
	if err != nil {
		return err
	}
	if err := r.publishSteadily(ctx, t); err != nil {
		return errors.Join(err, stop())
	}
	// The relay drains what is in flight; the mark then ends the reading.
	if err := r.awaitSettled(ctx); err != nil {
		return errors.Join(err, stop())
	}
	if broker != nil {
		if err := broker.Finish(ctx); err != nil {
			return errors.Join(err, stop())
		}
		reading.Wait()
	}
	if err := errors.Join(stop(), readErr); err != nil {
		return err
	}
	r.result.LatencyMS, err = t.result(to)
	return err
}

// publishSteadily keeps to the clock: a slow commit does not slow the rate.
func (r *relayRun) publishSteadily(ctx context.Context, t *timing) error {
	const writers = 4
	interval := time.Second / time.Duration(r.Rate)
	start := time.Now()
	var (
		wg   sync.WaitGroup
		errs [writers]error
	)
	for w := range writers {
		wg.Go(func() {
			for i := w; i < len(t.committed); i += writers {
				if err := sleepUntil(ctx, start.Add(time.Duration(i)*interval)); err != nil {
					errs[w] = err
					return
				}
				if err := r.Store.Publish(ctx, r.Outbox, r.messages(i, 1)...); err != nil {
					errs[w] = err
					return
				}
				t.commit(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs[:]...)
}

func sleepUntil(ctx context.Context, at time.Time) error {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// awaitSettled waits until the subscription has no backlog.
func (r *relayRun) awaitSettled(ctx context.Context) error {
	for {
		all, err := r.Store.Status(ctx)
		if err != nil {
			return err
		}
		for _, o := range all {
			if o.Outbox == r.Outbox && len(o.Subscriptions) == 1 && o.Subscriptions[0].Backlog == 0 {
				return nil
			}
		}
		if err := sleepUntil(ctx, time.Now().Add(20*time.Millisecond)); err != nil {
			return err
		}
	}
}

// timing has a commit and an arrival per message.
type timing struct {
	mu                 sync.Mutex
	committed, arrived []time.Time
}

func (t *timing) commit(i int) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.committed[i] = now
}

// arrive reads the message's number from its payload.
func (t *timing) arrive(payload []byte) {
	now := time.Now()
	if len(payload) < digits {
		return // the warm-up
	}
	i, err := strconv.Atoi(string(payload[:digits]))
	if err != nil || i >= len(t.arrived) {
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
	var took []float64
	for i := len(t.committed) / 10; i < len(t.committed); i++ {
		if t.arrived[i].IsZero() {
			return nil, fmt.Errorf("message %d of the latency phase never arrived", i)
		}
		took = append(took, max(0, t.arrived[i].Sub(t.committed[i]).Seconds()*1000))
	}
	slices.Sort(took)
	at := func(q float64) float64 { return took[int(q*float64(len(took)-1))] }
	return &Latency{P50: at(0.5), P99: at(0.99), Max: at(1), Messages: len(took), To: to}, nil
}

// timedSink takes the confirm for the arrival where nobody can read back.
type timedSink struct {
	penstock.Sink
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
