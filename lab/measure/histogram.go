package measure

import (
	"math/bits"
	"time"
)

// Each power of two of nanoseconds has this many buckets, so a value is known to
// within 0.4 %.
const (
	bucketBits = 7
	buckets    = 1 << bucketBits
	octaves    = 40 // up to 39 hours
)

// histogram counts durations, in memory that does not grow with their number. The
// scheme is that of Gil Tene's HdrHistogram.
type histogram struct {
	count   [octaves * buckets]uint32
	total   int64
	sum     time.Duration
	longest time.Duration
}

func (h *histogram) add(d time.Duration) {
	h.count[bucket(d)]++
	h.total++
	h.sum += d
	h.longest = max(h.longest, d)
}

func (h *histogram) merge(o *histogram) {
	if o.total == 0 {
		return
	}
	for i, n := range o.count {
		h.count[i] += n
	}
	h.total += o.total
	h.sum += o.sum
	h.longest = max(h.longest, o.longest)
}

// meanMS is in milliseconds, 0 of nothing.
func (h *histogram) meanMS() float64 { return over(h.sum.Seconds()*1000, float64(h.total)) }

// quantileMS is in milliseconds, 0 of nothing.
func (h *histogram) quantileMS(q float64) float64 {
	if h.total == 0 {
		return 0
	}
	rank := int64(q * float64(h.total-1))
	for i, n := range h.count {
		if rank -= int64(n); rank < 0 {
			return min(middle(i), h.longest).Seconds() * 1000
		}
	}
	return h.longest.Seconds() * 1000
}

// bucket of a duration. Octave 0 holds those below 128 ns, one by one. Octave n holds those with 7
// + n bits, by the highest 8 of them, of which the first is always 1.
func bucket(d time.Duration) int {
	ns := uint64(max(d, 0))
	octave := max(0, bits.Len64(ns)-bucketBits)
	if octave == 0 {
		return int(ns)
	}
	return min(octave*buckets+int(ns>>(octave-1))-buckets, octaves*buckets-1)
}

// middle of a bucket.
func middle(i int) time.Duration {
	octave, at := i/buckets, i%buckets
	if octave == 0 {
		return time.Duration(at)
	}
	return time.Duration((2*(buckets+at) + 1) << (octave - 1) / 2)
}
