package storetest

import (
	"context"
	"errors"
	"slices"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// collector reads as the relay does when calls may fail: a Settle that failed is
// asked again, and open batches are forgotten when the Source went back.
type collector struct {
	e    *env
	r    *reader
	got  []penstock.Message // settled
	open []driver.Batch     // fetched and not known to be settled
	// doubtful are numbers of batches whose Settle failed: it may have happened
	// and not been able to say so.
	doubtful map[uint64]bool
	maybe    []penstock.Message // doubtful when the Source went back
	last     uint64             // number of the last batch
}

// add takes a batch that Fetch returned.
func (c *collector) add(b driver.Batch) {
	if b.Rewound {
		for _, o := range c.open {
			if c.doubtful[o.Number] {
				c.maybe = append(c.maybe, o.Messages...)
			}
		}
		c.open = nil
		forget(c.r.Source, c.last)
	}
	c.last = max(c.last, b.Number)
	for _, m := range b.Messages {
		if slices.ContainsFunc(flatten(c.open), func(o penstock.Message) bool { return o.ID == m.ID }) {
			c.e.Errorf("%.40q came again from one Source, and the batch is not Rewound", m.Payload)
		}
	}
	if len(b.Messages) > 0 {
		c.open = append(c.open, b)
	}
}

// settle settles a batch, and notes the doubt when it fails.
func (c *collector) settle(ctx context.Context, b driver.Batch) error {
	err := c.r.Settle(ctx, delivered(b)...)
	if err == nil {
		c.got = append(c.got, b.Messages...)
		c.open = slices.DeleteFunc(c.open, func(o driver.Batch) bool { return o.Number == b.Number })
		return nil
	}
	if errors.Is(err, penstock.ErrFenced) {
		c.e.Errorf("Settle: %v, but nobody else is there", err)
	}
	if c.doubtful == nil {
		c.doubtful = map[uint64]bool{}
	}
	c.doubtful[b.Number] = true
	return err
}

// finish settles the remaining messages and expects that each of these payloads was settled once,
// or that a Settle of it was in doubt.
func (c *collector) finish(want ...string) {
	for {
		b, err := c.r.Fetch(c.e.ctx, plenty)
		c.e.Must(err, "Fetch")
		c.add(b)
		if len(c.open) == 0 {
			break
		}
		for _, b := range slices.Clone(c.open) {
			c.e.Must(c.settle(c.e.ctx, b), "Settle")
		}
	}
	times := map[string]int{}
	for _, m := range c.got {
		times[string(m.Payload)]++
	}
	maybe := payloads(c.maybe)
	for _, p := range want {
		if n := times[p]; n > 1 || n == 0 && !slices.Contains(maybe, p) {
			c.e.Errorf("%.40q was settled %d times, want once", p, n)
		}
		delete(times, p)
	}
	for p := range times {
		c.e.Errorf("%.40q was delivered, and nobody published it", p)
	}
	c.r = c.r.again()
	c.r.want()
}
