package measure

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ProcessorConfig is one run of processor. Its sink is an amqp URL.
type ProcessorConfig struct {
	Setup
	Rows     int           `help:"rows that each rung begins with" range:"1.."`
	Batch    int           `help:"rows at a time, by hand" range:"1..10000"`
	Duration time.Duration `help:"how long each rung is measured, at most" range:"100ms.."`
	// The row of a B-tree page has 2,704 bytes at most.
	Payload int `help:"bytes of each content, about: with the other columns it must fit into the covering index" range:"26..2000"`
}

// ProcessorResult is the result of a run. Rates are messages per second, from the start to the last row that is
// marked as processed.
type ProcessorResult struct {
	Rungs []RungResult `json:"rungs"` // by hand, as they were published
	// Ceiling: the broker confirms the same messages from memory; the mean of a run before
	// the next two and one after them.
	Ceiling float64 `json:"ceiling"`
	// Adopted: Penstock on the table as the last rung has it.
	Adopted float64 `json:"adopted"`
	// Outbox: the same messages in an outbox of Penstock's.
	Outbox float64         `json:"outbox"`
	Ratios ProcessorRatios `json:"ratios"`
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

// ProcessorRatios are those of the rates above.
type ProcessorRatios struct {
	AdoptedOverBestRung  float64 `json:"adopted_over_best_rung"`
	AdoptedOverCeiling   float64 `json:"adopted_over_ceiling"`
	OutboxOverCeiling    float64 `json:"outbox_over_ceiling"`
	FactorOverBaseline   float64 `json:"factor_over_baseline"` // of the adopted table; published 24 for the best rung
	BestRungOverCeiling  float64 `json:"best_rung_over_ceiling"`
	BestRungOverBaseline float64 `json:"best_rung_over_baseline"`
}

// DefaultProcessor is measured unless flags say otherwise.
var DefaultProcessor = ProcessorConfig{Rows: 200_000, Batch: 1_000, Duration: 10 * time.Second, Payload: 200}

// Validate refuses values that cannot be measured.
func (c *ProcessorConfig) Validate() error {
	if scheme, _, _ := strings.Cut(c.SinkURL, ":"); scheme != "amqp" && scheme != "amqps" {
		return errors.New("the ladder publishes to RabbitMQ: the sink must be an amqp:// URL")
	}
	return nil
}

// Processor climbs the published ladder, then lets Penstock have the same rows, first in the same
// table, then in a separate outbox. Each begins with fresh rows and an empty queue.
func Processor(ctx context.Context, cfg ProcessorConfig) (result ProcessorResult, err error) {
	p := newProcessor(newRig(cfg.Setup), cfg)
	best := 0.0
	for _, r := range ladder {
		measured, err := p.rung(ctx, r)
		if err != nil {
			return result, fmt.Errorf("%s: %w", r.name, err)
		}
		result.Rungs = append(result.Rungs, measured)
		best = max(best, measured.MessagesPerSecond)
	}
	var after float64
	for _, step := range []struct {
		name string
		rate *float64
		do   func(context.Context) (float64, error)
	}{{"the broker's ceiling", &result.Ceiling, p.ceiling}, {"the adopted table", &result.Adopted, p.adopted}, {"Penstock's outbox", &result.Outbox, p.ownOutbox}, {"the broker's ceiling", &after, p.ceiling}} {
		if *step.rate, err = step.do(ctx); err != nil {
			return result, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	result.Ceiling = (result.Ceiling + after) / 2
	baseline := result.Rungs[0].MessagesPerSecond
	result.Ratios = ProcessorRatios{
		AdoptedOverBestRung: over(result.Adopted, best), AdoptedOverCeiling: over(result.Adopted, result.Ceiling),
		OutboxOverCeiling: over(result.Outbox, result.Ceiling), FactorOverBaseline: over(result.Adopted, baseline),
		BestRungOverCeiling: over(best, result.Ceiling), BestRungOverBaseline: over(best, baseline),
	}
	return result, nil
}
