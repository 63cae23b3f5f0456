package relay

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
)

// A rate holds in every window of its length, also over a lost lease and with messages that are refused. It spends no time: a
// message starts as soon as it may.
func TestRate(t *testing.T) {
	for name, inOrder := range map[string]bool{"in order": true, "one of a key at a time": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const jobs, burst, per, messages = 10, 5, time.Second, 200
				l, k := &outbox{}, &sink{t: t, inOrder: inOrder}
				l.sink = k
				refused := 0
				k.answer = func(m *penstock.Message) error {
					if m.Seq%10 == 1 && m.Attempt == 1 {
						refused++
						return errFlaky
					}
					return nil
				}
				l.publishKeys(messages, "a", "b", "c", "d", "e", "f", "g")
				r, result := start(t, t.Context(), l, k, func(c *Options) {
					c.Rate, c.MaxInFlight, c.ParkAfter = penstock.Rate{Jobs: jobs, Per: per, Burst: burst}, 50, 3
				})
				began := time.Now()
				pass(5 * time.Second)
				l.steal()
				for k.delivered() < messages {
					if time.Since(began) > time.Minute {
						t.Fatalf("%d of %d messages within a minute", k.delivered(), messages)
					}
					pass(10 * time.Millisecond)
				}
				took := time.Since(began)
				finish(t, r, result, l, k)
				if n := k.sends[0].n + k.sends[1].n; n < burst {
					t.Errorf("the first two Sends had %d messages, want the burst of %d", n, burst)
				}
				sent := 0
				for i, first := range k.sends {
					sent += first.n
					n := 0
					for _, s := range k.sends[i:] {
						if s.at.Sub(first.at) < per {
							n += s.n
						}
					}
					if n > jobs+burst-1 {
						t.Fatalf("%d messages in the %v from Send %d, want at most %d", n, per, i, jobs+burst-1)
					}
				}
				// A lost lease costs a second or two, in which a burst is saved, not more.
				if want := time.Duration(sent-burst) * per / jobs; took > want+2*per {
					t.Errorf("%d Sends took %v, want about %v (%d refused)", sent, took, want, refused)
				}
			})
		})
	}
}

// A rate without a burst sends one message at a time, however slow it is.
func TestSlowRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t}
		l.publishKeys(50, "a", "b", "")
		r, result := start(t, t.Context(), l, k, func(c *Options) { c.Rate = penstock.Rate{Jobs: 1, Per: time.Minute} })
		pass(10*time.Minute + 30*time.Second)
		if n := k.delivered(); n != 11 {
			t.Errorf("%d messages in ten and a half minutes, want 11", n)
		}
		finish(t, r, result, l, k)
	})
}
