package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/relay"
)

// PoisonConfig is one run of the poison benchmark.
type PoisonConfig struct {
	Setup
	Messages     int // per run
	PayloadBytes int // at least 20
	Keys         int
	Poisoned     int // how many keys are refused
	Repeat       int // pairs
}

// PoisonResult compares the throughput of healthy keys with and without others
// that the sink refuses. Rates are messages per second, of the healthy keys.
type PoisonResult struct {
	Messages     int `json:"messages"`
	PayloadBytes int `json:"payload_bytes"`
	Keys         int `json:"keys"`
	Poisoned     int `json:"poisoned_keys"`

	// Clean and Poison are medians, Ratio is the median of poison/clean, pair by
	// pair.
	Clean   float64   `json:"clean"`
	Poison  float64   `json:"poison"`
	Ratio   float64   `json:"ratio"`
	Ratios  []float64 `json:"ratios"`
	Cleans  []float64 `json:"cleans"`
	Poisons []float64 `json:"poisons"`

	// Of the last run with poison, when the last healthy message was confirmed and settled: attempts
	// spent on poisoned messages, and messages parked.
	Attempts    int64 `json:"attempts"`
	Parked      int64 `json:"parked"`
	ParkedKeys  int64 `json:"parked_keys"`
	DeadLetters int64 `json:"dead_letters"`
}

// DefaultPoison is measured unless flags say otherwise.
var DefaultPoison = PoisonConfig{Messages: 150_000, PayloadBytes: 200, Keys: 1_000, Poisoned: 1, Repeat: 5}

// Validate refuses values that cannot be measured.
func (c *PoisonConfig) Validate() error {
	if c.Poisoned < 1 || c.Keys <= c.Poisoned || c.Messages < c.Keys || c.Repeat < 1 {
		return errors.New("at least one key must be poisoned and one not, every key needs a message, and repeat must be at least 1")
	}
	return validNumbered(c.PayloadBytes)
}

// Poison measures what keys that are refused again and again cost the others.
func Poison(ctx context.Context, cfg PoisonConfig) (PoisonResult, error) {
	rig, remove, err := newRig(cfg.Setup, &cfg)
	if err != nil {
		return PoisonResult{}, err
	}
	defer remove()
	r := &poisonRun{rig: rig, cfg: cfg, load: load{topic: "bench", keyName: "key-", keys: cfg.Keys, payload: cfg.PayloadBytes}}
	r.result = PoisonResult{Messages: cfg.Messages, PayloadBytes: cfg.PayloadBytes, Keys: cfg.Keys, Poisoned: cfg.Poisoned}
	for i := range cfg.Repeat {
		if err := r.pair(ctx, i); err != nil {
			return r.result, err
		}
	}
	res := &r.result
	res.Clean, res.Poison, res.Ratio = median(res.Cleans), median(res.Poisons), median(res.Ratios)
	return r.result, nil
}

type poisonRun struct {
	*rig
	cfg    PoisonConfig
	load   load
	result PoisonResult
}

// pair runs without and with poison; every other pair the other way round, so
// that what a machine gains or loses in time favours neither.
func (r *poisonRun) pair(ctx context.Context, i int) error {
	rates := map[bool]float64{}
	for _, poison := range []bool{i%2 == 1, i%2 == 0} {
		err := r.inNewOutbox(ctx, func(ctx context.Context) (err error) {
			rates[poison], err = r.drain(ctx, fmt.Sprintf("pair %d of %d", i+1, r.cfg.Repeat), poison)
			return err
		})
		if err != nil {
			return err
		}
	}
	r.result.Cleans = append(r.result.Cleans, rates[false])
	r.result.Poisons = append(r.result.Poisons, rates[true])
	r.result.Ratios = append(r.result.Ratios, over(rates[true], rates[false]))
	return nil
}

// drain measures from the relay's start to the last confirm of a healthy key.
func (r *poisonRun) drain(ctx context.Context, pair string, poison bool) (rate float64, err error) {
	what := "without poison"
	if poison {
		what = "with poison"
	}
	r.Progress(fmt.Sprintf("%s: publishing %d messages", pair, r.cfg.Messages))
	if err := r.publish(ctx, r.load, r.cfg.Messages); err != nil {
		return 0, fmt.Errorf("publishing the backlog: %w", err)
	}
	q, err := r.open(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, q.close(ctx)) }()

	poisoned := map[string]bool{}
	for n := range r.cfg.Poisoned {
		poisoned[r.load.key(n)] = true
	}
	healthy := func(n int) bool { return n%r.cfg.Keys >= r.cfg.Poisoned }
	want := 0
	for n := range r.cfg.Messages {
		if healthy(n) {
			want++
		}
	}
	v := &valve{Sink: q.sink, confirmed: newLedger(r.cfg.Keys, healthy),
		refuse: func(m *penstock.Message) bool { return poisoned[m.Key] }, err: errors.New("the benchmark refuses this key")}
	v.shut.Store(poison)
	v.confirmed.expect(want)

	r.Progress(pair + ": the relay drains the backlog " + what)
	var count relay.Counters
	start := time.Now()
	stop, err := r.startRelay(ctx, relaying{sink: v, Options: relay.Options{Observer: &count}})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	last, err := v.confirmed.await(ctx)
	if err != nil {
		return 0, fmt.Errorf("draining %s: %w", what, err)
	}
	rate = float64(want) / last.Sub(start).Seconds()
	_, sub, err := r.awaitStatus(ctx, "the healthy keys are settled", 50*time.Millisecond, func(s admin.SubscriptionStatus) bool { return s.Backlog == 0 })
	if err != nil {
		return 0, err
	}
	check, err := v.check(ctx, q, want)
	if err != nil {
		return 0, err
	}
	if !check.OK() {
		return 0, &CheckError{Check: check, When: pair + " " + what}
	}
	if poison {
		r.result.Attempts = count.Failed.Load()
		r.result.Parked, r.result.ParkedKeys, r.result.DeadLetters = sub.Parked, sub.ParkedKeys, sub.DeadLetters
	}
	return rate, nil
}
