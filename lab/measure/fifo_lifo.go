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
	Database
	// Pin holds a snapshot from before the first job on. Nil: do not.
	Pin func(ctx context.Context) (release func(), err error)

	Order        penstock.QueueOrder
	Mode         string        // ModeCall or ModeTx
	Workers      int           // dequeuers
	Preload      int           // jobs before the start
	Rate         int           // jobs/s that arrive; 0: as fast as one connection can, negative: none
	DequeueRate  int           // jobs/s of all dequeuers together; 0: as fast as they can
	Duration     time.Duration // of each queue
	Interval     time.Duration // 0: Duration/20
	PayloadBytes int
}

// FifoLifoResult has Penstock's figures at the top and the hand-written queue's
// in Baseline.
type FifoLifoResult struct {
	Order        penstock.QueueOrder `json:"order"`
	Mode         string              `json:"mode"`
	Workers      int                 `json:"workers"`
	Preload      int                 `json:"preload"`
	Rate         int                 `json:"rate"` // 0: unlimited, -1: no arrivals
	DequeueRate  int                 `json:"dequeue_rate"`
	PayloadBytes int                 `json:"payload_bytes"`
	Pinned       bool                `json:"pinned"`

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

	FirstP50MS float64 `json:"first_p50_ms"`
	LastP50MS  float64 `json:"last_p50_ms"`
	FirstP99MS float64 `json:"first_p99_ms"`
	LastP99MS  float64 `json:"last_p99_ms"`
	Flatness   float64 `json:"flatness"` // LastP99MS over FirstP99MS

	Seconds       float64 `json:"seconds"` // until the time was up, or the queue empty
	Drained       bool    `json:"drained"` // it ended because the queue was empty
	JobsPerSecond float64 `json:"jobs_per_second"`
	Enqueued      int64   `json:"enqueued"`    // the preload included
	Dequeued      int64   `json:"dequeued"`    // by committed transactions
	Left          int64   `json:"left"`        // in the queue afterwards
	EmptyPolls    int64   `json:"empty_polls"` // that found nothing though there were jobs; not in any figure

	// Sizes with indexes; SegmentsTruncated of Penstock's ring while it ran.
	SizeAtStart       int64 `json:"size_at_start_bytes"`
	SizePeak          int64 `json:"size_peak_bytes"`
	SizeAtEnd         int64 `json:"size_at_end_bytes"`
	SegmentsTruncated int   `json:"segments_truncated"`

	CPU CPU `json:"cpu"` // while the workers ran

	// RocksDB's calls per dequeue; nil elsewhere.
	RocksDB *CallsPerJob `json:"rocksdb,omitempty"`
}

// Interval of a Curve.
type Interval struct {
	At            float64 `json:"at_s"` // when it ended
	JobsPerSecond float64 `json:"jobs_per_second"`
	P50MS         float64 `json:"p50_ms"`
	P99MS         float64 `json:"p99_ms"`
	SizeBytes     int64   `json:"size_bytes"` // at its end

	RocksDB *CallsPerJob `json:"rocksdb,omitempty"`
}

// maxIntervals bounds the memory that a curve takes.
const maxIntervals = 2000

const shortestInterval = 50 * time.Millisecond

func usualInterval(duration time.Duration) time.Duration { return max(duration/20, shortestInterval) }

// badInterval is true of those that a curve cannot have; 0 is the usual one.
func badInterval(interval, duration time.Duration) bool {
	return interval != 0 && (interval < max(duration/maxIntervals, shortestInterval) || interval > duration)
}

// DefaultFifoLifo is measured unless flags say otherwise.
var DefaultFifoLifo = FifoLifoConfig{
	Order: penstock.FIFO, Mode: ModeCall, Workers: 10, Preload: 1_000_000, Rate: 100, Duration: time.Minute,
}

// Validate refuses values that cannot be measured.
func (c FifoLifoConfig) Validate() error {
	switch {
	case c.Order != penstock.FIFO && c.Order != penstock.LIFO:
		return fmt.Errorf("the order is %q, expected fifo or lifo", c.Order)
	case c.Mode != ModeCall && c.Mode != ModeTx:
		return fmt.Errorf("the mode is %q, expected call or tx", c.Mode)
	case c.Workers < 1 || c.DequeueRate < 0:
		return errors.New("it takes at least one worker, and a dequeue rate of 0 (unlimited) or more")
	case c.Preload < 1 && c.Rate < 0:
		return errors.New("there would be no jobs: ask for a preload or for arrivals")
	case c.Duration < 100*time.Millisecond:
		return errors.New("the duration must be at least 100ms")
	case badInterval(c.Interval, c.Duration):
		return fmt.Errorf("the interval must be at least 50ms and the %dth part of the duration, and at most all of it", maxIntervals)
	case c.PayloadBytes < 0 || c.PayloadBytes > penstock.MaxPayloadBytes:
		return fmt.Errorf("the payload must have 0 to %d bytes", penstock.MaxPayloadBytes)
	}
	return nil
}

// FifoLifo lets dequeuers compete for one job at a time: first those of Penstock,
// then those of the hand-written queue, each for as long and from a fresh preload.
func FifoLifo(ctx context.Context, cfg FifoLifoConfig) (result FifoLifoResult, err error) {
	if err := cfg.Validate(); err != nil {
		return result, err
	}
	result = FifoLifoResult{
		Order: cfg.Order, Mode: cfg.Mode, Workers: cfg.Workers, Preload: cfg.Preload, Rate: max(cfg.Rate, -1),
		DequeueRate: cfg.DequeueRate, PayloadBytes: cfg.PayloadBytes, Pinned: cfg.Pin != nil,
	}
	release, err := pinned(ctx, cfg.Pin)
	if err != nil {
		return result, err
	}
	defer release()
	if result.Curve, err = cfg.measure(ctx, penstockQueue(cfg.Database, cfg.Order, cfg.Mode)); err != nil {
		return result, err
	}
	if result.Baseline, err = cfg.measure(ctx, jobQueue(cfg.Database, cfg.Order)); err != nil {
		return result, err
	}
	result.Ratio = over(result.JobsPerSecond, result.Baseline.JobsPerSecond)
	if len(result.Intervals) > 0 && len(result.Baseline.Intervals) > 0 {
		first := result.Baseline.Intervals[0].JobsPerSecond
		result.RatioAtStart, result.RatioToStart = over(result.Intervals[0].JobsPerSecond, first), over(result.JobsPerSecond, first)
	}
	return result, nil
}
