package sinktest

import (
	"context"
	"errors"
	"sync"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

func closeTwice(e *env) {
	s := e.open()
	e.mustSend(s, e.messages(1))
	for range 2 {
		if err := s.Close(e.patient()); err != nil {
			e.Errorf("Close: %v", err)
		}
	}
	e.wantClosed(s)

	unused := e.open()
	if err := unused.Close(e.patient()); err != nil {
		e.Errorf("Close of a sink that was never used: %v", err)
	}
	e.wantClosed(unused)
}

func (e *env) wantClosed(s driver.Sink) {
	e.Helper()
	msgs := e.messages(2)
	errs := s.Send(e.patient(), msgs)
	e.wantUnavailable(msgs, errs)
	for _, err := range errs {
		if !errors.Is(err, penstock.ErrClosed) {
			e.Errorf("Send after Close: %q is not ErrClosed", err)
		}
	}
}

// closeWaits: Send is called from several goroutines at once, and Close after some of these calls. A Send that runs
// then ends in its own time; its report is true.
func closeWaits(e *env) {
	const senders, sends, batch = 8, 5, 30
	s := e.open()
	ctx := e.patient()
	var (
		mu      sync.Mutex
		sent    []penstock.Message
		running sync.WaitGroup
		started = make(chan struct{}, 2*senders)
	)
	for range senders {
		running.Go(func() {
			for n := 1; ; n++ {
				msgs := e.messages(batch)
				for i := range msgs { // together more than fits into buffers on the way
					msgs[i].Payload = append(msgs[i].Payload, make([]byte, 4<<10)...)
				}
				errs := e.check(msgs, s.Send(ctx, msgs))
				err := firstError(errs)
				mu.Lock()
				sent = append(sent, confirmed(msgs, errs)...)
				mu.Unlock()
				if n == sends || err != nil {
					started <- struct{}{}
				}
				if err != nil {
					if !errors.Is(err, penstock.ErrClosed) || !penstock.IsUnavailable(err) {
						e.Errorf("Send during Close: %q, want ErrClosed, Unavailable", err)
					}
					return
				}
			}
		})
	}
	for range senders {
		<-started
	}
	if err := s.Close(ctx); err != nil {
		e.Errorf("Close: %v", err)
	}
	running.Wait()
	e.drainAll(sent, false)
}

// closeGivesUp: when its context ends, Close stops waiting, and the Send it
// waited for ends too.
func closeGivesUp(e *env) {
	s := e.Open(e.T, e.log)
	e.mustSend(s, e.messages(1))
	e.Stall()
	msgs := e.messages(10)
	sendDone, closeDone := make(chan struct{}), make(chan struct{})
	var errs []error
	sending := watch(e.patient())
	go func() {
		defer close(sendDone)
		errs = s.Send(sending, msgs)
	}()
	e.soon("Send", sending.looked)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	closing := watch(ctx)
	go func() {
		defer close(closeDone)
		_ = s.Close(closing) // may well report that it did not wait to the end
	}()
	e.soon("Close", closing.looked)
	cancel()
	e.soon("Close after its context ended", closeDone)
	e.soon("Send after Close gave up waiting for it", sendDone)
	e.wantUnavailable(msgs, errs)
	if err := s.Close(e.patient()); err != nil {
		e.Errorf("the second Close: %v", err)
	}
}

// secretsStaySecret: no error and no log line shows them. That the errors of
// all other tests do not either is checked along the way.
func secretsStaySecret(e *env) {
	msgs := e.messages(2)
	denied := e.closeAtEnd(e.OpenDenied(e.T, e.log))
	e.wantUnavailable(msgs, denied.Send(e.patient(), msgs))
	if e.features.Network {
		s := e.open()
		e.Down()
		e.wantUnavailable(msgs, s.Send(e.patient(), msgs))
		e.Up()
	}
}
