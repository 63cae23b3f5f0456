package console

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock/admin"
)

// history is how much waited at the last samples, by queue or subscription.
type history struct {
	mu        sync.Mutex
	of        map[string][]float64
	at        time.Time // of the last sample
	published map[string]int64
}

const looksKept = 120

func (h *history) add(s *Status) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, published := map[string][]float64{}, map[string]int64{}
	at := time.Now()
	since := at.Sub(h.at).Seconds()
	note := func(name string, n int64) {
		was := h.of[name]
		now[name] = append(slices.Clone(was[max(0, len(was)-looksKept+1):]), float64(n))
	}
	for _, o := range s.Outboxes {
		published[o.Outbox] = o.Published
		if before, is := h.published[o.Outbox]; is && since > 0 && o.Published >= before {
			note("in "+o.Outbox, int64(float64(o.Published-before)/since))
		}
		for _, sub := range o.Subscriptions {
			note("rate "+o.Outbox+"/"+sub.Subscription, int64(sub.Rate))
			note(o.Outbox+"/"+sub.Subscription, sub.Backlog)
		}
	}
	for _, q := range s.Queues {
		note(q.Queue, q.Ready)
	}
	h.of, h.at, h.published = now, at, published
}

func (h *history) all() map[string][]float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.of // add makes another
}

// latest is the last sample, or an en dash.
func latest(values []float64) string {
	if len(values) == 0 {
		return "–"
	}
	return strconv.FormatFloat(values[len(values)-1], 'f', 0, 64) + "/s"
}

// spark is a line through the last samples, as the points of an SVG polyline 120 wide and 24 high.
func spark(values []float64) string {
	if len(values) < 2 || slices.Max(values) == 0 {
		return ""
	}
	top := max(slices.Max(values), 1)
	var points strings.Builder
	for i, v := range values {
		fmt.Fprintf(&points, "%.1f,%.1f ", float64(i)*120/float64(looksKept-1), 23-22*v/top)
	}
	return points.String()
}

// segment is a segment of a ring as a picture: 100 is the largest height.
type segment struct {
	admin.SegmentStatus
	X, Y, Height int
	State        string
}

func ring(segments []admin.SegmentStatus) (all []segment) {
	largest := int64(1)
	for _, s := range segments {
		largest = max(largest, s.Bytes)
	}
	for i, s := range segments {
		one := segment{SegmentStatus: s, X: i * 20, Height: max(int(s.Bytes*60/largest), 2), State: "sealed"}
		switch {
		case s.Current:
			one.State = "current"
		case s.Bytes <= 64<<10:
			one.State = "free"
		}
		one.Y = 62 - one.Height
		all = append(all, one)
	}
	return all
}

func age(d time.Duration) string {
	switch {
	case d <= 0:
		return "–"
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	case d < time.Hour:
		return strconv.Itoa(int(d.Minutes())) + " min"
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return strconv.Itoa(int(d.Hours()/24)) + " days"
}

// pretty indents JSON, and leaves other text as it is.
func pretty(text string) string {
	var out bytes.Buffer
	if json.Indent(&out, []byte(text), "", "  ") == nil {
		return out.String()
	}
	return text
}

// hexDump shows bytes that are not text, a readable amount of them.
func hexDump(b []byte) string { return hex.Dump(b[:min(len(b), 1024)]) }
