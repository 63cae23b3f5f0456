package measure

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// histogram counts durations up to an hour, each to a tenth of a percent, in memory that does not grow with their number.
type histogram struct{ *hdrhistogram.Histogram }

func newHistogram() histogram { return histogram{hdrhistogram.New(1, int64(time.Hour), 3)} }

func (h histogram) add(d time.Duration) { _ = h.RecordValue(int64(min(d, time.Hour))) }

// meanMS is in milliseconds, 0 of nothing.
func (h histogram) meanMS() float64 { return h.Mean() / 1e6 }

// quantileMS is in milliseconds, 0 of nothing.
func (h histogram) quantileMS(q float64) float64 { return float64(h.ValueAtQuantile(100*q)) / 1e6 }
