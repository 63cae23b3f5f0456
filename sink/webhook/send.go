package webhook

import (
	"context"
	"errors"
	"sync"

	"github.com/penstock/penstock"
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
	return s.gate.Send(ctx, msgs, errClosed, func(ctx context.Context, errs []error) {
		lines := linesOf(msgs)
		var running sync.WaitGroup
		for _, line := range lines[1:] {
			running.Go(func() { s.deliverLine(ctx, msgs, line, errs) })
		}
		s.deliverLine(ctx, msgs, lines[0], errs)
		running.Wait()
	})
}

// linesOf returns the indexes of the messages of each key, in order. A message without a key stays alone.
func linesOf(msgs []penstock.Message) (lines [][]int) {
	of := make(map[string]int, len(msgs))
	for i := range msgs {
		key := msgs[i].Key
		at, ok := of[key]
		if !ok || key == "" {
			at = len(lines)
			lines, of[key] = append(lines, nil), at
		}
		lines[at] = append(lines[at], i)
	}
	return lines
}

func (s *Sink) deliverLine(ctx context.Context, msgs []penstock.Message, line []int, errs []error) {
	for n, i := range line {
		if errs[i] = s.deliver(ctx, &msgs[i]); errs[i] != nil {
			for _, j := range line[n+1:] {
				errs[j] = behind(errs[i])
			}
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
