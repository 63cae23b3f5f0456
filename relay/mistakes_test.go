package relay

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
)

func TestArgumentsOfNew(t *testing.T) {
	store, sink := &outbox{}, discard(true)
	for field, wrong := range map[string]func() (*Relay, error){
		"store":        func() (*Relay, error) { return New(nil, "orders", "billing", sink, Options{}) },
		"sink":         func() (*Relay, error) { return New(store, "orders", "billing", nil, Options{}) },
		"subscription": func() (*Relay, error) { return New(store, "orders", "", sink, Options{}) },
		"holder": func() (*Relay, error) {
			return New(store, "orders", "billing", sink, Options{Holder: strings.Repeat("h", penstock.MaxHolderBytes+1)})
		},
		"lease": func() (*Relay, error) {
			return New(store, "orders", "billing", sink, Options{Limits: Limits{Lease: 15}}) // seconds were meant
		},
	} {
		_, err := wrong()
		var bad *penstock.FieldError
		if !errors.As(err, &bad) || bad.Field != field || bad.Hint == "" {
			t.Errorf("%s: error %v, want one that names it and the next step", field, err)
		}
	}
}

// Waiting does not help a relay whose store is closed.
func TestRunEndsOnAClosedStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for _, err := range []error{penstock.ErrClosed, &penstock.FieldError{Field: "subscription"}} {
			_, result := start(t, ctx, &outbox{openErr: func() error { return err }}, &sink{t: t}, nil)
			if got := <-result; !errors.Is(got, err) {
				t.Errorf("Run: %v, want %v", got, err)
			}
		}
	})
}

// wrapped is a sink that does something else with some messages.
type wrapped struct {
	*sink
	send func(msgs []penstock.Message) ([]error, bool)
}

func (w *wrapped) Send(ctx context.Context, msgs []penstock.Message) []error {
	if errs, does := w.send(msgs); does {
		return errs
	}
	return w.sink.Send(ctx, msgs)
}

type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

// One message on which the sink panics, or for which it returns a nil pointer as an error, becomes a dead letter. The others
// arrive, however often their retries meet it in a Send.
func TestSinkPanics(t *testing.T) {
	panics := func(*sink, []penstock.Message, int) []error { panic("no such field") }
	nils := func(k *sink, msgs []penstock.Message, bad int) []error {
		errs := make([]error, len(msgs))
		errs[bad] = (*nilError)(nil)
		copy(errs, k.Send(context.Background(), msgs[:bad]))
		copy(errs[bad+1:], k.Send(context.Background(), msgs[bad+1:]))
		return errs
	}
	for name, c := range map[string]struct {
		inOrder bool
		answer  func(k *sink, msgs []penstock.Message, bad int) []error
	}{"panic": {false, panics}, "panic of a sink that keeps order": {true, panics}, "nil": {false, nils}} {
		t.Run(name, func(t *testing.T) {
			for range 50 { // the delays of retries are random
				synctest.Test(t, func(t *testing.T) { sinkPanics(t, c.inOrder, c.answer) })
			}
		})
	}
}

func sinkPanics(t *testing.T, inOrder bool, answer func(*sink, []penstock.Message, int) []error) {
	l, k := &outbox{}, &sink{t: t, inOrder: inOrder}
	l.publishKeys(100, "a", "b", "", "c", "c")
	w := &wrapped{sink: k, send: func(msgs []penstock.Message) ([]error, bool) {
		for i, m := range msgs {
			if m.Seq == 40 {
				return answer(k, msgs, i), true
			}
		}
		return nil, false
	}}
	r, result := start(t, t.Context(), l, w, func(o *Options) { o.MaxAttempts, o.RetryMax = 3, time.Second })
	pass(time.Minute)
	r.Drain()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	if k.delivered() != 99 || l.settled != 100 || !l.died[40] {
		t.Fatalf("delivered %d, settled %d, dead %v; want 99, 100 and message 40", k.delivered(), l.settled, l.died)
	}
}

// A limit that is only an upper bound may be as high as there are numbers.
func TestHighestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k := &outbox{}, &sink{t: t}
		l.publishKeys(100, "a", "b", "")
		most := time.Duration(math.MaxInt64)
		r, result := start(t, t.Context(), l, k, func(o *Options) {
			o.Limits = Limits{Lease: most, MaxInFlight: math.MaxInt, MaxInFlightBytes: math.MaxInt, MaxBatch: math.MaxInt, PollMax: most, RetryMax: most, SendTimeout: most, DrainTimeout: most}
			o.MaxAttempts, o.MaxAge = math.MaxInt, most
		})
		pass(time.Second)
		finish(t, r, result, l, k)
		if k.delivered() != 100 {
			t.Errorf("delivered %d of 100", k.delivered())
		}
	})
}
