package console

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Latency is how long messages or jobs waited that ended between one sample and the next.
type Latency struct {
	At    time.Time `json:"at"`
	Count int64     `json:"count"`
	P50   float64   `json:"p50_seconds"`
	P99   float64   `json:"p99_seconds"`
}

const (
	latencyEvery  = 10 * time.Second
	latenciesKept = 360 // an hour of each
)

// latencies are samples of this process's histograms over time, by queue, or outbox/subscription.
type latencies struct {
	mu   sync.Mutex
	last map[string][]uint64
	of   map[string][]Latency
}

// Watch samples latencies until ctx ends. Without Options.Waits there are none.
func (c *Console) Watch(ctx context.Context) {
	if c.o.Waits == nil {
		return
	}
	registry := prometheus.NewRegistry()
	if err := registry.Register(c.o.Waits); err != nil {
		c.o.Logger.Error("console: cannot show latencies", "err", err)
		return
	}
	tick := time.NewTicker(c.o.WaitsEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			families, err := registry.Gather()
			if err != nil {
				c.o.Logger.Warn("console: cannot read latencies", "err", err)
				continue
			}
			c.latencies.add(now.UTC(), families)
		}
	}
}

func (l *latencies) add(now time.Time, families []*dto.MetricFamily) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, of := map[string][]uint64{}, map[string][]Latency{}
	for _, family := range families {
		for _, m := range family.Metric {
			labels := map[string]string{}
			for _, label := range m.Label {
				labels[label.GetName()] = label.GetValue()
			}
			name := subject(labels["queue"], labels["outbox"], labels["subscription"])
			bounds, counts := []float64{}, []uint64{}
			for _, bucket := range m.GetHistogram().GetBucket() {
				bounds, counts = append(bounds, bucket.GetUpperBound()), append(counts, bucket.GetCumulativeCount())
			}
			counts = append(counts, m.GetHistogram().GetSampleCount())
			since := slices.Clone(counts)
			for i, was := range l.last[name] {
				since[i] -= was
			}
			was := l.of[name]
			last[name] = counts
			of[name] = append(slices.Clone(was[max(0, len(was)-latenciesKept+1):]), Latency{now, int64(since[len(since)-1]), quantile(0.5, bounds, since), quantile(0.99, bounds, since)})
		}
	}
	l.last, l.of = last, of
}

// quantile estimates as Prometheus does: linearly within a bucket, and the highest bound above all of them. It is 0
// without samples.
func quantile(q float64, bounds []float64, cumulative []uint64) float64 {
	rank := q * float64(cumulative[len(cumulative)-1])
	below, from := 0.0, 0.0
	for i, bound := range bounds {
		n := float64(cumulative[i])
		if n >= rank && n > below {
			return from + (bound-from)*(rank-below)/(n-below)
		}
		below, from = n, bound
	}
	if rank == 0 || len(bounds) == 0 {
		return 0
	}
	return bounds[len(bounds)-1]
}

// latency is that of a queue, or of a subscription.
func (c *Console) latency(_ context.Context, r *call) (Waits, error) {
	return c.waits(subject(r.PathValue("queue"), r.PathValue("outbox"), r.PathValue("subscription"))), nil
}

// waits are the latencies of a queue, or of outbox/subscription.
func (c *Console) waits(name string) Waits {
	c.latencies.mu.Lock()
	defer c.latencies.mu.Unlock()
	found, here := c.latencies.of[name]
	return Waits{Known: c.o.Waits != nil, Here: here, Points: append([]Latency{}, found...)}
}

// Waits are latencies of the last hour, if this process knows them.
type Waits struct {
	Known  bool      `json:"known"` // this process relays or works
	Here   bool      `json:"here"`  // and does so for this one
	Points []Latency `json:"points"`
}

// Last is the latest sample with values.
func (w Waits) Last() *Latency {
	for i := len(w.Points) - 1; i >= 0; i-- {
		if w.Points[i].Count > 0 {
			return &w.Points[i]
		}
	}
	return nil
}

// Top is the longest p99.
func (w Waits) Top() float64 {
	top := 0.0
	for _, p := range w.Points {
		top = max(top, p.P99)
	}
	return top
}

// fewest is how many samples fill the width of a chart at least: ten minutes.
const fewest = 60

// Span says which time the curves show.
func (w Waits) Span() string {
	if n := len(w.Points); n < latenciesKept {
		return "Since " + w.Points[0].At.Format("15:04") + " UTC"
	}
	return "The last hour"
}

// Curve is a percentile as lines of an SVG path 360 wide and 60 high, from a tenth of a millisecond up, in powers of ten.
func (w Waits) Curve(p99 bool) string {
	var out strings.Builder
	const floor = 1e-4
	pen, wide := "M", 360/float64(max(len(w.Points), fewest))
	for i, p := range w.Points {
		v := p.P50
		if p99 {
			v = p.P99
		}
		if p.Count == 0 {
			pen = "M"
			continue
		}
		y := 60 - 58*math.Log10(max(v, floor)/floor)/math.Log10(max(w.Top(), 10*floor)/floor)
		fmt.Fprintf(&out, "%s%.1f %.1fh%.1f", pen, 360-wide*float64(len(w.Points)-i), y, wide)
		pen = "L"
	}
	return out.String()
}

// millis is a time for people.
func millis(seconds float64) string {
	switch ms := seconds * 1000; {
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 10_000:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return age(time.Duration(seconds * float64(time.Second)))
}
