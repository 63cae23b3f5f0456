package sinktest

import (
	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// badFailsAlone: a message that can never be sent fails permanently, and nothing around it does.
func badFailsAlone(e *env) {
	s := e.open()
	for _, bad := range e.Bad {
		e.failsAlone(s, bad.Name, bad.Message, func(err error) {
			if !penstock.IsPermanent(err) {
				e.Errorf("%s: %q is not Permanent: the relay would try it again and again", bad.Name, err)
			}
		})
	}
}

func onlyBad(e *env) {
	s := e.open()
	for _, bad := range e.Bad {
		msgs := []penstock.Message{bad.Message}
		if errs := e.check(msgs, s.Send(e.patient(), msgs)); errs == nil || errs[0] == nil {
			e.Errorf("%s was confirmed", bad.Name)
		}
	}
	e.mustSend(s, e.messages(3)) // and the sink is none the worse for it
}

// unroutableFails: the broker takes the message and drops it; that is not
// delivery. It is worth another attempt: someone may bind a queue.
func unroutableFails(e *env) {
	s := e.open()
	e.failsAlone(s, "unroutable", *e.Unroutable, func(err error) {
		if penstock.IsPermanent(err) {
			e.Errorf("%q is Permanent; a route may appear", err)
		}
	})
	msgs := []penstock.Message{*e.Unroutable, *e.Unroutable}
	errs := e.check(msgs, s.Send(e.patient(), msgs))
	if errs == nil || errs[0] == nil || errs[1] == nil {
		e.Errorf("the same unroutable message twice in one Send: %v", errs)
	}
}

// failsAlone sends the message first, last and in the middle of good ones.
func (e *env) failsAlone(s driver.Sink, name string, bad penstock.Message, want func(error)) {
	e.Helper()
	for _, at := range []int{0, 10, 20} {
		good := e.messages(20)
		msgs := append(append(append([]penstock.Message(nil), good[:at]...), bad), good[at:]...)
		errs := e.check(msgs, s.Send(e.patient(), msgs))
		if errs == nil || errs[at] == nil {
			e.Errorf("%s at %d was confirmed", name, at)
			continue
		}
		if penstock.IsUnavailable(errs[at]) {
			e.Errorf("%s at %d: %q is Unavailable; it is about the message", name, at, errs[at])
		}
		want(errs[at])

		// Those around it are confirmed, if not at once then when the relay
		// tries again, and their error says that it is not about them.
		for attempt := 0; ; attempt++ {
			var rest []penstock.Message
			for i, err := range errs {
				if err == nil || msgs[i].ID == bad.ID {
					continue
				}
				if penstock.IsPermanent(err) {
					e.Fatalf("%s at %d: its neighbour %d failed for good: %v", name, at, i, err)
				}
				rest = append(rest, msgs[i])
			}
			if len(rest) == 0 {
				break
			}
			if attempt == 3 {
				e.Fatalf("%s at %d: %d neighbours still fail without it: %v", name, at, len(rest), firstError(errs))
			}
			msgs = rest
			errs = e.check(msgs, s.Send(e.patient(), msgs))
		}
		e.drainAll(good, true)
	}
}
