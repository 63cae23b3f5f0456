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

// RelayConfig is one run of relay.
type RelayConfig struct {
	Setup
	Messages    int           `help:"messages per backlog" range:"1.."`
	Payload     int           `help:"bytes of each payload" range:"0..67108864"`
	Keys        int           `help:"different keys, 0 for messages without a key" range:"0.."`
	Repeat      int           `help:"pairs of ceiling and drain; the median counts" range:"1.."`
	Rate        int           `help:"messages per second of the latency phase" range:"1.."`
	LatencyFor  time.Duration `help:"length of the latency phase, 0 to leave it out"`
	IdleFor     time.Duration `help:"how long to watch an idle relay, 0 to leave it out"`
	Relays      int           `help:"relays that share the subscription (portable profile)" range:"1.."`
	MaxInFlight int           `help:"messages that each relay has fetched and not settled, at most (default that of a relay)" range:"0.."`
	Delay       time.Duration `help:"how much longer each round trip to the database takes (PostgreSQL)"`
	RelayOnly   bool          `help:"measure no ceilings"`
	Pin         bool          `help:"hold a REPEATABLE READ snapshot open throughout"`
}

// RelayResult is the result of a run, as the help says. Rates are messages per second.
type RelayResult struct {
	ReadCeiling   float64 `json:"read_ceiling,omitempty"`
	BrokerCeiling float64 `json:"broker_ceiling,omitempty"`
	Relay         float64 `json:"relay"`
	Pairs
	RatioOfLower float64   `json:"ratio_of_lower_ceiling,omitempty"`
	Drains       []float64 `json:"drains"`
	// LatencyMS is to the sink's confirm where the sink cannot be read back.
	LatencyMS *Latency `json:"latency_ms,omitempty"`
	// Of this process while it drains, an embedded database or broker included.
	CPUSecondsPer100k float64 `json:"cpu_seconds_per_100k"`
	PeakRSSMB         float64 `json:"peak_rss_mb"`
	// IdleDatabaseCPU is the share of a core that an idle relay costs a PostgreSQL server on this machine.
	IdleDatabaseCPU *float64 `json:"idle_database_cpu_percent,omitempty"`
	// FlatnessLastToFirst is the last drain's rate over the first's.
	FlatnessLastToFirst float64 `json:"flatness_last_to_first"`
	// Sizes of the outbox: before the first message, the largest seen, and when the relay had caught up.
	SizeFloor int64 `json:"size_floor_bytes"`
	SizePeak  int64 `json:"size_peak_bytes"`
	SizeAfter int64 `json:"size_after_bytes"`
}

// DefaultRelay is measured unless flags say otherwise.
var DefaultRelay = RelayConfig{
	Messages: 150_000, Payload: 200, Keys: 1_000, Repeat: 1, Relays: 1, Rate: 1_000, LatencyFor: 10 * time.Second, IdleFor: 5 * time.Second,
}

// Far is how much further away the database has to be.
func (c *RelayConfig) Far() time.Duration { return c.Delay }

// Relay measures the relay between a database and a broker.
func Relay(ctx context.Context, cfg RelayConfig) (result RelayResult, err error) {
	r := &relayRun{rig: newRig(cfg.Setup), cfg: cfg, load: load{topic: "bench", keyName: "key-", keys: cfg.Keys, payload: cfg.Payload}}
	err = r.inOutbox(ctx, r.run)
	return r.result, err
}

type relayRun struct {
	*rig
	cfg    RelayConfig
	load   load
	result RelayResult
}

func (r *relayRun) run(ctx context.Context) (err error) {
	if r.result.SizeFloor, err = r.size(ctx); err != nil {
		return err
	}
	release, err := r.pinned(ctx, r.cfg.Pin)
	if err != nil {
		return err
	}
	defer release()
	for _, phase := range []func(context.Context) error{r.pairs, r.caughtUp, r.latency, r.idle} {
		if err := phase(ctx); err != nil {
			return err
		}
	}
	return nil
}

