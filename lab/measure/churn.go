package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock/driver"
)

// ChurnConfig is one run of churn.
type ChurnConfig struct {
	Database
	// Store is on the same database and schema.
	Store driver.Store
	// Pin holds a snapshot from before the first row on. Nil: do not.
	Pin func(ctx context.Context) (release func(), err error)

	Duration time.Duration
	Interval time.Duration // 0: Duration/20
	Batch    int           // rows inserted, then consumed
	Margin   time.Duration // behind the newest row consumed
	// Late is how long the transaction of one row takes to commit, from the start
	// on; 0: there is none.
	Late time.Duration
}

// ChurnResult has a curve for each contender.
type ChurnResult struct {
	Duration float64 `json:"duration_s"`
	WarmUp   float64 `json:"warm_up_s"` // before that, in no figure
	Batch    int     `json:"batch"`
	Margin   float64 `json:"margin_s"`
	Late     float64 `json:"late_s"` // 0: no late row
	// Sweep is the pause between two looks below the margin, of the adopted table and of plain ones.
	Sweep  float64 `json:"sweep_s"`
	Pinned bool    `json:"pinned"`

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
	Intervals []ChurnInterval `json:"intervals"`

	FirstP50MS  float64 `json:"first_p50_ms"`
	LastP50MS   float64 `json:"last_p50_ms"`
	FirstP99MS  float64 `json:"first_p99_ms"`
	LastP99MS   float64 `json:"last_p99_ms"`
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

	SizeAtStart int64 `json:"size_at_start_bytes"`
	SizePeak    int64 `json:"size_peak_bytes"`
	SizeAtEnd   int64 `json:"size_at_end_bytes"`

	Late *LateRow `json:"late_row,omitempty"`

	// RocksDB's calls per row consumed, in this contender's turns: all, in the first quarter and in the last. Nil elsewhere.
	RocksDB      *CallsPerJob `json:"rocksdb,omitempty"`
	FirstRocksDB *CallsPerJob `json:"first_rocksdb,omitempty"`
	LastRocksDB  *CallsPerJob `json:"last_rocksdb,omitempty"`
}

// ChurnInterval of a ChurnCurve.
type ChurnInterval struct {
	At            float64 `json:"at_s"` // when it ended
	RowsPerSecond float64 `json:"rows_per_second"`
	P50MS         float64 `json:"p50_ms"`
	P99MS         float64 `json:"p99_ms"`
	InsertP50MS   float64 `json:"insert_p50_ms"`
	SizeBytes     int64   `json:"size_bytes"` // at its end
}

// LateRow is the row whose transaction took long.
type LateRow struct {
	CommittedAt float64 `json:"committed_at_s"`
	Delivered   bool    `json:"delivered"`
	// After is how long after its commit it was consumed.
	After float64 `json:"delivered_after_s,omitempty"`
}

// DefaultChurn is measured unless flags say otherwise.
var DefaultChurn = ChurnConfig{Duration: time.Minute, Batch: 1_000, Margin: time.Minute, Late: 30 * time.Second}

// Validate refuses values that cannot be measured.
func (c ChurnConfig) Validate() error {
	switch {
	case c.Duration < 400*time.Millisecond:
		return errors.New("the duration must be at least 400ms")
	case badInterval(c.Interval, c.Duration):
		return fmt.Errorf("the interval must be at least 50ms and the %dth part of the duration, and at most all of it", maxIntervals)
	case c.Batch < 1 || c.Batch > 10_000:
		return errors.New("a batch has 1 to 10000 rows")
	case c.Margin < time.Millisecond:
		return errors.New("the margin must be at least 1ms")
	case c.Late >= c.Duration:
		return errors.New("the late row must commit before the duration is over")
	}
	return nil
}

// sweep is often enough to find the late row before the run ends.
func (c ChurnConfig) sweep() time.Duration {
	return max(10*time.Millisecond, min(time.Minute, (c.Duration-max(c.Late, 0))/4))
}

// warmUp is until the margin is full: each contender reads again what was consumed within it, which is
// nothing at first.
func (c ChurnConfig) warmUp() time.Duration {
	return max(c.Margin, min(warmUpFor, c.Duration/4))
}

// Churn inserts and consumes in turns: by hand as published, through Penstock from the
// same table, and through an outbox of Penstock's.
func Churn(ctx context.Context, cfg ChurnConfig) (result ChurnResult, err error) {
	if err := cfg.Validate(); err != nil {
		return result, err
	}
	cfg.Interval = cmp.Or(cfg.Interval, usualInterval(cfg.Duration))
	result = ChurnResult{
		Duration: cfg.Duration.Seconds(), WarmUp: cfg.warmUp().Seconds(), Batch: cfg.Batch, Margin: cfg.Margin.Seconds(), Late: max(cfg.Late, 0).Seconds(), Sweep: cfg.sweep().Seconds(),
		Pinned: cfg.Pin != nil,
	}
	release, err := pinned(ctx, cfg.Pin)
	if err != nil {
		return result, err
	}
	defer release()
	run := &churnRun{cfg: cfg}
	defer func() { err = errors.Join(err, run.remove(ctx)) }()
	for _, c := range []struct {
		curve *ChurnCurve
		add   func(context.Context) (*churner, error)
	}{{&result.ByHand, cfg.byHand}, {&result.Adopted, cfg.adoptedTable}, {&result.Outbox, cfg.ownOutbox}} {
		if c.curve == &result.Adopted && cfg.Plain != nil {
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
