package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// While renewals hang, Sends continue until the lease ends by the local clock. Then running ones
// are cancelled, and none begins before a renewal succeeds.
func TestNoSendAfterLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 15 * time.Second
		l, k := &outbox{}, &sink{t: t, before: slowly(70 * time.Millisecond)}
		l.sink = k
		// The first renewal is slow, and the lease counts from its start, five seconds after the opening.
		// The others hang.
		hang, renewals := newFlag(true), 0
		l.renewWait = func(ctx context.Context) {
			if renewals++; renewals == 1 {
				sleep(ctx, nil, 4*time.Second)
			} else if hang.Load() {
				<-ctx.Done()
			}
		}
		l.publishKeys(100_000, "a", "b", "c")
		opened := time.Now()
		r, result := start(t, t.Context(), l, k, func(c *Options) { c.Lease = lease })
		pass(time.Minute)
		k.mu.Lock()
		last := k.sends[len(k.sends)-1].at.Sub(opened)
		if end := lease + lease/3; last >= end || last < end-time.Second {
			t.Errorf("the last Send began %v after the lease was taken, want just before %v", last, end)
		}
		if k.running != 0 {
			t.Error("a Send is running without a lease")
		}
		before := len(k.sends)
		k.mu.Unlock()

		hang.Store(false)
		pass(lease)
		k.mu.Lock()
		if len(k.sends) == before {
			t.Error("no Send after the lease was renewed")
		}
		k.mu.Unlock()
		finish(t, r, result, l, k)
		if l.openings != 1 {
			t.Errorf("opened %d times; a lease that nobody took needs no new one", l.openings)
		}
		for _, m := range k.confirmed {
			if m.Attempt != 1 {
				t.Fatalf("message %d spent an attempt on the lease", m.Seq)
			}
		}
	})
}

// A process that was stopped for longer than the lease wakes up at any point in the code, before
// any of its timers has fired. For a sender that moment looks like this: the lease ended in the
// past and the session does not know it.
func TestNoSendAfterWakingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t}
		l.publishKeys(10, "a", "")
		cfg := config{store: l, sink: k, Options: Options{Logger: quiet()}}
		cfg.SetDefaults()
		source, _ := l.Subscribe(t.Context(), driver.Subscribe{})
		s := newSession(&cfg, cfg.Logger, source, nil)
		s.lease.extend(t.Context(), time.Now(), time.Now())
		b, _ := source.Fetch(t.Context(), driver.Limit{Messages: 10, Bytes: 1 << 20})
		s.enqueue(b)

		s.lapseTimer = time.AfterFunc(time.Hour, s.checkLease)
		defer s.lapseTimer.Stop()
		s.mu.Lock()
		valid := s.lease.until
		s.lease.until = time.Now()
		r := &run{}
		if s.take(r) {
			t.Errorf("a Send of %d messages was started without a lease", len(r.entries))
		}
		s.lease.until = valid
		if s.take(r) {
			t.Error("a Send was started after the lease had lapsed, before a renewal")
		}
		s.mu.Unlock()
		synctest.Wait() // the lapse is noted
		if len(s.renewNow) != 1 {
			t.Error("a renewal was not asked for")
		}
		s.extend(t.Context(), time.Now())
		s.mu.Lock()
		if !s.take(r) {
			t.Error("nothing is sent after the renewal")
		}
		s.mu.Unlock()
	})
}

func TestLease(t *testing.T) {
	now := time.Now()
	l := lease{length: time.Second, lapsed: true}
	if !l.extend(t.Context(), now, now) || !l.covers(now) {
		t.Fatal("taken")
	}
	if l.covers(now.Add(time.Second)) {
		t.Error("covers its own end")
	}
	// The wall clock moved while the monotonic one stood still: the machine slept.
	asleep := l
	asleep.wall = now.Add(-time.Hour).Round(0)
	if asleep.covers(now) {
		t.Error("covers a time that is past by the wall clock")
	}
	term := l.term
	if !l.lapse() || term.Err() == nil || l.lapse() {
		t.Error("a lapse ends the term, once")
	}
	// The answer to a renewal that began long ago extends nothing.
	later := now.Add(time.Hour)
	if l.extend(t.Context(), now.Add(time.Minute), later) || l.covers(later) {
		t.Error("extended by an old renewal")
	}
	if !l.extend(t.Context(), later, later) || l.term.Err() != nil {
		t.Error("a new term begins")
	}
	l.lapse()
}

