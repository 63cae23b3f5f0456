package storetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

// plenty is a limit that no test reaches by accident.
var plenty = driver.Limit{Messages: 1000, Bytes: 16 << 20}

// reader is a Source that fails the test, and checks on every Fetch what holds
// for any batch.
type reader struct {
	e *env
	driver.Source
	store  driver.Store
	req    driver.Subscribe
	number uint64
}

// request fills in what the test does not care about. Every holder is another.
func (e *env) request(req driver.Subscribe) driver.Subscribe {
	if req.Outbox == "" {
		req.Outbox = outbox
	}
	if req.Subscription == "" {
		req.Subscription = "sub"
	}
	if req.Holder == "" {
		e.holders++
		req.Holder = fmt.Sprintf("holder-%d", e.holders)
	}
	if req.Lease == 0 {
		req.Lease = suite.LongLease
	}
	return req
}

// subscribe takes a lease that must be free.
func (e *env) subscribe(req driver.Subscribe) *reader {
	return e.subscribeOn(e.Store, req)
}

func (e *env) subscribeOn(s driver.Store, req driver.Subscribe) *reader {
	req = e.request(req)
	src := suite.Get(s.Subscribe(e.ctx, req)).Must(e, "Subscribe")
	return e.reader(s, req, src)
}

func (e *env) reader(s driver.Store, req driver.Subscribe, src driver.Source) *reader {
	return &reader{e: e, Source: src, store: s, req: req}
}

// read is subscribe to the default subscription.
func (e *env) read() *reader {
	return e.subscribe(driver.Subscribe{})
}

// takeOver subscribes as soon as the lease of the present holder has expired.
func (e *env) takeOver(s driver.Store, req driver.Subscribe) *reader {
	req = e.request(req)
	var src driver.Source
	e.Eventually("the lease expired", func() bool {
		var err error
		if src, err = s.Subscribe(e.ctx, req); err == nil {
			return true
		}
		e.MustBe(err, penstock.ErrHeld, "Subscribe while the lease runs")
		return false
	})
	return e.reader(s, req, src)
}

// mortalReader is a reader whose lease ends, and that has done something before. A store may refuse one whose lease
// has ended: then it begins anew, with a lease that is longer, until that is long enough for this machine.
func (e *env) mortalReader(does func(*reader) error) *reader {
	for lease := suite.ShortLease; ; lease *= 2 {
		r := e.takeOver(e.Store, driver.Subscribe{Lease: lease})
		err := does(r)
		if err == nil {
			return r
		}
		e.MustBe(err, penstock.ErrFenced, "what a reader does before its lease ends")
	}
}

// fetch returns one batch, maybe an empty one.
func (r *reader) fetch(limit driver.Limit) driver.Batch {
	b, err := r.Fetch(r.e.ctx, limit)
	r.e.Must(err, "Fetch")
	if b.Rewound {
		r.e.Fatal("Fetch: the batch is Rewound, but nothing failed")
	}
	r.check(b, limit)
	return b
}

// check has the conditions that hold for any batch.
func (r *reader) check(b driver.Batch, limit driver.Limit) {
	if len(b.Messages) == 0 {
		return
	}
	r.number++
	suite.MustEqual(r.e, b.Number, r.number, "number of the batch")
	if b.KeyOrder != nil && len(b.KeyOrder) != len(b.Messages) {
		r.e.Fatalf("Fetch: %d messages and %d of KeyOrder, want one for each, or nil", len(b.Messages), len(b.KeyOrder))
	}
	if len(b.Messages) > limit.Messages {
		r.e.Fatalf("Fetch: %d messages, more than the limit of %d", len(b.Messages), limit.Messages)
	}
	// About limit.Bytes: the message that crosses it may be in.
	size := 0
	for i := range b.Messages[:len(b.Messages)-1] {
		size += b.Messages[i].Size()
	}
	if size > limit.Bytes {
		r.e.Fatalf("Fetch: %d messages of more than %d bytes exceed the limit of %d", len(b.Messages), size, limit.Bytes)
	}
	for i, m := range b.Messages {
		if b.Order(i) == driver.BehindParked && m.Key == "" {
			r.e.Fatalf("Fetch: %.40q has no key and came BehindParked", m.Payload)
		}
		if m.ID == "" || m.Seq == 0 || m.Attempt < 1 || m.CreatedAt.IsZero() {
			r.e.Fatalf("Fetch: a message lacks what the store must set: %+v", m)
		}
	}
}

// drain fetches until a batch is empty: then everything committed has come.
func (r *reader) drain(limit driver.Limit) []driver.Batch {
	var batches []driver.Batch
	for {
		b := r.fetch(limit)
		if len(b.Messages) == 0 {
			return batches
		}
		batches = append(batches, b)
	}
}

// want drains and expects exactly these payloads, in any order.
func (r *reader) want(payloads ...string) []driver.Batch {
	batches := r.drain(plenty)
	r.e.wantPayloads(flatten(batches), payloads...)
	return batches
}

// settle marks whole batches as delivered, in one call.
func (r *reader) settle(batches ...driver.Batch) {
	r.e.Must(r.Settle(r.e.ctx, delivered(batches...)...), "Settle")
}

func (r *reader) close() {
	r.e.Must(r.Close(r.e.ctx), "Close of a source")
}

// again closes the reader and subscribes anew: the durable state shows.
func (r *reader) again() *reader {
	r.close()
	req := r.req
	req.Holder = ""
	return r.e.subscribeOn(r.store, req)
}

func delivered(batches ...driver.Batch) []driver.Settled {
	s := make([]driver.Settled, len(batches))
	for i, b := range batches {
		s[i].Batch = b
	}
	return s
}

func flatten(batches []driver.Batch) []penstock.Message {
	var msgs []penstock.Message
	for _, b := range batches {
		msgs = append(msgs, b.Messages...)
	}
	return msgs
}

func payloads(msgs []penstock.Message) []string {
	s := make([]string, len(msgs))
	for i, m := range msgs {
		s[i] = string(m.Payload)
	}
	return s
}

// wantPayloads compares without regard to order.
func (e *env) wantPayloads(msgs []penstock.Message, want ...string) {
	got := payloads(msgs)
	slices.Sort(got)
	want = slices.Sorted(slices.Values(want))
	suite.MustEqual(e, got, want, "messages")
}

func brief(payloads []string) string {
	const most = 40
	var s []string
	for _, p := range payloads[:min(most, len(payloads))] {
		s = append(s, fmt.Sprintf("%.40q", p))
	}
	if len(payloads) > most {
		s = append(s, "…")
	}
	return strings.Join(s, " ")
}
