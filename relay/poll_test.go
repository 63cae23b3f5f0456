package relay

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
)

func TestWindowBoundsWhatIsFetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t, before: func(ctx context.Context, _ []penstock.Message) { <-ctx.Done() }}
		l.publishKeys(1000, "")
		r, result := start(t, t.Context(), l, k, nil)
		pass(30 * time.Second)
		if n := l.read(&l.fetched); n != 64 {
			t.Errorf("fetched %d, want the window of 64", n)
		}
		if n := l.read(&l.fetches); n != 4 {
			t.Errorf("%d fetches, want 4 of a quarter each", n)
		}
		finish(t, r, result, l, k)
		if k.maxRun != 4 {
			t.Errorf("%d Sends at once, want Senders = 4", k.maxRun)
		}
	})
}

func TestWindowBoundsBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 1 << 20
		release := make(chan struct{})
		l, k := &outbox{}, &sink{t: t, before: func(ctx context.Context, _ []penstock.Message) {
			select {
			case <-ctx.Done():
			case <-release:
			}
		}}
		const size = 30_000
		for i := range 200 {
			n := size
			if i == 100 {
				n = 5 * limit // alone larger than the window
			}
			l.publish(penstock.Message{Payload: make([]byte, n)})
		}
		most := 0
		r, result := start(t, t.Context(), l, k, func(c *Options) {
			c.MaxInFlight, c.MaxInFlightBytes = 100_000, limit
			c.Observer = &levels{inFlight: func(n int) { most = max(most, n) }}
		})
		pass(30 * time.Second)
		if bytes := l.read(&l.fetched) * size; bytes > limit+size || bytes < limit/2 {
			t.Errorf("fetched %d bytes into a window of %d", bytes, limit)
		}
		close(release)
		pass(time.Minute)
		if l.cursor() != 200 {
			t.Errorf("settled %d of 200", l.cursor())
		}
		finish(t, r, result, l, k)
		if most*size > limit+size {
			t.Errorf("%d messages in flight at once", most)
		}
	})
}

// levels is an Observer that notes how full the window is.
type levels struct {
	Counters
	inFlight func(int)
}

func (l *levels) InFlight(n int) { l.inFlight(n) }

func TestPollsFastWhileMessagesCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t}
		r, result := start(t, t.Context(), l, k, nil)
		pass(10 * time.Second)
		if idle := l.read(&l.fetches); idle < 150 || idle > 300 {
			t.Errorf("%d fetches in 10 s of silence, want about 20 a second", idle)
		}
		published := map[int64]time.Time{}
		slow := time.Now().Add(50 * time.Millisecond * 9 / 8) // the poll may pause this long after the silence: PollMax and an eighth
		var worst time.Duration
		k.answer = func(m *penstock.Message) error {
			if at := published[m.Seq]; at.After(slow) {
				worst = max(worst, time.Since(at))
			}
			return nil
		}
		for i := range 2000 {
			k.mu.Lock()
			published[int64(i+1)] = time.Now()
			k.mu.Unlock()
			l.publishKeys(1, "")
			time.Sleep(970 * time.Microsecond)
		}
		pass(time.Second)
		finish(t, r, result, l, k)
		if k.delivered() != 2000 || worst > 2*time.Millisecond {
			t.Errorf("delivered %d of 2000, the worst after %v", k.delivered(), worst)
		}
	})
}

// Relays that start together soon poll at different times.
func TestRelaysThatBeginTogetherSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &sink{t: t}
		var mu sync.Mutex
		at := map[time.Time]int{}
		var ends []func()
		for range 50 {
			l := &outbox{}
			l.fetchErr = func() error {
				mu.Lock()
				defer mu.Unlock()
				at[time.Now()]++
				return nil
			}
			r, result := start(t, t.Context(), l, k, func(c *Options) { c.PollMin, c.PollMax = time.Second, time.Second })
			ends = append(ends, func() { finish(t, r, result, l, k) })
		}
		pass(time.Minute)
		mu.Lock()
		clear(at)
		mu.Unlock()
		pass(2 * time.Second)
		for _, end := range ends {
			end()
		}
		if len(at) < 50 {
			t.Errorf("50 relays ask at %d moments", len(at))
		}
	})
}

func TestFetchErrorsBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t}
		down := newFlag(true)
		l.fetchErr = func() error {
			if down.Load() {
				return errFlaky
			}
			return nil
		}
		l.publishKeys(10, "a")
		r, result := start(t, t.Context(), l, k, nil)
		pass(5 * time.Minute)
		if n := l.read(&l.fetches); n > 150 {
			t.Errorf("%d fetches in five minutes of errors", n)
		}
		down.Store(false)
		pass(6 * time.Second)
		if l.cursor() != 10 {
			t.Errorf("settled %d of 10 after the errors", l.cursor())
		}
		finish(t, r, result, l, k)
	})
}

func TestMaintain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t}
		l.maintainErr = func() error { return errFlaky }
		r, result := start(t, t.Context(), l, k, nil)
		pass(time.Minute)
		if n := l.read(&l.maintained); n < 55 || n > 61 {
			t.Errorf("%d calls in a minute", n)
		}
		finish(t, r, result, l, k)
		before := l.read(&l.maintained)
		pass(time.Minute)
		if l.read(&l.maintained) != before {
			t.Error("housekeeping without the lease")
		}
	})
}