// lostOnce is a fault that reports once that the source is lost.
func lostOnce(err error) func() error {
	said := false
	return func() error {
		if said {
			return nil
		}
		said = true
		return fmt.Errorf("fake: %w", err)
	}
}

func TestLostSessionIsDropped(t *testing.T) {
	for name, fence := range map[string]func(l *outbox){
		"by all":          func(l *outbox) { l.holder = nil },
		"by a renewal":    func(l *outbox) { l.renewErr = lostOnce(penstock.ErrFenced) },
		"by a settle":     func(l *outbox) { l.settleErr = lostOnce(penstock.ErrFenced) },
		"by a fetch":      func(l *outbox) { l.fetchErr = lostOnce(penstock.ErrFenced) },
		"with the outbox": func(l *outbox) { l.renewErr = lostOnce(penstock.ErrNoOutbox) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, k := &outbox{}, &sink{t: t}
				l.sink = k
				k.before = func(ctx context.Context, msgs []penstock.Message) {
					if msgs[0].Seq == 60 && l.read(&l.openings) == 1 {
						<-ctx.Done() // only the end of the session releases it
					}
				}
				l.maxFetch = func() int { return 5 }
				l.publishKeys(50, "", "b", "c")
				r, result := start(t, t.Context(), l, k, func(c *Options) { c.MaxBatch = 1 })
				pass(time.Second)
				// Two batches: one can be settled, and in the other a Send hangs.
				if name != "by a settle" {
					l.publishKeys(10, "", "b", "c")
					pass(100 * time.Millisecond)
				}
				l.mu.Lock()
				fence(l)
				l.mu.Unlock()
				if name == "by a settle" {
					l.publishKeys(10, "", "b", "c")
				}
				pass(20 * time.Second)
				if n := l.read(&l.openings); n != 2 {
					t.Errorf("opened %d times, want 2", n)
				}
				if l.cursor() != 60 {
					t.Errorf("settled %d of 60 under the new lease", l.cursor())
				}
				finish(t, r, result, l, k)
				checkOrder(t, l, k)
			})
		})
	}
}

// A relay on standby takes over within a second of the other's clean stop, and logs once which
// holder it waits for.
func TestStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t}
		held := newFlag(true)
		l.openErr = func() error {
			if held.Load() {
				return &penstock.HeldError{Subscription: "test", Holder: "other", Until: time.Now().Add(time.Hour)}
			}
			return nil
		}
		l.publishKeys(10, "a")
		var log strings.Builder
		r, result := start(t, t.Context(), l, k, func(c *Options) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		pass(time.Minute)
		if tries := l.read(&l.opens); tries < 60 || tries > 130 {
			t.Errorf("tried %d times in a minute", tries)
		}
		held.Store(false) // given back an hour before its end
		pass(time.Second + 100*time.Millisecond)
		if l.cursor() != 10 {
			t.Errorf("settled %d of 10 after the other gave up", l.cursor())
		}
		finish(t, r, result, l, k)
		if n := strings.Count(log.String(), standingBy); n != 1 {
			t.Errorf("said %d times that it stands by:\n%s", n, &log)
		}
	})
}

func TestDatabaseDownAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t}
		down := newFlag(true)
		l.openErr = func() error {
			if down.Load() {
				return errFlaky
			}
			return nil
		}
		l.publishKeys(10, "a")
		r, result := start(t, t.Context(), l, k, nil)
		pass(10 * time.Minute)
		if tries := l.read(&l.opens); tries < 40 || tries > 100 {
			t.Errorf("tried %d times in ten minutes", tries)
		}
		down.Store(false)
		pass(16 * time.Second)
		if l.cursor() != 10 {
			t.Errorf("settled %d of 10 after the database came up", l.cursor())
		}
		finish(t, r, result, l, k)
	})
}

// A subscription that cannot be opened for hours is logged once, each other reason too, and the end.
func TestAnOutageAtTheStartIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t}
		fails := func(err error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.openErr = func() error { return err }
		}
		fails(errFlaky)
		var log strings.Builder
		r, result := start(t, t.Context(), l, k, func(c *Options) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		pass(time.Hour)
		fails(errors.New("another"))
		pass(time.Hour)
		fails(nil)
		pass(time.Minute)
		for line, want := range map[string]int{"cannot open the subscription, and tries until it can": 2, "err=another": 1, "can open the subscription again": 1, "took the lease": 1} {
			if n := strings.Count(log.String(), line); n != want {
				t.Errorf("%q is there %d times, want %d:\n%s", line, n, want, log.String())
			}
		}
		finish(t, r, result, l, k)
	})
}
