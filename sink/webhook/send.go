package webhook

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// Send makes a request for each message. Up to Config.Concurrency run at a time.
// Messages of one key are sent one after another. If one is not delivered, those
// behind it are not sent.
//
// Permanent: the message cannot be made into a request, or the endpoint's answer is
// 3xx or 4xx, except 408, 425, 429 and Config.RetryStatuses. RetryAfter: the endpoint
// asked for a pause, after 429 for all messages to its URL. Unavailable: the endpoint
// cannot be reached, or answers no request.
// Unclassified: any other answer except 2xx, or no answer to this message alone.
func (s *Sink) Send(ctx context.Context, msgs []penstock.Message) []error {
	if len(msgs) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pass := s.gate.Enter(cancel)
	if pass == nil {
		return driver.SendError(msgs, errClosed)
	}
	defer pass.Leave()
	if len(msgs) == 1 { // needs no goroutines
		if err := s.deliver(ctx, &msgs[0]); err != nil {
			return []error{err}
		}
		return nil
	}
	c := call{sink: s, msgs: msgs, errs: make([]error, len(msgs))}
	c.chain()
	c.run(ctx)
	if !c.failed.Load() {
		return nil
	}
	return c.errs
}

// call is one Send of several messages.
type call struct {
	sink   *Sink
	msgs   []penstock.Message
	errs   []error
	heads  []int32 // the first message of each key
	next   []int32 // the next of its key; 0 if there is none
	taken  atomic.Int32
	failed atomic.Bool
}

// chain links the messages of each key, in order. A message without a key stays alone.
func (c *call) chain() {
	c.heads, c.next = make([]int32, 0, len(c.msgs)), make([]int32, len(c.msgs))
	tails := make(map[string]int32, len(c.msgs))
	for i := range c.msgs {
		i, key := int32(i), c.msgs[i].Key
		if key != "" {
			if tail, ok := tails[key]; ok {
				c.next[tail], tails[key] = i, i
				continue
			}
			tails[key] = i
		}
		c.heads = append(c.heads, i)
	}
}

func (c *call) run(ctx context.Context) {
	var workers sync.WaitGroup
	for range min(len(c.heads), c.sink.cfg.Concurrency) {
		workers.Go(func() {
			for i := int(c.taken.Add(1)) - 1; i < len(c.heads); i = int(c.taken.Add(1)) - 1 {
				c.deliverLine(ctx, c.heads[i])
			}
		})
	}
	workers.Wait()
}

func (c *call) deliverLine(ctx context.Context, i int32) {
	for {
		err := c.sink.deliver(ctx, &c.msgs[i])
		if err != nil {
			c.failed.Store(true)
			c.errs[i] = err
			for j := c.next[i]; j != 0; j = c.next[j] {
				c.errs[j] = behind(err)
			}
			return
		}
		if i = c.next[i]; i == 0 {
			return
		}
	}
}

var (
	errBehind            = errors.New("not sent: an earlier message of its key was not delivered")
	errBehindUnavailable = penstock.Unavailable(errBehind)
)

// behind is the error of a message that waits behind one that failed. The relay
// counts only the first failure of a key.
func behind(first error) error {
	if penstock.IsUnavailable(first) {
		return errBehindUnavailable
	}
	return errBehind
}
