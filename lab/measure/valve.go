package measure

import (
	"context"
	"sync/atomic"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/readback"
)

// valve stands before a sink. While it is shut it refuses chosen messages with
// an error and lets the others through; what the sink confirms it enters into a
// ledger.
type valve struct {
	driver.Sink
	confirmed *ledger
	refuse    func(*penstock.Message) bool
	err       error
	shut      atomic.Bool
}

var _ driver.InOrderSink = (*valve)(nil)

// KeepsOrder is the sink's word: refuse chooses whole keys, so that the valve
// lets no message overtake a refused one of its key.
func (v *valve) KeepsOrder() bool {
	in, ok := v.Sink.(driver.InOrderSink)
	return ok && in.KeepsOrder()
}

// Send implements driver.Sink.
func (v *valve) Send(ctx context.Context, msgs []penstock.Message) []error {
	if v.shut.Load() {
		for i := range msgs {
			if v.refuse(&msgs[i]) {
				return v.sendSome(ctx, msgs)
			}
		}
	}
	errs := v.Sink.Send(ctx, msgs)
	v.confirmed.arrive(msgs, errs)
	return errs
}

// sendSome sends the messages that are not refused.
func (v *valve) sendSome(ctx context.Context, msgs []penstock.Message) []error {
	errs := make([]error, len(msgs))
	var pass []penstock.Message
	var from []int // where each of pass stands in msgs
	for i := range msgs {
		if v.refuse(&msgs[i]) {
			errs[i] = v.err
		} else {
			pass, from = append(pass, msgs[i]), append(from, i)
		}
	}
	if len(pass) == 0 {
		return errs
	}
	answer := v.Sink.Send(ctx, pass)
	v.confirmed.arrive(pass, answer)
	for i, err := range answer {
		errs[from[i]] = err
	}
	return errs
}

// check has the broker's consumer read everything that arrived, and compares it
// with the numbers below want that the valve's ledger counts. Where it cannot be read, the ledger
// itself has to do.
func (v *valve) check(ctx context.Context, q *queue, want int, when string) (Check, error) {
	if q.reader == nil {
		return v.confirmed.check("sink", want, when)
	}
	read := newLedger(v.confirmed.keys, v.confirmed.of)
	if err := q.readAll(ctx, func(a readback.Arrival) { read.arrived(a.Payload) }); err != nil {
		return Check{}, err
	}
	return read.check("consumer", want, when)
}
