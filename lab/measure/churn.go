package measure

import (
	"context"
	"errors"
	"time"
)

// ChurnConfig is one run of churn.
type ChurnConfig struct {
	Setup
	Duration time.Duration `help:"how long, of all three together" range:"400ms.."`
	Batch    int           `help:"rows that are inserted, then consumed" range:"1..10000"`
	Margin   time.Duration `help:"of the low-water marks, behind the newest row consumed" range:"1ms.."`
	Late     time.Duration `help:"when the late row commits, 0 for no such row, negative for five minutes or half the duration"`
	Pin      bool          `help:"hold a REPEATABLE READ snapshot open throughout"`
}

// ChurnResult has a curve for each contender.
type ChurnResult struct {
	WarmUp float64 `json:"warm_up_s"` // before the duration, in no figure
	// Sweep is the pause between two looks below the margin, of the adopted table and of plain ones.
	Sweep float64 `json:"sweep_s"`

	ByHand  ChurnCurve `json:"by_hand"`
	Adopted ChurnCurve `json:"adopted"` // empty on plain tables
	Outbox  ChurnCurve `json:"outbox"`

	// Ratios are of rows per second.
	AdoptedOverByHand float64 `json:"adopted_over_by_hand"`
	OutboxOverByHand  float64 `json:"outbox_over_by_hand"`
}

// ChurnCurve is how one contender went. Latencies are of consuming a batch. First
// and last are the first and the last minute, or a quarter of a run that is shorter
// than four.
type ChurnCurve struct {
	Intervals []Interval `json:"intervals"`

	FirstAndLast
	FirstMeanMS float64 `json:"first_mean_ms"`
	LastMeanMS  float64 `json:"last_mean_ms"`
	Flatness    float64 `json:"flatness"` // LastMeanMS over FirstMeanMS
	FlatnessP50 float64 `json:"flatness_p50"`
	FlatnessP99 float64 `json:"flatness_p99"`

	Inserted int64 `json:"inserted"`
	Consumed int64 `json:"consumed"`
	Left     int64 `json:"left"` // when nothing more was found
	// RowsPerSecond that were consumed, in this contender's turns.
	RowsPerSecond float64 `json:"rows_per_second"`

	Sizes

	Late *LateRow `json:"late_row,omitempty"`

	// RocksDB's calls per row consumed, in this contender's turns: all, in the first quarter and in the last. Nil elsewhere.
	RocksDB      *CallsPerJob `json:"rocksdb,omitempty"`
	FirstRocksDB *CallsPerJob `json:"first_rocksdb,omitempty"`
	LastRocksDB  *CallsPerJob `json:"last_rocksdb,omitempty"`
}

// Lines are the curves of all contenders.
func (r ChurnResult) Lines() []Line {
	return []Line{{"by hand", r.ByHand.Intervals}, {"adopted", r.Adopted.Intervals}, {"outbox", r.Outbox.Intervals}}
}

// LateRow is the row whose transaction took long.
type LateRow struct {
	CommittedAt float64 `json:"committed_at_s"`
	Delivered   bool    `json:"delivered"`
	// After is how long after its commit it was consumed.
	After float64 `json:"delivered_after_s,omitempty"`
}

// DefaultChurn is measured unless flags say otherwise.
var DefaultChurn = ChurnConfig{Duration: time.Minute, Batch: 1_000, Margin: time.Minute, Late: -1}

// Validate refuses values that cannot be measured.
func (c *ChurnConfig) Validate() error {
	if c.Late >= c.Duration {
		return errors.New("the late row must commit before the duration is over")
	}
	return nil
}

// sweep is often enough to find the late row before the run ends.
func (c ChurnConfig) sweep() time.Duration {
	return max(10*time.Millisecond, min(time.Minute, (c.Duration-c.Late)/4))
}

// warmUp is until the margin is full: each contender reads again what was consumed within it, which is
// nothing at first.
func (c ChurnConfig) warmUp() time.Duration {
	return max(c.Margin, min(warmUpFor, c.Duration/4))
}

// Churn inserts and consumes in turns: by hand as published, through Penstock from the
// same table, and through an outbox of Penstock's.
func Churn(ctx context.Context, cfg ChurnConfig) (result ChurnResult, err error) {
	if cfg.Late < 0 {
		cfg.Late = min(5*time.Minute, cfg.Duration/2)
	}
	result.WarmUp, result.Sweep = cfg.warmUp().Seconds(), cfg.sweep().Seconds()
	release, err := cfg.pinned(ctx, cfg.Pin)
	if err != nil {
		return result, err
	}
	defer release()
	run := &churnRun{cfg: cfg, interval: cfg.Duration / intervals}
	defer func() { err = errors.Join(err, run.remove(ctx)) }()
	for _, c := range []struct {
		curve *ChurnCurve
		add   func(context.Context) (*churner, error)
	}{{&result.ByHand, cfg.byHand}, {&result.Adopted, cfg.adoptedTable}, {&result.Outbox, cfg.ownOutbox}} {
		if c.curve == &result.Adopted && cfg.plain() != nil {
			continue
		}
		churner, err := c.add(ctx)
		if churner != nil {
			churner.curve = c.curve
			run.churners = append(run.churners, churner)
		}
		if err != nil {
			return result, err
		}
	}
	if err := run.run(ctx); err != nil {
		return result, err
	}
	result.AdoptedOverByHand = over(result.Adopted.RowsPerSecond, result.ByHand.RowsPerSecond)
	result.OutboxOverByHand = over(result.Outbox.RowsPerSecond, result.ByHand.RowsPerSecond)
	return result, run.wrong()
}
