package measure

import (
	"testing"
	"time"

	"github.com/penstock/penstock/driver"
)

// Both drains are of everything, the observed ones have been scraped, and their sampled spans have arrived.
func TestOverhead(t *testing.T) {
	s := small(t, "discard:")
	r, err := MeasureOverhead(t.Context(), with(DefaultOverhead, func(c *OverheadConfig) {
		c.Setup, c.Messages, c.Jobs, c.Repeat, c.Sampled, c.ScrapeEvery = s, 3000, 3000, 2, 10, time.Millisecond
	}))
	if err != nil {
		t.Fatal(err)
	}
	_, queues := s.Store.(driver.QueueStore)
	for _, o := range []*Overhead{&r.Relay, r.Work} {
		if o == nil && !queues {
			continue
		}
		if o == nil || o.Alone <= 0 || o.Observed <= 0 || o.Ratio <= 0 || len(o.Ratios) != 2 {
			t.Errorf("%+v", o)
		}
	}
	if _, keeps := s.Store.(driver.HistoryStore); keeps != (r.History != nil) {
		t.Errorf("history is measured: %v", r.History != nil)
	} else if keeps && (r.History.Alone <= 0 || r.History.Observed <= 0) {
		t.Errorf("%+v", r.History)
	}
	// 300 of each backlog are sampled, and a span takes more than a hundred bytes.
	if r.Spans.Scrapes < 2 || r.Spans.TraceBytes < 2*300*100 {
		t.Errorf("%+v", r.Spans)
	}
	checkOutboxesGone(t, s)
}
