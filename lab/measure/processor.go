package measure

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ProcessorConfig is one run of processor.
type ProcessorConfig struct {
	// Setup's store is on Database, its sink an amqp URL.
	Setup
	Database

	Rows         int           // in the table before each rung
	Batch        int           // rows at a time, by hand
	Duration     time.Duration // of each rung, at most
	PayloadBytes int           // about, of each content
	Repeat       int           // rounds of everything
}

// ProcessorResult is the result of a run: medians, where there were several
// rounds. Rates are messages per second, from the start to the last row that is
// marked as processed.
type ProcessorResult struct {
	Rows         int     `json:"rows"`
	Batch        int     `json:"batch"`
	PayloadBytes int     `json:"payload_bytes"`
	Duration     float64 `json:"duration_s"`

	Rungs []RungResult `json:"rungs"` // by hand, as they were published
	// Ceiling: the broker confirms the same messages from memory; the mean of a run before
	// the next two and one after them.
	Ceiling float64 `json:"ceiling"`
	// Adopted: Penstock on the table as the last rung has it.
	Adopted float64 `json:"adopted"`
	// Outbox: the same messages in an outbox of Penstock's.
	Outbox float64 `json:"outbox"`

	Ratios ProcessorRatios   `json:"ratios"`
	Rounds []ProcessorRatios `json:"rounds"` // the ratios of each round
}

// RungResult is one rung of the ladder. Milliseconds are the mean per batch of one
// worker; the update's include the commit.
type RungResult struct {
	Name              string  `json:"name"`
	QueryMS           float64 `json:"query_ms"`
	PublishMS         float64 `json:"publish_ms"`
	UpdateMS          float64 `json:"update_ms"`
	MessagesPerSecond float64 `json:"messages_per_second"`
	Messages          int     `json:"messages"` // that were processed
	Workers           int     `json:"workers"`
	// Published is the author's messages per second, where he gives them.
	Published float64 `json:"published_messages_per_second,omitempty"`
}

// ProcessorRatios are those of one round, or the median of each.
type ProcessorRatios struct {
	AdoptedOverBestRung  float64 `json:"adopted_over_best_rung"`
	AdoptedOverCeiling   float64 `json:"adopted_over_ceiling"`
	OutboxOverCeiling    float64 `json:"outbox_over_ceiling"`
	FactorOverBaseline   float64 `json:"factor_over_baseline"` // of the adopted table; published 24 for the best rung
	BestRungOverCeiling  float64 `json:"best_rung_over_ceiling"`
	BestRungOverBaseline float64 `json:"best_rung_over_baseline"`
}

// maxContent is the size that fits into the covering index with the other columns: a row
// of a B-tree page has 2,704 bytes at most.
const maxContent = 2_000

// DefaultProcessor is measured unless flags say otherwise.
var DefaultProcessor = ProcessorConfig{Rows: 200_000, Batch: 1_000, Duration: 10 * time.Second, PayloadBytes: 200, Repeat: 1}

// Validate refuses values that cannot be measured.
func (c ProcessorConfig) Validate() error {
	switch scheme, _, _ := strings.Cut(c.SinkURL, ":"); {
	case scheme != "amqp" && scheme != "amqps":
		return errors.New("the ladder publishes to RabbitMQ: the sink must be an amqp:// URL")
	case c.Rows < 1 || c.Batch < 1 || c.Batch > 10_000 || c.Repeat < 1:
		return errors.New("it takes at least one row and one round, and batches of 1 to 10000")
	case c.Duration < 100*time.Millisecond:
		return errors.New("the duration must be at least 100ms")
	case c.PayloadBytes < orderOverhead || c.PayloadBytes > maxContent:
		return fmt.Errorf("the payload must have %d to %d bytes: it begins with a number, and must fit into the covering index", orderOverhead, maxContent)
	}
	return nil
}

