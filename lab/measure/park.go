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

// ParkConfig is one run of the park benchmark.
type ParkConfig struct {
	Setup
	Messages     int           // to be parked, with a quarter as many that flow
	PayloadBytes int           // at least 20
	Keys         int           // of them; 0: unkeyed
	Repeat       int           // pairs
	RetryMax     time.Duration // the relay's
}

// ParkResult compares draining parked messages with draining the outbox itself. Of several pairs
// the figures are medians, unless they say otherwise.
type ParkResult struct {
	Messages     int     `json:"messages"`
	PayloadBytes int     `json:"payload_bytes"`
	Keys         int     `json:"keys"`
	RetryMaxSec  float64 `json:"retry_max_seconds"`

	// Normal is how many messages per second the relay drains from the outbox. Drain is how many it
	// drains from the park, from the moment when the sink accepts them to the last confirm. Ratio is
	// drain/normal.
	Normal float64   `json:"normal_per_second"`
	Drain  float64   `json:"drain_per_second"`
	Ratio  float64   `json:"ratio"`
	Ratios []float64 `json:"ratios"`
	// FirstAfterMS is how long after the sink accepts them the first was
	// confirmed: the parked ones wait for their next attempt.
	FirstAfterMS float64 `json:"first_after_ms"`
	// Parking is how many messages per second were parked, until all were.
	Parking float64 `json:"parking_per_second"`
	// Refused is how many attempts were spent until all were parked.
	Refused int64 `json:"refused_attempts"`
	Parked  int64 `json:"parked"`

	// Peaks of this process, the largest of all pairs.
	NormalUse  Usage `json:"normal_use"`
	ParkingUse Usage `json:"parking_use"`
	DrainUse   Usage `json:"drain_use"`

	// Sizes of the outbox with its parked messages, in bytes, the largest of all pairs: without a
	// message, when all was parked, and when it was drained.
	SizeFloor  int64 `json:"size_floor_bytes"`
	SizeParked int64 `json:"size_parked_bytes"`
	SizeAfter  int64 `json:"size_after_bytes"`

	// Check of the last pair, on the messages that were parked.
	Check Check `json:"check"`
}

// DefaultPark is measured unless flags say otherwise.
var DefaultPark = ParkConfig{Messages: 100_000, PayloadBytes: 200, Keys: 1_000, Repeat: 1, RetryMax: time.Second}

// Validate refuses values that cannot be measured.
func (c *ParkConfig) Validate() error {
	if c.Messages < 1 || c.Repeat < 1 || c.RetryMax < time.Millisecond {
		return errors.New("messages and repeat must be at least 1, the longest retry at least 1 ms")
	}
	if c.Messages >= flowFrom {
		return fmt.Errorf("messages must be less than %d", flowFrom)
	}
	return validNumbered(c.PayloadBytes)
}

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
	rig, remove, err := newRig(cfg.Setup, &cfg)
	if err != nil {
		return ParkResult{}, err
	}
	defer remove()
	r := &parkRun{
		rig: rig, cfg: cfg,
		refused: load{topic: refusedTopic, keyName: "key-", keys: cfg.Keys, payload: cfg.PayloadBytes},
		flow:    load{topic: flowTopic, keyName: "flow-", keys: cfg.Keys, payload: cfg.PayloadBytes},
	}
	r.result = ParkResult{Messages: cfg.Messages, PayloadBytes: cfg.PayloadBytes, Keys: max(cfg.Keys, 0), RetryMaxSec: cfg.RetryMax.Seconds()}
	for i := range cfg.Repeat {
		r.round = fmt.Sprintf("pair %d of %d", i+1, cfg.Repeat)
		for _, run := range []func(context.Context) error{r.normal, r.park} {
			if err := r.inNewOutbox(ctx, run); err != nil {
				return r.result, err
			}
		}
	}
	r.sum()
	return r.result, nil
}

type parkRun struct {
	*rig
	cfg           ParkConfig
	refused, flow load
	round         string
	result        ParkResult

	normals, drains, firsts, parkings []float64 // one per pair
}

func (r *parkRun) sum() {
	res := &r.result
	for i, drain := range r.drains {
		res.Ratios = append(res.Ratios, over(drain, r.normals[i]))
	}
	res.Normal, res.Drain, res.Ratio = median(r.normals), median(r.drains), median(res.Ratios)
	res.FirstAfterMS, res.Parking = median(r.firsts), median(r.parkings)
}

