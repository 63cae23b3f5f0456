package relay

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
)

// Messages that the filter does not choose are settled unsent, also behind parked ones.
func TestFilter(t *testing.T) {
	bad := &refuse{seq: 1}
	testParking(t, bad, func(t *testing.T, l *outbox, k *sink) {
		l.filtered = map[int64]bool{}
		for seq := int64(2); seq <= 120; seq += 2 {
			l.filtered[seq] = true
		}
		publish := func() {
			for i := range 60 {
				l.publish(penstock.Message{Key: []string{"a", "b", ""}[i/2%3], Topic: []string{"yes", "no"}[i%2]})
			}
		}
		publish()
		c := &Counters{}
		r, result := start(t, t.Context(), l, k, func(cfg *Options) {
			cfg.Filter, cfg.Observer = penstock.Filter{Topics: []string{"yes"}}, c
		})
		pass(time.Second)
		publish()
		pass(time.Second) // a poll of PollMax and an eighth, and SettleEvery
		if parked, _ := l.parkedMessages(); parked != 20 || l.cursor() != 120 {
			t.Errorf("parked %d, settled %d, want the chosen 20 of one key, and 120", parked, l.cursor())
		}
		k.letGo(bad)
		pass(time.Minute)
		finish(t, r, result, l, k)
		for _, m := range k.attempts {
			if m.Topic != "yes" {
				t.Fatalf("message %d was sent, though the filter does not choose it", m.Seq)
			}
		}
		if n := c.Delivered.Load(); n != 60 || k.delivered() != 60 {
			t.Errorf("delivered %d, counted %d, want 60", k.delivered(), n)
		}
	})
}

// A whole batch may be settled without a Send, and such batches may fill a window.
func TestFilterThatChoosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t}
		l.publishKeys(1000, "a", "b", "")
		r, result := start(t, t.Context(), l, k, func(c *Options) { c.Filter.Headers = map[string]string{"region": "eu"} })
		pass(5 * time.Second)
		if l.cursor() != 1000 || k.sent() != 0 {
			t.Errorf("settled %d of 1000 with %d Sends", l.cursor(), k.sent())
		}
		r.Drain()
		if err := <-result; err != nil {
			t.Error(err)
		}
	})
}

// A narrowed filter passes over parked messages and retried dead letters.
func TestFilterThatWasNarrowed(t *testing.T) {
	bad := &refuse{seq: 1}
	testParking(t, bad, func(t *testing.T, l *outbox, k *sink) {
		for range 3 {
			l.publish(penstock.Message{Key: "a", Topic: "no"})
		}
		r, result := start(t, t.Context(), l, k, nil)
		pass(time.Second)
		finish(t, r, result, l, k)
		if parked, _ := l.parkedMessages(); parked != 3 {
			t.Fatalf("parked %d, want 3", parked)
		}
		sent := k.sent()
		l.filtered = map[int64]bool{1: true, 2: true, 3: true}
		k.letGo(bad)
		r, result = start(t, t.Context(), l, k, func(cfg *Options) { cfg.Filter.Topics = []string{"yes"} })
		l.publish(penstock.Message{Key: "a", Topic: "yes"})
		pass(time.Minute)
		finish(t, r, result, l, k)
		if parked, _ := l.parkedMessages(); parked != 0 || k.sent() != sent+1 {
			t.Errorf("%d are parked and %d Sends were made, want one, of what the filter chooses", parked, k.sent()-sent)
		}
	})
}
