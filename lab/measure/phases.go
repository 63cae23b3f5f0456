package measure

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/relay"
)

// pairs measures the broker from memory and the relay in turn.
func (r *relayRun) pairs(ctx context.Context) error {
	var ceilings, reads, lower []float64
	for i := range r.cfg.Repeat {
		round := fmt.Sprintf("round %d of %d", i+1, r.cfg.Repeat)
		ceiling := 0.0
		if !r.cfg.SkipCeiling {
			var err error
			r.Progress(round + ": the broker's ceiling")
			if ceiling, err = r.ceiling(ctx); err != nil {
				return fmt.Errorf("measuring the broker's ceiling: %w", err)
			}
			ceilings = append(ceilings, ceiling)
		}
		r.Progress(fmt.Sprintf("%s: publishing %d messages", round, r.cfg.Messages))
		if err := r.publish(ctx, r.load, r.cfg.Messages); err != nil {
			return fmt.Errorf("publishing the backlog: %w", err)
		}
		if _, err := r.size(ctx); err != nil {
			return err
		}
		if !r.cfg.SkipCeiling {
			read, err := r.readCeiling(ctx)
			if err != nil {
				return fmt.Errorf("measuring the read ceiling: %w", err)
			}
			reads = append(reads, read)
		}
		r.Progress(round + ": the relay drains the backlog")
		rate, err := r.drain(ctx)
		if err != nil {
			return fmt.Errorf("draining the backlog: %w", err)
		}
		r.result.Drains = append(r.result.Drains, rate)
		if ceiling > 0 {
			r.result.Ratios = append(r.result.Ratios, rate/ceiling)
			lower = append(lower, rate/min(ceiling, reads[len(reads)-1]))
		}
	}
	res := &r.result
	res.BrokerCeiling, res.ReadCeiling = median(ceilings), median(reads)
	res.Relay, res.Ratio = median(res.Drains), median(res.Ratios)
	res.RatioOfLower = median(lower)
	res.FlatnessLastToFirst = res.Drains[len(res.Drains)-1] / res.Drains[0]
	return nil
}

// ceiling is the broker's, with a separate queue.
func (r *relayRun) ceiling(ctx context.Context) (rate float64, err error) {
	q, err := r.open(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, q.close(ctx)) }()
	return r.brokerCeiling(ctx, q.sink, r.load.messages, r.cfg.Messages, 0)
}

// drain runs the relay until the backlog is confirmed and settled. The rate is that
// of the confirms, as the ceiling's is.
func (r *relayRun) drain(ctx context.Context) (rate float64, err error) {
	q, err := r.open(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, q.close(ctx)) }()
	count := newCounter(r.cfg.Messages)
	usage := startUsage()
	relays, err := r.relays(ctx, relaying{sink: q.sink, Options: relay.Options{Observer: count, Limits: relay.Limits{MaxInFlight: r.cfg.MaxInFlight}}})
	if err != nil {
		return 0, err
	}
	stop, took, err := r.drained(ctx, count, relays...)
	if err != nil {
		return 0, err
	}
	used := usage.stop()
	r.result.CPUSecondsPer100k = max(r.result.CPUSecondsPer100k, used.CPU.Seconds()/float64(r.cfg.Messages)*100_000)
	r.result.PeakRSSMB = max(r.result.PeakRSSMB, used.RSSMB)
	if _, err := r.size(ctx); err != nil {
		return 0, errors.Join(err, stop())
	}
	return float64(r.cfg.Messages) / took.Seconds(), stop()
}

// relays are the configurations of the relays: of one that has the subscription alone, or of several, of which each has its part
// before any of them begins.
func (r *relayRun) relays(ctx context.Context, one relaying) (all []relaying, err error) {
	if r.cfg.Relays == 1 {
		return []relaying{one}, nil
	}
	sharer, ok := r.Store.(driver.Sharer)
	if !ok {
		return nil, errors.New("--relays needs the portable profile: elsewhere a subscription has one relay at a time")
	}
	outbox := r.outbox
	var sources []driver.Source
	for range r.cfg.Relays {
		src, err := sharer.SubscribeShared(ctx, driver.Subscribe{Outbox: outbox, Subscription: subscription, Holder: holder})
		if err != nil {
			return nil, err
		}
		sources = append(sources, src)
	}
	for range 2 { // one gives up, another takes
		for _, src := range sources {
			if err := src.Renew(ctx); err != nil {
				return nil, err
			}
		}
	}
	maintain := func(ctx context.Context) error { return r.Store.Maintain(ctx, outbox) }
	for _, src := range sources {
		one.from = opened{func(context.Context) (driver.Source, error) { return src, nil }, maintain}
		all, maintain = append(all, one), nil
	}
	return all, nil
}

// drained starts relays and waits until all that count names is settled. took is until the last confirm.
func (r *rig) drained(ctx context.Context, count *counter, relays ...relaying) (stop func() error, took time.Duration, err error) {
	start := time.Now()
	var stops []func() error
	stop = func() (err error) {
		for _, s := range stops {
			err = errors.Join(err, s())
		}
		return err
	}
	for _, cfg := range relays {
		s, err := r.startRelay(ctx, cfg)
		if err != nil {
			return nil, 0, errors.Join(err, stop())
		}
		stops = append(stops, s)
	}
	select {
	case <-count.settled:
		return stop, (<-count.confirmed).Sub(start), nil
	case <-ctx.Done():
		return nil, 0, errors.Join(ctx.Err(), stop())
	}
}

// counter is an observer that notes when all is confirmed, and when all is settled.
type counter struct {
	relay.Counters
	want               int64
	delivered, counted atomic.Int64
	confirmed          chan time.Time // has room for one
	settled            chan struct{}
}

func newCounter(want int) *counter {
	return &counter{want: int64(want), confirmed: make(chan time.Time, 1), settled: make(chan struct{})}
}

func (c *counter) Sent(s relay.Send) {
	c.Counters.Sent(s)
	if reaches(&c.delivered, s.Delivered, c.want) {
		c.confirmed <- s.Answered
	}
}

func (c *counter) Settled(n int, took time.Duration) {
	c.Counters.Settled(n, took)
	if reaches(&c.counted, n, c.want) {
		close(c.settled)
	}
}

// reaches adds n and says whether that was what made it want or more.
func reaches(sum *atomic.Int64, n int, want int64) bool {
	total := sum.Add(int64(n))
	return total >= want && total-int64(n) < want
}

// size reads the size of the outbox and keeps the largest.
func (r *relayRun) size(ctx context.Context) (int64, error) {
	outbox, _, err := r.status(ctx)
	r.result.SizePeak = max(r.result.SizePeak, outbox.Bytes)
	return outbox.Bytes, err
}

// caughtUp waits until the outbox is as small as it was, with the snapshot still
// pinned if it is.
func (r *relayRun) caughtUp(ctx context.Context) (err error) {
	r.result.SizeAfter, err = r.awaitSmall(ctx, r.result.SizeFloor)
	return err
}