// valve stands before the sink in both runs.
func (r *parkRun) valve(sink driver.Sink) *valve {
	return &valve{
		Sink: sink, confirmed: newLedger(r.cfg.Keys, func(n int) bool { return n < flowFrom }),
		refuse: func(m *penstock.Message) bool { return m.Topic == refusedTopic },
		err:    errors.New("the benchmark refuses this topic"),
	}
}

func (r *parkRun) relayConfig(v *valve) relaying {
	return relaying{sink: v, Options: relay.Options{MaxAttempts: -1, Limits: relay.Limits{RetryMax: r.cfg.RetryMax, RetryMin: min(r.cfg.RetryMax, 100*time.Millisecond)}}}
}

// normal drains the same messages from the outbox.
func (r *parkRun) normal(ctx context.Context) (err error) {
	r.Progress(fmt.Sprintf("%s: publishing %d messages", r.round, r.cfg.Messages))
	if err := r.publish(ctx, r.refused, r.cfg.Messages); err != nil {
		return fmt.Errorf("publishing the backlog: %w", err)
	}
	q, err := r.open(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.close(ctx)) }()
	v := r.valve(q.sink)
	v.confirmed.expect(r.cfg.Messages)
	r.Progress(r.round + ": the relay drains the outbox")
	usage := startUsage()
	start := time.Now()
	stop, err := r.startRelay(ctx, r.relayConfig(v))
	if err != nil {
		return err
	}
	last, err := v.confirmed.await(ctx)
	r.result.NormalUse.raise(usage.stop())
	if err := errors.Join(err, stop()); err != nil {
		return fmt.Errorf("draining the outbox: %w", err)
	}
	r.normals = append(r.normals, float64(r.cfg.Messages)/last.Sub(start).Seconds())
	return nil
}

// park has every message of the refused topic parked while the other one flows,
// then lets the sink accept them.
func (r *parkRun) park(ctx context.Context) (err error) {
	r.Progress(fmt.Sprintf("%s: publishing %d messages to be refused, %d to flow", r.round, r.cfg.Messages, r.cfg.Messages/refusedPerFlow))
	outbox, _, err := r.status(ctx)
	if err != nil {
		return err
	}
	floor := outbox.Bytes
	if err := r.publishBoth(ctx); err != nil {
		return fmt.Errorf("publishing the backlog: %w", err)
	}
	q, err := r.open(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.close(ctx)) }()
	v := r.valve(q.sink)
	v.shut.Store(true)

	r.Progress(r.round + ": the sink refuses one topic, its messages are parked")
	var count relay.Counters
	cfg := r.relayConfig(v)
	cfg.Observer = &count
	usage, start := startUsage(), time.Now()
	stop, err := r.startRelay(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	stopTrickle := r.trickle(ctx)
	outbox, sub, err := r.awaitStatus(ctx, "all messages of one topic are parked", 100*time.Millisecond, func(s admin.SubscriptionStatus) bool {
		return s.Parked >= int64(r.cfg.Messages)
	})
	took := time.Since(start)
	r.result.ParkingUse.raise(usage.stop())
	if err := errors.Join(err, stopTrickle()); err != nil {
		return err
	}
	r.parkings = append(r.parkings, float64(r.cfg.Messages)/took.Seconds())
	r.result.Parked, r.result.Refused = sub.Parked, count.Failed.Load()
	r.result.SizeFloor, r.result.SizeParked = max(r.result.SizeFloor, floor), max(r.result.SizeParked, outbox.Bytes)

	if err := r.drainParked(ctx, v); err != nil {
		return fmt.Errorf("draining what is parked: %w", err)
	}
	after, err := r.awaitSmall(ctx, floor)
	if err != nil {
		return err
	}
	r.result.SizeAfter = max(r.result.SizeAfter, after)
	if r.result.Check, err = v.check(ctx, q, r.cfg.Messages); err != nil {
		return err
	}
	if !r.result.Check.OK() {
		return &CheckError{Check: r.result.Check, When: r.round + ", draining what was parked"}
	}
	return nil
}

// drainParked opens the valve and waits for the last confirm.
func (r *parkRun) drainParked(ctx context.Context, v *valve) error {
	r.Progress(r.round + ": the sink accepts, the parked messages drain")
	v.confirmed.expect(r.cfg.Messages)
	usage, start := startUsage(), time.Now()
	v.shut.Store(false)
	last, err := v.confirmed.await(ctx)
	r.result.DrainUse.raise(usage.stop())
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