// Processor climbs the published ladder, then lets Penstock have the same rows, first in the same
// table, then in a separate outbox. Each begins with fresh rows and an empty queue.
func Processor(ctx context.Context, cfg ProcessorConfig) (result ProcessorResult, err error) {
	rig, remove, err := newRig(cfg.Setup, &cfg)
	if err != nil {
		return result, err
	}
	defer remove()
	p := newProcessor(rig, cfg)
	var rounds []ProcessorResult
	for i := range cfg.Repeat {
		p.round = fmt.Sprintf("round %d of %d", i+1, cfg.Repeat)
		round, err := p.climb(ctx)
		if err != nil {
			return result, err
		}
		rounds = append(rounds, round)
	}
	result = medians(rounds)
	result.Rows, result.Batch, result.PayloadBytes, result.Duration = cfg.Rows, cfg.Batch, cfg.PayloadBytes, cfg.Duration.Seconds()
	return result, nil
}

// climb is one round.
func (p *processor) climb(ctx context.Context) (round ProcessorResult, err error) {
	best := 0.0
	for _, r := range ladder {
		measured, err := p.rung(ctx, r)
		if err != nil {
			return round, fmt.Errorf("%s: %w", r.name, err)
		}
		round.Rungs = append(round.Rungs, measured)
		best = max(best, measured.MessagesPerSecond)
	}
	var after float64
	for _, step := range []struct {
		name string
		rate *float64
		do   func(context.Context) (float64, error)
	}{{"the broker's ceiling", &round.Ceiling, p.ceiling}, {"the adopted table", &round.Adopted, p.adopted}, {"Penstock's outbox", &round.Outbox, p.ownOutbox}, {"the broker's ceiling", &after, p.ceiling}} {
		if *step.rate, err = step.do(ctx); err != nil {
			return round, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	round.Ceiling = (round.Ceiling + after) / 2
	baseline := round.Rungs[0].MessagesPerSecond
	round.Ratios = ProcessorRatios{
		AdoptedOverBestRung: over(round.Adopted, best), AdoptedOverCeiling: over(round.Adopted, round.Ceiling),
		OutboxOverCeiling: over(round.Outbox, round.Ceiling), FactorOverBaseline: over(round.Adopted, baseline),
		BestRungOverCeiling: over(best, round.Ceiling), BestRungOverBaseline: over(best, baseline),
	}
	return round, nil
}

// medians of each figure over the rounds.
func medians(rounds []ProcessorResult) (m ProcessorResult) {
	of := func(figure func(*ProcessorResult) float64) float64 {
		var all []float64
		for i := range rounds {
			all = append(all, figure(&rounds[i]))
		}
		return median(all)
	}
	for i, r := range rounds[0].Rungs {
		r.QueryMS = of(func(p *ProcessorResult) float64 { return p.Rungs[i].QueryMS })
		r.PublishMS = of(func(p *ProcessorResult) float64 { return p.Rungs[i].PublishMS })
		r.UpdateMS = of(func(p *ProcessorResult) float64 { return p.Rungs[i].UpdateMS })
		r.MessagesPerSecond = of(func(p *ProcessorResult) float64 { return p.Rungs[i].MessagesPerSecond })
		r.Messages = int(of(func(p *ProcessorResult) float64 { return float64(p.Rungs[i].Messages) }))
		m.Rungs = append(m.Rungs, r)
	}
	m.Ceiling = of(func(p *ProcessorResult) float64 { return p.Ceiling })
	m.Adopted = of(func(p *ProcessorResult) float64 { return p.Adopted })
	m.Outbox = of(func(p *ProcessorResult) float64 { return p.Outbox })
	m.Ratios = ProcessorRatios{
		AdoptedOverBestRung:  of(func(p *ProcessorResult) float64 { return p.Ratios.AdoptedOverBestRung }),
		AdoptedOverCeiling:   of(func(p *ProcessorResult) float64 { return p.Ratios.AdoptedOverCeiling }),
		OutboxOverCeiling:    of(func(p *ProcessorResult) float64 { return p.Ratios.OutboxOverCeiling }),
		FactorOverBaseline:   of(func(p *ProcessorResult) float64 { return p.Ratios.FactorOverBaseline }),
		BestRungOverCeiling:  of(func(p *ProcessorResult) float64 { return p.Ratios.BestRungOverCeiling }),
		BestRungOverBaseline: of(func(p *ProcessorResult) float64 { return p.Ratios.BestRungOverBaseline }),
	}
	for i := range rounds {
		m.Rounds = append(m.Rounds, rounds[i].Ratios)
	}
	return m
}
