package measure

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/relay"
)

// ParkConfig is one run of park.
type ParkConfig struct {
	Setup
	Messages int           `help:"messages to park; a quarter as many flow" range:"1..999999999"`
	Payload  int           `help:"bytes of each payload" range:"20..67108864"`
	Keys     int           `help:"different keys of each topic, 0 for messages without a key"`
	Repeat   int           `help:"pairs of normal run and parking; the median counts" range:"1.."`
	RetryMax time.Duration `help:"longest time between two attempts" range:"1ms.."`
}

// ParkResult compares draining parked messages with draining the outbox itself. Of several pairs
// rates are medians, other figures the largest. Rates are messages per second.
type ParkResult struct {
	Normal float64 `json:"normal_per_second"`
	Drain  float64 `json:"drain_per_second"`
	Pairs
	FirstAfterMS float64 `json:"first_after_ms"` // the sink accepts: the parked ones wait for their next attempt
	Parking      float64 `json:"parking_per_second"`
	Refused      int64   `json:"refused_attempts"` // until all were parked
	Parked       int64   `json:"parked"`
	NormalUse    Usage   `json:"normal_use"`
	ParkingUse   Usage   `json:"parking_use"`
	DrainUse     Usage   `json:"drain_use"`
	SizeFloor    int64   `json:"size_floor_bytes"`
	SizeParked   int64   `json:"size_parked_bytes"`
	SizeAfter    int64   `json:"size_after_bytes"`
	Check        Check   `json:"check"` // of the last pair, on the messages that were parked
}

// DefaultPark is measured unless flags say otherwise.
var DefaultPark = ParkConfig{Messages: 100_000, Payload: 200, Keys: 1_000, Repeat: 1, RetryMax: time.Second}

const (
	refusedTopic = "bench.refused"
	flowTopic    = "bench.flow"
	// flowFrom is the first number of the flowing topic; the ledgers count those
	// below.
	flowFrom = 1_000_000_000
	// refusedPerFlow is how many messages are refused for each that flows.
	refusedPerFlow = 4
)

// Park measures how a topic that is refused whole is parked and comes back.
func Park(ctx context.Context, cfg ParkConfig) (ParkResult, error) {
	r := &parkRun{
		rig: newRig(cfg.Setup), cfg: cfg,
		refused: load{topic: refusedTopic, keyName: "key-", keys: cfg.Keys, payload: cfg.Payload},
		flow:    load{topic: flowTopic, keyName: "flow-", keys: cfg.Keys, payload: cfg.Payload},
	}
	for i := range cfg.Repeat {
		r.round = fmt.Sprintf("pair %d of %d", i+1, cfg.Repeat)
		for _, run := range []func(context.Context) error{r.normal, r.park} {
			if err := r.inNewOutbox(ctx, run); err != nil {
				return r.ParkResult, err
			}
		}
	}
	r.Normal, r.Drain, r.Pairs = median(r.normals), median(r.drains), pairsOf(ratios(r.drains, r.normals))
	r.FirstAfterMS, r.Parking = median(r.firsts), median(r.parkings)
	return r.ParkResult, nil
}

type parkRun struct {
	*rig
	ParkResult
	cfg           ParkConfig
	refused, flow load
	round         string

	normals, drains, firsts, parkings []float64 // one per pair
}

// valve stands before the sink in both runs.
func (r *parkRun) valve(sink driver.Sink) *valve {
	return &valve{
		Sink: sink, confirmed: newLedger(r.cfg.Keys, func(n int) bool { return n < flowFrom }),
		refuse: func(m *penstock.Message) bool { return m.Topic == refusedTopic },
		err:    errors.New("the benchmark refuses this topic"),
	}
}

func (r *parkRun) start(ctx context.Context, v *valve, count *relay.Counters) (stop func() error, err error) {
	limits := relay.Limits{RetryMax: r.cfg.RetryMax, RetryMin: min(r.cfg.RetryMax, 100*time.Millisecond)}
	return r.startRelay(ctx, relaying{sink: v, Options: relay.Options{MaxAttempts: -1, Limits: limits, Observer: count}})
}

// normal drains the same messages from the outbox.
func (r *parkRun) normal(ctx context.Context) (err error) {
	if err := r.publish(ctx, r.refused, r.cfg.Messages, r.round); err != nil {
		return err
	}
	return r.inQueue(ctx, func(q *queue) error {
		v := r.valve(q.sink)
		v.confirmed.expect(r.cfg.Messages)
		r.progress("%s: the relay drains the outbox", r.round)
		usage, start := startUsage(), time.Now()
		stop, err := r.start(ctx, v, &relay.Counters{})
		if err != nil {
			return err
		}
		last, err := v.confirmed.await(ctx)
		r.NormalUse.raise(usage.stop())
		r.normals = append(r.normals, float64(r.cfg.Messages)/last.Sub(start).Seconds())
		return errors.Join(err, stop())
	})
}

