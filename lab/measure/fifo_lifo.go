package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock"
)

// How a dequeuer of Penstock's makes its transaction.
const (
	ModeCall = "call" // one autocommitted call of dequeue_NAME
	ModeTx   = "tx"   // begin, dequeue_NAME, commit
)

// FifoLifoConfig is one run of fifo-lifo.
type FifoLifoConfig struct {
	Setup
	Order       penstock.QueueOrder `help:"fifo or lifo"`
	Mode        string              `help:"Penstock's transaction: call or tx; on plain tables call or carried"`
	Workers     int                 `help:"dequeuers" range:"1.."`
	Preload     int                 `help:"jobs there are at the start"`
	Rate        int                 `help:"jobs per second that arrive, 0 for as many as one connection can"`
	Arrivals    bool                `help:"false: no enqueuer, only the preload"`
	DequeueRate int                 `help:"jobs per second of all dequeuers together, 0 for as many as they can" range:"0.."`
	Duration    time.Duration       `help:"how long each queue is measured" range:"100ms.."`
	Payload     int                 `help:"bytes of each payload; there are none in the published run" range:"0..67108864"`
	Pin         bool                `help:"hold a REPEATABLE READ snapshot open throughout"`
	Alone       bool                `help:"only Penstock's queue, not the hand-written one"`
}

// FifoLifoResult has Penstock's figures at the top and the hand-written queue's
// in Baseline.
type FifoLifoResult struct {
	Curve
	Baseline Curve `json:"baseline"`
	// Ratio is Penstock's average throughput over the baseline's, RatioAtStart that of
	// the first intervals, and RatioToStart Penstock's average over the baseline's first
	// interval, when its table was new.
	Ratio        float64 `json:"ratio"`
	RatioAtStart float64 `json:"ratio_at_start"`
	RatioToStart float64 `json:"ratio_to_start"`
}

// Curve is how one queue went. First and last are the first and the last tenth of
// the run, without its first second.
type Curve struct {
	Intervals []Interval `json:"intervals"`

	FirstAndLast
	Flatness float64 `json:"flatness"` // LastP99MS over FirstP99MS

	Seconds       float64 `json:"seconds"` // until the time was up, or the queue empty
	Drained       bool    `json:"drained"` // it ended because the queue was empty
	JobsPerSecond float64 `json:"jobs_per_second"`
	Enqueued      int64   `json:"enqueued"`    // the preload included
	Dequeued      int64   `json:"dequeued"`    // by committed transactions
	Left          int64   `json:"left"`        // in the queue afterwards
	EmptyPolls    int64   `json:"empty_polls"` // that found nothing though there were jobs; not in any figure

	// Sizes with indexes; SegmentsTruncated of Penstock's ring while it ran.
	Sizes
	SegmentsTruncated int `json:"segments_truncated"`

	CPU     CPU          `json:"cpu"`               // while the workers ran
	RocksDB *CallsPerJob `json:"rocksdb,omitempty"` // per dequeue
}

// Interval of a curve.
type Interval struct {
	At        float64      `json:"at_s"` // when it ended
	PerSecond float64      `json:"per_second"`
	P50MS     float64      `json:"p50_ms"`
	P99MS     float64      `json:"p99_ms"`
	SizeBytes int64        `json:"size_bytes,omitempty"` // at its end
	RocksDB   *CallsPerJob `json:"rocksdb,omitempty"`
}

// FirstAndLast are latencies of the first and the last part of a run.
type FirstAndLast struct {
	FirstP50MS float64 `json:"first_p50_ms"`
	LastP50MS  float64 `json:"last_p50_ms"`
	FirstP99MS float64 `json:"first_p99_ms"`
	LastP99MS  float64 `json:"last_p99_ms"`
}

func firstAndLast(first, last histogram) FirstAndLast {
	return FirstAndLast{first.quantileMS(0.5), last.quantileMS(0.5), first.quantileMS(0.99), last.quantileMS(0.99)}
}

// Sizes of tables with their indexes.
type Sizes struct {
	SizeAtStart int64 `json:"size_at_start_bytes"`
	SizePeak    int64 `json:"size_peak_bytes"`
	SizeAtEnd   int64 `json:"size_at_end_bytes"`
}

// Line is how one side of a comparison went, for a chart.
type Line struct {
	Name      string
	Intervals []Interval
}

// Lines are the curves of both queues.
func (r FifoLifoResult) Lines() []Line {
	lines := []Line{{"Penstock", r.Intervals}}
	if len(r.Baseline.Intervals) > 0 {
		lines = append(lines, Line{"hand-written table", r.Baseline.Intervals})
	}
	return lines
}

// intervals is how many a run is divided into, with ten slices each, to have tenths of a run that ended early.
const intervals = 20

// DefaultFifoLifo is measured unless flags say otherwise.
var DefaultFifoLifo = FifoLifoConfig{
	Order: penstock.FIFO, Mode: ModeCall, Workers: 10, Preload: 1_000_000, Rate: 100, Arrivals: true, Duration: time.Minute,
}

// Validate refuses values that cannot be measured.
func (c *FifoLifoConfig) Validate() error {
	switch {
	case c.Order != penstock.FIFO && c.Order != penstock.LIFO:
		return fmt.Errorf("the order is %q, expected fifo or lifo", c.Order)
	case c.Mode != ModeCall && c.Mode != ModeTx && c.Mode != ModeCarried:
		return fmt.Errorf("the mode is %q, expected call, tx or carried", c.Mode)
	case c.Rate < 0:
		return fmt.Errorf("--rate is %d, expected 0 (unlimited) or more; for no arrivals there is --arrivals=false", c.Rate)
	case c.Preload < 1 && !c.Arrivals:
		return errors.New("there would be no jobs: ask for a preload or for arrivals")
	}
	return nil
}

// FifoLifo lets dequeuers compete for one job at a time: first those of Penstock,
// then those of the hand-written queue, each for as long and from a fresh preload.
func FifoLifo(ctx context.Context, cfg FifoLifoConfig) (result FifoLifoResult, err error) {
	if cfg.Mode == ModeCarried && cfg.plain() == nil {
		return result, errors.New("--mode carried is for plain tables: add --profile portable, or leave it out")
	}
	release, err := cfg.pinned(ctx, cfg.Pin)
	if err != nil {
		return result, err
	}
	defer release()
	if result.Curve, err = cfg.measure(ctx, penstockQueue(cfg.Setup, cfg.Order, cfg.Mode)); err != nil {
		return result, err
	}
	if cfg.Alone {
		return result, nil
	}
	if result.Baseline, err = cfg.measure(ctx, jobQueue(cfg.Setup, cfg.Order)); err != nil {
		return result, err
	}
	result.Ratio = over(result.JobsPerSecond, result.Baseline.JobsPerSecond)
	if len(result.Intervals) > 0 && len(result.Baseline.Intervals) > 0 {
		first := result.Baseline.Intervals[0].PerSecond
		result.RatioAtStart, result.RatioToStart = over(result.Intervals[0].PerSecond, first), over(result.JobsPerSecond, first)
	}
	return result, nil
}
