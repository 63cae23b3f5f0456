package sinktest

import (
	"context"
	"sync"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// outageHeals: while the broker is away Send says so before its deadline, and
// when it is back the same sink works.
func outageHeals(e *env) {
	s := e.open()
	first := e.messages(5)
	e.mustSend(s, first)
	all := first
	for range 2 {
		e.Down()
		msgs := e.messages(5)
		ctx := e.patient()
		errs := s.Send(ctx, msgs)
		if ctx.Err() != nil {
			e.Errorf("with the broker away Send waits for its deadline instead of saying so")
		}
		e.wantUnavailable(msgs, errs)
		e.Up()
		e.heals(s, msgs)
		all = append(all, msgs...)
	}
	e.drainAll(all, false)
}

// openedWhileDown: Open does not need the broker.
func openedWhileDown(e *env) {
	e.Down()
	s, msgs := e.open(), e.messages(5)
	e.wantUnavailable(msgs, s.Send(e.patient(), msgs))
	e.Up()
	e.heals(s, msgs)
}

// heals sends as the relay does, again and again what is not confirmed yet,
// until everything is.
func (e *env) heals(s driver.Sink, msgs []penstock.Message) {
	e.Helper()
	ctx := e.patient()
	for {
		var rest []penstock.Message
		errs := e.check(msgs, s.Send(ctx, msgs))
		for i, err := range errs {
			if err == nil {
				continue
			}
			if !penstock.IsUnavailable(err) {
				e.Fatalf("after an outage: %q is not Unavailable", err)
			}
			rest = append(rest, msgs[i])
		}
		if len(rest) == 0 {
			return
		}
		msgs = rest
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			e.Fatalf("the broker is back and Send still fails: %v", firstError(errs))
		}
	}
}

// stallConfirmsNothing: nothing reaches the broker and nothing comes back, so
// nothing is confirmed when the time is up.
func stallConfirmsNothing(e *env) {
	s := e.open()
	e.mustSend(s, e.messages(1)) // connected
	e.Stall()
	msgs := e.messages(100)
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	e.wantUnavailable(msgs, s.Send(ctx, msgs))
	e.Down() // drops what was on its way
	e.Up()
	e.heals(s, e.messages(1))
}

// cutWhileSending: connections break while messages are under way. Whatever
// Send reports as confirmed is in the broker.
func cutWhileSending(e *env) {
	const senders, batch, cuts = 4, 50, 5
	s := e.open()
	e.mustSend(s, []penstock.Message{e.message("first")})
	var (
		mu       sync.Mutex
		sent     = map[string]bool{}
		attempts int
		running  sync.WaitGroup
		progress = make(chan struct{}, 1)
		stop     = make(chan struct{})
	)
	ctx := e.patient()
	for range senders {
		running.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				msgs := e.messages(batch)
				errs := e.check(msgs, s.Send(ctx, msgs))
				for _, err := range errs {
					if err != nil && !penstock.IsUnavailable(err) {
						e.Errorf("a cut connection: %q is not Unavailable", err)
						break
					}
				}
				mu.Lock()
				attempts += len(msgs)
				for _, m := range confirmed(msgs, errs) {
					sent[m.ID] = true
				}
				mu.Unlock()
				if firstError(errs) == nil {
					select {
					case progress <- struct{}{}:
					default:
					}
				}
			}
		})
	}
	for range cuts {
		for range senders { // a good batch or two, and into the middle of the next
			select {
			case <-progress:
			case <-ctx.Done():
				close(stop)
				running.Wait()
				e.Fatal("no batch is confirmed any more")
			}
		}
		e.Down()
		e.Up()
	}
	close(stop)
	running.Wait()

	e.Logf("%d messages, %d confirmed", attempts, len(sent))
	if !e.features.ReadBack {
		return
	}
	for _, r := range e.Drain(e.T, len(sent)) {
		delete(sent, r.ID)
	}
	if len(sent) > 0 {
		e.Errorf("%d messages were reported as sent and are not there", len(sent))
	}
}

// cancelIsPrompt: Send returns when its context ends, whatever the broker does.
func cancelIsPrompt(e *env) {
	s := e.open()
	e.mustSend(s, e.messages(1))
	e.Stall()
	ctx, cancel := context.WithCancel(context.Background())
	msgs := e.messages(2000)
	for i := range msgs {
		msgs[i].Payload = make([]byte, 16<<10) // more than the network's buffers hold
	}
	done := make(chan struct{})
	var errs []error
	go func() {
		defer close(done)
		errs = s.Send(ctx, msgs)
	}()
	time.AfterFunc(50*time.Millisecond, cancel)
	e.soon("Send after its context was cancelled", done)
	e.wantUnavailable(msgs, errs)
	e.Down()
	e.Up()
	e.heals(s, e.messages(1))
}

// endedContext: with no time at all, a message is confirmed or Unavailable.
func endedContext(e *env) {
	s := e.open()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	msgs := e.messages(3)
	for i, err := range e.check(msgs, s.Send(ctx, msgs)) {
		if err != nil && !penstock.IsUnavailable(err) {
			e.Errorf("message %d: %q is not Unavailable", i, err)
		}
	}
}

// survivesRestart: confirmed means durable.
func survivesRestart(e *env) {
	s, msgs := e.open(), e.messages(300)
	e.mustSend(s, msgs)
	e.Restart(e.T)
	more := e.messages(3)
	e.heals(s, more)
	e.drainAll(append(msgs, more...), true)
}
