package console

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/terminal"
)

const (
	charted  = 3 * time.Hour
	tabled   = 15 * time.Minute // a row of the table below charts
	brokenBy = 5                // minutes without a sample, or three times the usual: a line stops there
	smallBy  = 5 * time.Minute  // of the small lines
	shortest = 5 * time.Minute  // of a chart, while there are few samples
)

// sampled are the samples of all queues and subscriptions, and their trends by queue, or outbox/subscription.
type sampled struct {
	all    []admin.Samples
	trends map[string]Trend
}

// readSamples reads them at most twice a minute. Without a driver.SampleStore there are none.
func (c *Console) readSamples(ctx context.Context) (sampled, error) {
	store, ok := c.o.Store.(driver.SampleStore)
	if !ok {
		return sampled{}, nil
	}
	return c.samples.get(ctx, func() (s sampled, err error) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		s.all, err = store.Samples(ctx, charted)
		s.trends = map[string]Trend{}
		for _, one := range s.all {
			s.trends[subject(one.Queue, one.Outbox, one.Subscription)] = trendOf(one.Points, time.Now())
		}
		return s, err
	}, seldom)
}

// samplesOf are those of a queue, or of a subscription.
func (c *Console) samplesOf(ctx context.Context, r *call) (admin.Samples, error) {
	queue, outbox, subscription := r.PathValue("queue"), r.PathValue("outbox"), r.PathValue("subscription")
	s, err := c.readSamples(ctx)
	for _, one := range s.all {
		if one.Queue == queue && one.Outbox == outbox && one.Subscription == subscription {
			return one, err
		}
	}
	return admin.Samples{Queue: queue, Outbox: outbox, Subscription: subscription, Points: []admin.Sample{}}, err
}

// trends are those of all queues and subscriptions. Without them a page shows the rest.
func (c *Console) trends(ctx context.Context) map[string]Trend {
	s, err := c.readSamples(ctx)
	if err != nil {
		c.o.Logger.Warn("console: cannot read samples", "err", err)
	}
	return s.trends
}

func (c *Console) trend(ctx context.Context, name string) Trend {
	t := c.trends(ctx)[name]
	_, t.Kept = c.o.Store.(driver.SampleStore)
	return t
}

// Trend is the last hours of a queue or of a subscription.
type Trend struct {
	Kept   bool // the database keeps samples
	steps  []step
	from   time.Time // where charts begin
	span   time.Duration
	Latest *step
}

// Since is where the charts begin, if there are any.
func (t Trend) Since() string {
	if t.Latest == nil {
		return ""
	}
	return t.from.UTC().Format("15:04") + " UTC"
}

// step counts between two samples, and has the figures of the second.
type step struct {
	At              time.Time
	minutes         float64
	in, out, failed int64
	Dead            int64
	Oldest          time.Duration
	done            []admin.DoneSample
	broken          bool // no line leads here
}

func (s step) In() float64        { return float64(s.in) / s.minutes }
func (s step) InASecond() float64 { return s.In() / 60 }
func (s step) Out() float64       { return float64(s.out) / s.minutes }
func (s step) Failed() float64    { return float64(s.failed) / s.minutes }

// took is a part of the done jobs: of a kind, of a worker, or all.
func (s step) took(of, name string) (d admin.DoneSample) {
	for _, d := range s.done {
		if d.Of == of && d.Name == name {
			return d
		}
	}
	return d
}

