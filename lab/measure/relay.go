package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock"
)

// RelayConfig is one run of the relay benchmark.
type RelayConfig struct {
	Setup
	// Pin holds back the database's cleanup until release is called, as a long
	// transaction would. Nil: do not.
	Pin func(ctx context.Context) (release func(), err error)

	Messages     int // per backlog
	PayloadBytes int
	Keys         int           // different ones; 0: unkeyed
	Repeat       int           // pairs of ceiling and relay
	Rate         int           // messages/s of the latency phase
	LatencyFor   time.Duration // 0: leave it out
	IdleFor      time.Duration // 0: leave it out
	SkipCeiling  bool          // measure the relay only
	Relays       int           // that share the subscription, in the portable profile; 1: one has it alone
	MaxInFlight  int           // of each relay, 0: its default
}

// RelayResult is the result of a run. Rates are messages per second.
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
	// RatioOfLower is the median of relay over the lower of the two ceilings: where a
	// broker takes more than the database gives, that is the one to compare with.
	RatioOfLower float64   `json:"ratio_of_lower_ceiling"`
	Drains       []float64 `json:"drains"`

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

// DefaultRelay is measured unless flags say otherwise.
var DefaultRelay = RelayConfig{
	Messages: 150_000, PayloadBytes: 200, Keys: 1_000, Repeat: 1, Relays: 1, Rate: 1_000, LatencyFor: 10 * time.Second, IdleFor: 5 * time.Second,
}

// Validate refuses values that cannot be measured.
func (c *RelayConfig) Validate() error {
	if c.Messages < 1 || c.PayloadBytes < 0 || c.Repeat < 1 || c.Relays < 1 || c.MaxInFlight < 0 || c.Rate < 1 || c.Keys < 0 {
		return errors.New("--messages, --repeat, --relays and --rate must be at least 1, --payload, --keys and --max-in-flight at least 0")
	}
	if c.PayloadBytes > penstock.MaxPayloadBytes {
		return fmt.Errorf("the payload is larger than the limit of %d bytes", penstock.MaxPayloadBytes)
	}
	return nil
}

// Relay measures the relay between a database and a broker.
func Relay(ctx context.Context, cfg RelayConfig) (result RelayResult, err error) {
	rig, remove, err := newRig(cfg.Setup, &cfg)
	if err != nil {
		return result, err
	}
	defer remove()
	r := &relayRun{
		rig: rig, cfg: cfg, load: load{topic: "bench", keyName: "key-", keys: cfg.Keys, payload: cfg.PayloadBytes},
		result: RelayResult{Messages: cfg.Messages, PayloadBytes: cfg.PayloadBytes, Keys: cfg.Keys, Pinned: cfg.Pin != nil},
	}
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
	release, err := pinned(ctx, r.cfg.Pin)
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
