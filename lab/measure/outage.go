package measure

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// OutageConfig is one run of the outage benchmark.
type OutageConfig struct {
	Setup
	Rate         int           // messages/s, one per transaction
	Writers      int           // that share the rate
	Before       time.Duration // with the broker up
	Outage       time.Duration // with it dead
	KeepArriving bool          // producers continue while the backlog drains
	CeilingOf    int           // messages per measurement of the ceiling
	PayloadBytes int           // at least 20
	Repeat       int           // outages, each with a new outbox
}

// OutageResult has the medians of all outages, and each of them.
type OutageResult struct {
	OutageRun
	Rate         int  `json:"rate"`
	PayloadBytes int  `json:"payload_bytes"`
	KeepArriving bool `json:"kept_arriving"`
	// By is how the broker died: "connections reset", or "sink unavailable" where
	// there is no connection to refuse.
	By     string      `json:"outage_by"`
	Ratios []float64   `json:"ratios"`
	Runs   []OutageRun `json:"runs"`
}

// OutageRun is the result of one outage. Rates are messages per second.
type OutageRun struct {
	// How long a producer's commit took, with the broker up and during the
	// outage.
	BeforeP50MS float64 `json:"before_p50_ms"`
	BeforeP99MS float64 `json:"before_p99_ms"`
	OutageP50MS float64 `json:"outage_p50_ms"`
	OutageP99MS float64 `json:"outage_p99_ms"`
	// OutageSeconds the broker was dead; Arrived is how many messages per second
	// were committed meanwhile, Backlog how many waited at its end.
	OutageSeconds float64 `json:"outage_seconds"`
	Arrived       float64 `json:"arrived_per_second"`
	Backlog       int     `json:"backlog"`
	// ResumedMS is from the broker's return to the first confirm. Drain is the
	// rate from then until as many were confirmed as had been committed when the
	// broker returned. Ceiling is the mean of what the broker confirmed from
	// memory before and after all this, and Ratio is drain/ceiling.
	ResumedMS float64 `json:"resumed_after_ms"`
	Drain     float64 `json:"drain_per_second"`
	Ceiling   float64 `json:"ceiling_per_second"`
	Ratio     float64 `json:"ratio"`
	// RatioFromReturn also counts the time to the first confirm.
	RatioFromReturn float64 `json:"ratio_from_return"`
	// AttemptsSpent sums up the attempts of confirmed messages beyond their first
	// attempt, and one for each dead letter and each parked key.
	AttemptsSpent int64 `json:"attempts_spent"`
	DeadLetters   int64 `json:"dead_letters"`
	Parked        int64 `json:"parked"`

	BeforeUse Usage `json:"before_use"`
	OutageUse Usage `json:"outage_use"`
	DrainUse  Usage `json:"drain_use"`

	Check Check `json:"check"`
}

// DefaultOutage is measured unless flags say otherwise.
var DefaultOutage = OutageConfig{
	Rate: 1_000, Writers: 8, Before: 30 * time.Second, Outage: 5 * time.Minute, CeilingOf: 150_000, PayloadBytes: 200, Repeat: 1,
}

// Validate refuses values that cannot be measured.
func (c *OutageConfig) Validate() error {
	if c.Rate < 1 || c.Writers < 1 || c.Writers > 100 || c.Before <= 0 || c.Outage <= 0 || c.CeilingOf < 1 || c.Repeat < 1 {
		return errors.New("rate, writers (at most 100), times, ceiling and repeat must be at least 1")
	}
	return validNumbered(c.PayloadBytes)
}

// Outage measures producers and relay while the broker is dead for a while, and
// after.
func Outage(ctx context.Context, cfg OutageConfig) (result OutageResult, err error) {
	rig, remove, err := newRig(cfg.Setup, &cfg)
	if err != nil {
		return result, err
	}
	defer remove()
	result = OutageResult{Rate: cfg.Rate, PayloadBytes: cfg.PayloadBytes, KeepArriving: cfg.KeepArriving, By: "sink unavailable"}
	way, err := newLink(cfg.SinkURL)
	if err != nil {
		return result, err
	}
	if way != nil {
		defer way.Close()
		result.By = "connections reset"
	}
	for i := range cfg.Repeat {
		r := &outageRun{
			rig: rig, cfg: cfg, link: way, round: fmt.Sprintf("outage %d of %d", i+1, cfg.Repeat),
			// Each writer has separate keys: within a key, commits are in the order of their numbers.
			load: load{topic: "bench", keyName: "key-", keys: 125 * cfg.Writers, payload: cfg.PayloadBytes},
		}
		if err := r.inNewOutbox(ctx, r.run); err != nil {
			return result, err
		}
		result.Runs = append(result.Runs, r.OutageRun)
		result.Ratios = append(result.Ratios, r.Ratio)
	}
	result.OutageRun = medianRun(result.Runs)
	return result, nil
}

// medianRun has the median of each figure, the sum of figures that must be zero, and the
// largest of each peak.
func medianRun(runs []OutageRun) OutageRun {
	last := runs[len(runs)-1]
	for _, field := range []func(*OutageRun) *float64{
		func(r *OutageRun) *float64 { return &r.BeforeP50MS }, func(r *OutageRun) *float64 { return &r.BeforeP99MS },
		func(r *OutageRun) *float64 { return &r.OutageP50MS }, func(r *OutageRun) *float64 { return &r.OutageP99MS },
		func(r *OutageRun) *float64 { return &r.OutageSeconds }, func(r *OutageRun) *float64 { return &r.Arrived },
		func(r *OutageRun) *float64 { return &r.ResumedMS }, func(r *OutageRun) *float64 { return &r.Drain },
		func(r *OutageRun) *float64 { return &r.Ceiling }, func(r *OutageRun) *float64 { return &r.Ratio },
		func(r *OutageRun) *float64 { return &r.RatioFromReturn },
	} {
		var values []float64
		for i := range runs {
			values = append(values, *field(&runs[i]))
		}
		*field(&last) = median(values)
	}
	for i := range runs[:len(runs)-1] {
		r := &runs[i]
		last.AttemptsSpent += r.AttemptsSpent
		last.DeadLetters += r.DeadLetters
		last.Parked += r.Parked
		last.Check.Lost += r.Check.Lost
		last.Check.OutOfOrder += r.Check.OutOfOrder
		last.Check.Duplicates += r.Check.Duplicates
		last.BeforeUse.raise(r.BeforeUse)
		last.OutageUse.raise(r.OutageUse)
		last.DrainUse.raise(r.DrainUse)
	}
	return last
}