func trendOf(points []admin.Sample, now time.Time) Trend {
	t := Trend{from: now.Add(-charted), span: charted}
	for i := 1; i < len(points); i++ {
		a, b := points[i-1], points[i]
		s := step{At: b.At, minutes: b.At.Sub(a.At).Minutes(), Dead: b.Dead, Oldest: b.OldestAge, done: b.Done}
		if s.minutes > 0 && b.At.After(t.from) {
			s.in, s.out, s.failed = max(b.In-a.In, 0), max(b.Out-a.Out, 0), max(b.Failed-a.Failed, 0)
			t.steps = append(t.steps, s)
		}
	}
	if len(t.steps) > 0 { // the lines of a young queue fill the chart
		if began := t.steps[0].At.Add(-time.Duration(t.steps[0].minutes * float64(time.Minute))); began.After(t.from) {
			t.span = max(now.Sub(began), shortest)
			t.from = now.Add(-t.span)
		}
	}
	usual := math.Inf(1)
	for _, s := range t.steps {
		usual = min(usual, s.minutes)
	}
	for i := range t.steps {
		t.steps[i].broken = i == 0 || t.steps[i].minutes > max(brokenBy, 3*usual)
	}
	if n := len(t.steps); n > 0 {
		t.Latest = &t.steps[n-1]
	}
	return t
}

// Chart is lines over the last hours, on one scale.
type Chart struct {
	Title, Top string
	Lines      []Line
}

// Line is a figure over the last hours: Path is of an SVG 360 wide and 80 high.
type Line struct{ Name, Class, Path, Last, Most string }

// Charts are those of a queue, or of a subscription, which has no failed attempts.
func (t Trend) Charts(failures bool) []Chart {
	perMinute := func(v float64) string { return plain(v) + " a minute" }
	charts := []Chart{t.chart("In and out", perMinute,
		figure{"in", "in", step.In}, figure{"out", "out", step.Out})}
	if failures {
		charts = append(charts, t.chart("Failed attempts", perMinute, figure{"failed", "failed", step.Failed}))
	}
	if slices.ContainsFunc(t.steps, func(s step) bool { return len(s.done) > 0 }) {
		for _, one := range []struct {
			title string
			of    func(admin.DoneSample) []float64
		}{{"First attempts began after", func(d admin.DoneSample) []float64 { return d.Wait }}, {"Done jobs ran for", func(d admin.DoneSample) []float64 { return d.Run }}} {
			at := func(n int) func(step) float64 {
				return func(s step) float64 {
					if p := one.of(s.took("", "")); len(p) > n {
						return p[n]
					}
					return math.NaN() // no job was done
				}
			}
			charts = append(charts, t.chart(one.title, millis, figure{"p50", "p50", at(0)}, figure{"p99", "p99", at(1)}))
		}
	}
	return append(charts,
		t.chart("Oldest waits for", func(v float64) string { return age(time.Duration(v * float64(time.Second))) }, figure{"oldest", "in", func(s step) float64 { return s.Oldest.Seconds() }}),
		t.chart("Dead letters", func(v float64) string {
			if v >= countedUpTo {
				return terminal.Count(countedUpTo) + "+"
			}
			return plain(v)
		}, figure{"dead letters", "failed", func(s step) float64 { return float64(s.Dead) }}))
}

type figure struct {
	name, class string
	of          func(step) float64
}

func (t Trend) chart(title string, text func(float64) string, figures ...figure) Chart {
	most := func(f figure) (most float64) {
		for _, s := range t.steps {
			if v := f.of(s); v > most { // NaN is not
				most = v
			}
		}
		return most
	}
	top := 0.0
	for _, f := range figures {
		top = max(top, most(f))
	}
	c := Chart{Title: title}
	if top > 0 {
		c.Top = text(top)
	}
	for _, f := range figures {
		last := "–"
		if v := f.of(*t.Latest); !math.IsNaN(v) {
			last = text(v)
		}
		c.Lines = append(c.Lines, Line{f.name, f.class, t.path(f.of, top, 360, 80), last, text(most(f))})
	}
	return c
}

// path is a line as an SVG path, with a gap where a figure is NaN. A lone point is a short line, also at the right edge.
func (t Trend) path(of func(step) float64, top, width, height float64) string {
	var out strings.Builder
	gap := true
	for _, s := range t.steps {
		v := of(s)
		if math.IsNaN(v) {
			gap = true
			continue
		}
		x := min(max(width*(s.At.Sub(t.from).Seconds()/t.span.Seconds()), 0), width)
		y := height - 1 - (height-2)*v/max(top, math.SmallestNonzeroFloat64)
		if gap || s.broken {
			fmt.Fprintf(&out, "M%.1f %.1fh2", min(x, width-2), y)
		} else {
			fmt.Fprintf(&out, "L%.1f %.1f", x, y)
		}
		gap = false
	}
	return out.String()
}

