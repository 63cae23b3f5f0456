package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/relay"
)

// RelayConfig is one run of the relay benchmark.
type RelayConfig struct {
	// Store is migrated and has no outbox called Outbox: the run makes it and
	// drops it at the end.
	Store  penstock.Store
	Outbox string
	// SinkURL is where to send; each phase gets a queue of its own there.
	SinkURL string
	// OpenSink opens the sink of a URL.
	OpenSink func(url string) (penstock.Sink, error)
	// Pin holds back the database's cleanup until release is called, as a long
	// transaction would. Nil: do not.
	Pin func(ctx context.Context) (release func(), err error)

	Messages     int           // per backlog; default 150,000
	PayloadBytes int           // default 200
	Keys         int           // different ones; default 1,000, 0 < 0 means unkeyed
	Repeat       int           // pairs of ceiling and relay; default 1
	Rate         int           // messages/s of the latency phase; default 1,000
	LatencyFor   time.Duration // default 10 s; negative: leave it out
	IdleFor      time.Duration // default 5 s; negative: leave it out
	SkipCeiling  bool          // measure the relay only

	Log      *slog.Logger
	Progress func(text string) // may be nil
}

// RelayResult is what a run measured. Rates are messages per second.
type RelayResult struct {
	Messages     int `json:"messages"`
	PayloadBytes int `json:"payload_bytes"`
	Keys         int `json:"keys"`

	// ReadCeiling: Fetch alone, nothing sent.
	ReadCeiling float64 `json:"read_ceiling"`
	// BrokerCeiling: the same confirmed messages from memory, the median.
	BrokerCeiling float64 `json:"broker_ceiling"`
	// Relay: draining a backlog end to end, the median.
	Relay float64 `json:"relay"`
	// Ratio is the median of relay/ceiling, pair by pair.
	Ratio  float64   `json:"ratio"`
	Ratios []float64 `json:"ratios"`
	Drains []float64 `json:"drains"`

	// LatencyMS: from the commit's answer to the consumer, at a steady Rate. To
	// the sink's confirm where the sink cannot be read back.
	LatencyMS *Latency `json:"latency_ms,omitempty"`
	// CPUSecondsPer100k of this process while it drains (an embedded database or
	// broker included).
	CPUSecondsPer100k float64 `json:"cpu_seconds_per_100k"`
	// PeakRSSMB of this process while it drains.
	PeakRSSMB float64 `json:"peak_rss_mb"`
	// IdleDatabaseCPU is the share of a core that an idle relay costs a
	// PostgreSQL server on this machine.
	IdleDatabaseCPU *float64 `json:"idle_database_cpu_percent,omitempty"`

	// Pinned says whether cleanup was held back throughout. FlatnessLastToFirst
	// is the last drain's rate over the first's.
	Pinned              bool    `json:"pinned"`
	FlatnessLastToFirst float64 `json:"flatness_last_to_first"`
	// Sizes of the outbox in bytes: before the first message, the largest seen,
	// and when the relay had caught up.
	SizeFloor int64 `json:"size_floor_bytes"`
	SizePeak  int64 `json:"size_peak_bytes"`
	SizeAfter int64 `json:"size_after_bytes"`
}

// Latency in milliseconds.
type Latency struct {
	P50      float64 `json:"p50"`
	P99      float64 `json:"p99"`
	Max      float64 `json:"max"`
	Messages int     `json:"messages"`
	To       string  `json:"to"` // "consumer" or "confirm"
}

func (c *RelayConfig) setDefaults() {
	c.Messages = cmp.Or(c.Messages, 150_000)
	c.PayloadBytes = cmp.Or(c.PayloadBytes, 200)
	c.Keys = cmp.Or(c.Keys, 1_000)
	c.Repeat = cmp.Or(c.Repeat, 1)
	c.Rate = cmp.Or(c.Rate, 1_000)
	c.LatencyFor = cmp.Or(c.LatencyFor, 10*time.Second)
	c.IdleFor = cmp.Or(c.IdleFor, 5*time.Second)
	c.Log = cmp.Or(c.Log, slog.Default())
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
}

func (c *RelayConfig) validate() error {
	if c.Messages < 1 || c.PayloadBytes < 0 || c.Repeat < 1 || c.Rate < 1 {
		return errors.New("messages, repeat and rate must be at least 1, the payload 0 bytes")
	}
	if c.PayloadBytes > penstock.MaxPayloadBytes {
		return fmt.Errorf("the payload is larger than the limit of %d bytes", penstock.MaxPayloadBytes)
	}
	return nil
}

