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

// PoisonConfig is one run of poison.
type PoisonConfig struct {
	Setup
	Messages int `help:"messages per run"`
	Payload  int `help:"bytes of each payload" range:"20..67108864"`
	Keys     int `help:"different keys"`
	Poisoned int `help:"how many of them are refused" range:"1.."`
	Repeat   int `help:"pairs of runs; the median counts" range:"1.."`
}

// PoisonResult compares the throughput of healthy keys with and without others
// that the sink refuses. Rates are messages per second of the healthy keys, medians.
type PoisonResult struct {
	Clean  float64 `json:"clean"`
	Poison float64 `json:"poison"`
	Pairs
	// Of the last run with poison, when the last healthy message was confirmed and settled: attempts
	// spent on poisoned messages, and messages parked.
	Attempts    int64 `json:"attempts"`
	Parked      int64 `json:"parked"`
	ParkedKeys  int64 `json:"parked_keys"`
	DeadLetters int64 `json:"dead_letters"`
}

// DefaultPoison is measured unless flags say otherwise.
var DefaultPoison = PoisonConfig{Messages: 150_000, Payload: 200, Keys: 1_000, Poisoned: 1, Repeat: 5}

// Validate refuses values that cannot be measured.
func (c *PoisonConfig) Validate() error {
	if c.Keys <= c.Poisoned || c.Messages < c.Keys {
		return errors.New("at least one key must not be poisoned, and every key needs a message")
	}
	return nil
}

// Poison measures what keys that are refused again and again cost the others.
func Poison(ctx context.Context, cfg PoisonConfig) (result PoisonResult, err error) {
	r := &poisonRun{rig: newRig(cfg.Setup), cfg: cfg, load: load{topic: "bench", keyName: "key-", keys: cfg.Keys, payload: cfg.Payload}}
	side := func(what string, poison bool) func() (float64, error) {
		return func() (rate float64, err error) {
			return rate, r.inNewOutbox(ctx, func(ctx context.Context) error {
				if err := r.publish(ctx, r.load, r.cfg.Messages, what); err != nil {
					return err
				}
				return r.inQueue(ctx, func(q *queue) (err error) {
					r.progress("%s: the relay drains the backlog", what)
					rate, err = r.drain(ctx, q, what, poison)
					return err
				})
			})
		}
	}
	rates, err := inTurns(cfg.Repeat, side("without poison", false), side("with poison", true))
	r.Clean, r.Poison, r.Pairs = median(rates[0]), median(rates[1]), pairsOf(ratios(rates[1], rates[0]))
	return r.PoisonResult, err
}

type poisonRun struct {
	*rig
	PoisonResult
	cfg  PoisonConfig
	load load
}

// drain measures from the relay's start to the last confirm of a healthy key.
func (r *poisonRun) drain(ctx context.Context, q *queue, what string, poison bool) (rate float64, err error) {
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
	_, sub, err := r.awaitStatus(ctx, "the healthy keys are settled", 50*time.Millisecond, func(s admin.SubscriptionStatus) bool { return s.Backlog == 0 })
	if err != nil {
		return 0, err
	}
	if poison {
		r.Attempts = count.Failed.Load()
		r.Parked, r.ParkedKeys, r.DeadLetters = sub.Parked, sub.ParkedKeys, sub.DeadLetters
	}
	_, err = v.check(ctx, q, want, what)
	return float64(want) / last.Sub(start).Seconds(), err
}