// Part is a kind or a worker of the last hours. Its figures are of the last minute in which it had a job, and the line is of its jobs a minute.
type Part struct {
	admin.DoneSample
	Small []Line
}

// Parts are the kinds and the workers that were among the most frequent at any time, up to 20.
func (t Trend) Parts() (parts []Part) {
	coarse := t.coarse()
	for _, s := range slices.Backward(t.steps) {
		for _, d := range s.done {
			if d.Of == "" || len(parts) == 20 || slices.ContainsFunc(parts, func(p Part) bool { return p.Of == d.Of && p.Name == d.Name }) {
				continue
			}
			rate := func(s step) float64 {
				return s.Out() * float64(s.took(d.Of, d.Name).Jobs) / float64(max(s.took("", "").Jobs, 1))
			}
			top := 0.0
			for _, s := range coarse.steps {
				top = max(top, rate(s))
			}
			parts = append(parts, Part{d, []Line{{Name: "done", Class: "out", Path: coarse.path(rate, top, 120, 24), Last: plain(rate(*t.Latest))}}})
		}
	}
	slices.SortFunc(parts, func(a, b Part) int { return cmp.Or(cmp.Compare(a.Of, b.Of), cmp.Compare(a.Name, b.Name)) })
	return parts
}

// coarse has fewer steps, for small lines.
func (t Trend) coarse() Trend {
	coarse := Trend{from: t.from, span: t.span}
	for _, s := range t.steps {
		n := len(coarse.steps)
		if n == 0 || s.broken || !coarse.steps[n-1].At.Truncate(smallBy).Equal(s.At.Truncate(smallBy)) {
			coarse.steps = append(coarse.steps, s)
			continue
		}
		c := &coarse.steps[n-1]
		c.At, c.minutes, c.in, c.out, c.failed = s.At, c.minutes+s.minutes, c.in+s.in, c.out+s.out, c.failed+s.failed
		if len(s.done) > 0 {
			c.done = s.done
		}
	}
	return coarse
}

// Small are the lines of In and Out, and of Failed if attempts failed, for a cell of a table: 120 wide and 24 high.
func (t Trend) Small() (lines []Line) {
	if t.Latest == nil {
		return nil
	}
	coarse, top := t.coarse(), 0.0
	failed := 0.0
	for _, s := range coarse.steps {
		top, failed = max(top, s.In(), s.Out(), s.Failed()), max(failed, s.Failed())
	}
	figures := []figure{{"in", "in", step.In}, {"out", "out", step.Out}}
	if failed > 0 {
		figures = append(figures, figure{"failed", "failed", step.Failed})
	}
	for _, f := range figures {
		lines = append(lines, Line{Name: f.name, Class: f.class, Path: coarse.path(f.of, top, 120, 24), Last: plain(f.of(*t.Latest))})
	}
	return lines
}

// Row is a quarter of an hour.
type Row struct {
	Until           time.Time
	In, Out, Failed int64
	Oldest          time.Duration
	Dead            int64
}

// Rows are the same figures as the charts, the latest first.
func (t Trend) Rows() (rows []Row) {
	for _, s := range t.steps {
		until := s.At.Truncate(tabled).Add(tabled)
		if n := len(rows); n == 0 || !rows[n-1].Until.Equal(until) {
			rows = append(rows, Row{Until: until})
		}
		r := &rows[len(rows)-1]
		r.In, r.Out, r.Failed = r.In+s.in, r.Out+s.out, r.Failed+s.failed
		r.Oldest, r.Dead = max(r.Oldest, s.Oldest), s.Dead
	}
	slices.Reverse(rows)
	return rows
}

// plain is a figure for people: small ones with a decimal.
func plain(v float64) string {
	if v > 0 && v < 10 && v != math.Trunc(v) {
		return fmt.Sprintf("%.1f", v)
	}
	return terminal.Count(int64(math.Round(v)))
}