// park has every message of the refused topic parked while the other one flows,
// then lets the sink accept them.
func (r *parkRun) park(ctx context.Context) (err error) {
	r.progress("%s: publishing %d messages to be refused, %d to flow", r.round, r.cfg.Messages, r.cfg.Messages/refusedPerFlow)
	outbox, _, err := r.status(ctx)
	if err != nil {
		return err
	}
	if err := r.publishBoth(ctx); err != nil {
		return fmt.Errorf("publishing the backlog: %w", err)
	}
	return r.inQueue(ctx, func(q *queue) error { return r.parkAndDrain(ctx, q, outbox.Bytes) })
}

func (r *parkRun) parkAndDrain(ctx context.Context, q *queue, floor int64) (err error) {
	v := r.valve(q.sink)
	v.shut.Store(true)
	r.progress("%s: the sink refuses one topic, its messages are parked", r.round)
	var count relay.Counters
	usage, start := startUsage(), time.Now()
	stop, err := r.start(ctx, v, &count)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	stopTrickle := r.trickle(ctx)
	outbox, sub, err := r.awaitStatus(ctx, "all messages of one topic are parked", 100*time.Millisecond, func(s admin.SubscriptionStatus) bool {
		return s.Parked >= int64(r.cfg.Messages)
	})
	took := time.Since(start)
	r.ParkingUse.raise(usage.stop())
	if err := errors.Join(err, stopTrickle()); err != nil {
		return err
	}
	r.parkings = append(r.parkings, float64(r.cfg.Messages)/took.Seconds())
	r.Parked, r.Refused = sub.Parked, count.Failed.Load()
	r.SizeFloor, r.SizeParked = max(r.SizeFloor, floor), max(r.SizeParked, outbox.Bytes)
	if err := r.drainParked(ctx, v); err != nil {
		return fmt.Errorf("draining what is parked: %w", err)
	}
	after, err := r.awaitSmall(ctx, floor)
	if err != nil {
		return err
	}
	r.SizeAfter = max(r.SizeAfter, after)
	r.Check, err = v.check(ctx, q, r.cfg.Messages, r.round+", draining what was parked")
	return err
}

// drainParked opens the valve and waits for the last confirm.
func (r *parkRun) drainParked(ctx context.Context, v *valve) error {
	r.progress("%s: the sink accepts, the parked messages drain", r.round)
	v.confirmed.expect(r.cfg.Messages)
	usage, start := startUsage(), time.Now()
	v.shut.Store(false)
	last, err := v.confirmed.await(ctx)
	r.DrainUse.raise(usage.stop())
	if err != nil {
		return err
	}
	r.drains = append(r.drains, float64(r.cfg.Messages)/last.Sub(start).Seconds())
	r.firsts = append(r.firsts, v.confirmed.resumed.Sub(start).Seconds()*1000)
	_, err = r.awaitSettled(ctx, 100*time.Millisecond)
	return err
}

// trickle keeps the other topic flowing at 100 messages a second, until stop.
func (r *parkRun) trickle(ctx context.Context) (stop func() error) {
	var ending atomic.Bool
	done := make(chan error, 1)
	go func() {
		done <- steadily(ctx, 1, 100, func(i int) (bool, error) {
			if ending.Load() {
				return false, nil
			}
			return true, r.Store.Publish(ctx, r.outbox, r.flow.messages(2*flowFrom+i, 1)...)
		})
	}()
	return func() error {
		ending.Store(true)
		return <-done
	}
}

// publishBoth mixes the flowing topic into the refused one, so that at no time
// everything is refused: that would be an outage, for which nothing is parked.
func (r *parkRun) publishBoth(ctx context.Context) error {
	for first := 0; first < r.cfg.Messages; first += chunk {
		n := min(chunk, r.cfg.Messages-first)
		refused := r.refused.messages(first, n)
		flowing := r.flow.messages(flowFrom+first/refusedPerFlow, n/refusedPerFlow)
		msgs := make([]penstock.Message, 0, len(refused)+len(flowing))
		for i := range refused {
			msgs = append(msgs, refused[i])
			if i%refusedPerFlow == 0 && len(flowing) > 0 {
				msgs, flowing = append(msgs, flowing[0]), flowing[1:]
			}
		}
		if err := r.Store.Publish(ctx, r.outbox, msgs...); err != nil {
			return err
		}
	}
	return nil
}