// pairs measures the broker from memory and the relay in turn.
func (r *relayRun) pairs(ctx context.Context) error {
	var ceilings, reads, lower []float64
	res := &r.result
	for i := range r.cfg.Repeat {
		round := fmt.Sprintf("round %d of %d", i+1, r.cfg.Repeat)
		if !r.cfg.RelayOnly {
			r.progress("%s: the broker's ceiling", round)
			err := r.inQueue(ctx, func(q *queue) error {
				ceiling, err := r.brokerCeiling(ctx, q.sink, r.load.messages, r.cfg.Messages, 0)
				ceilings = append(ceilings, ceiling)
				return err
			})
			if err != nil {
				return fmt.Errorf("measuring the broker's ceiling: %w", err)
			}
		}
		if err := r.publish(ctx, r.load, r.cfg.Messages, round); err != nil {
			return err
		}
		if _, err := r.size(ctx); err != nil {
			return err
		}
		if !r.cfg.RelayOnly {
			read, err := r.readCeiling(ctx)
			if err != nil {
				return fmt.Errorf("measuring the read ceiling: %w", err)
			}
			reads = append(reads, read)
			lower = append(lower, min(ceilings[i], read))
		}
		r.progress("%s: the relay drains the backlog", round)
		if err := r.inQueue(ctx, func(q *queue) error { return r.drain(ctx, q) }); err != nil {
			return fmt.Errorf("draining the backlog: %w", err)
		}
	}
	res.BrokerCeiling, res.ReadCeiling, res.Relay = median(ceilings), median(reads), median(res.Drains)
	res.Pairs, res.RatioOfLower = pairsOf(ratios(res.Drains, ceilings)), median(ratios(res.Drains, lower))
	res.FlatnessLastToFirst = res.Drains[len(res.Drains)-1] / res.Drains[0]
	return nil
}

// drain runs the relay until the backlog is confirmed and settled. The rate is that
// of the confirms, as the ceiling's is.
func (r *relayRun) drain(ctx context.Context, q *queue) (err error) {
	count := newCounter(r.cfg.Messages)
	usage := startUsage()
	relays, err := r.relays(ctx, relaying{sink: q.sink, Options: relay.Options{Observer: count, Limits: relay.Limits{MaxInFlight: r.cfg.MaxInFlight}}})
	if err != nil {
		return err
	}
	start := time.Now()
	var stops []func() error
	defer func() {
		for _, stop := range stops {
			err = errors.Join(err, stop())
		}
	}()
	for _, cfg := range relays {
		stop, err := r.startRelay(ctx, cfg)
		if err != nil {
			return err
		}
		stops = append(stops, stop)
	}
	select {
	case <-count.settled:
	case <-ctx.Done():
		return ctx.Err()
	}
	took := (<-count.confirmed).Sub(start)
	used, n := usage.stop(), float64(r.cfg.Messages)
	r.result.CPUSecondsPer100k = max(r.result.CPUSecondsPer100k, used.CPU.Seconds()/n*100_000)
	r.result.PeakRSSMB = max(r.result.PeakRSSMB, used.RSSMB)
	r.result.Drains = append(r.result.Drains, n/took.Seconds())
	_, err = r.size(ctx)
	return err
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

// reaches adds n and reports whether that was what made it want or more.
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

// idle lets a relay wait for messages and looks what its sessions cost the
// database server.
func (r *relayRun) idle(ctx context.Context) error {
	if r.cfg.IdleFor <= 0 {
		return nil
	}
	return r.inQueue(ctx, func(q *queue) error {
		stop, err := r.startRelay(ctx, relaying{sink: q.sink})
		if err != nil {
			return err
		}
		defer stop()
		if err := sleepUntil(ctx, time.Now().Add(2*time.Second)); err != nil { // until it is idle
			return err
		}
		if len(postgresCPU()) == 0 {
			return nil
		}
		r.progress("an idle relay for %s", r.cfg.IdleFor)
		cpu := startCPU()
		if err := sleepUntil(ctx, cpu.at.Add(r.cfg.IdleFor)); err != nil {
			return err
		}
		percent := 100 * cpu.stop().Server
		r.result.IdleDatabaseCPU = &percent
		return nil
	})
}