// Relay measures the relay between a database and a broker.
func Relay(ctx context.Context, cfg RelayConfig) (result RelayResult, err error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return result, err
	}
	dir, err := os.MkdirTemp("", "penstock-bench-")
	if err != nil {
		return result, err
	}
	defer os.RemoveAll(dir)
	r := &relayRun{RelayConfig: cfg, dir: dir, result: RelayResult{Messages: cfg.Messages, PayloadBytes: cfg.PayloadBytes, Keys: max(cfg.Keys, 0)}}
	if err := cfg.Store.CreateOutbox(ctx, cfg.Outbox); err != nil {
		return result, err
	}
	defer func() {
		err = errors.Join(err, cfg.Store.DropOutbox(context.WithoutCancel(ctx), cfg.Outbox))
	}()
	if r.result.SizeFloor, err = r.size(ctx); err != nil {
		return result, err
	}
	if cfg.Pin != nil {
		release, err := cfg.Pin(ctx)
		if err != nil {
			return result, err
		}
		defer release()
		r.result.Pinned = true
	}
	for _, phase := range []func(context.Context) error{r.pairs, r.caughtUp, r.latency, r.idle} {
		if err := phase(ctx); err != nil {
			return result, err
		}
	}
	return r.result, nil
}

type relayRun struct {
	RelayConfig
	dir    string
	result RelayResult
	phases int // for names
}

// pairs measures the broker from memory and the relay in turn.
func (r *relayRun) pairs(ctx context.Context) error {
	var ceilings, reads []float64
	for i := range r.Repeat {
		ceiling := 0.0
		if !r.SkipCeiling {
			var err error
			r.Progress(fmt.Sprintf("round %d of %d: the broker's ceiling", i+1, r.Repeat))
			if ceiling, err = r.brokerCeiling(ctx); err != nil {
				return fmt.Errorf("measuring the broker's ceiling: %w", err)
			}
			ceilings = append(ceilings, ceiling)
		}
		r.Progress(fmt.Sprintf("round %d of %d: publishing %d messages", i+1, r.Repeat, r.Messages))
		if err := r.publish(ctx); err != nil {
			return fmt.Errorf("publishing the backlog: %w", err)
		}
		if !r.SkipCeiling {
			read, err := r.readCeiling(ctx)
			if err != nil {
				return fmt.Errorf("measuring the read ceiling: %w", err)
			}
			reads = append(reads, read)
		}
		r.Progress(fmt.Sprintf("round %d of %d: the relay drains the backlog", i+1, r.Repeat))
		rate, err := r.drain(ctx)
		if err != nil {
			return fmt.Errorf("draining the backlog: %w", err)
		}
		r.result.Drains = append(r.result.Drains, rate)
		if ceiling > 0 {
			r.result.Ratios = append(r.result.Ratios, rate/ceiling)
		}
	}
	res := &r.result
	res.BrokerCeiling, res.ReadCeiling = median(ceilings), median(reads)
	res.Relay, res.Ratio = median(res.Drains), median(res.Ratios)
	res.FlatnessLastToFirst = res.Drains[len(res.Drains)-1] / res.Drains[0]
	return nil
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// size reads what the outbox takes and keeps the largest.
func (r *relayRun) size(ctx context.Context) (int64, error) {
	all, err := r.Store.Status(ctx)
	if err != nil {
		return 0, err
	}
	for _, o := range all {
		if o.Outbox == r.Outbox {
			r.result.SizePeak = max(r.result.SizePeak, o.Bytes)
			return o.Bytes, nil
		}
	}
	return 0, fmt.Errorf("the outbox %q is gone", r.Outbox)
}

// subscribe opens the benchmark's subscription.
func (r *relayRun) subscribe(ctx context.Context) (penstock.Source, error) {
	return r.Store.Subscribe(ctx, penstock.Subscribe{Outbox: r.Outbox, Subscription: "bench", Holder: "penstock bench"})
}

// startRelay runs a relay in the background; stop drains it.
func (r *relayRun) startRelay(ctx context.Context, sink penstock.Sink, observer relay.Observer) (stop func() error, err error) {
	rl, err := relay.New(relay.Config{
		Name: "bench", Open: r.subscribe, Sink: sink, Logger: r.Log, Observer: observer,
		Maintain: func(ctx context.Context) error { return r.Store.Maintain(ctx, r.Outbox) },
	})
	if err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() { done <- rl.Run(ctx) }()
	return func() error {
		rl.Drain()
		return <-done
	}, nil
}
