package kafka

import (
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
)

// spoilsBatch reports whether a broker refused a whole batch for what may be
// wrong with one of its records. Kafka does not say with which.
func spoilsBatch(err error) bool {
	var e *kerr.Error
	if !errors.As(err, &e) || e.Retriable && e != kerr.CorruptMessage {
		return false
	}
	return !aboutTopic(e) && !aboutAll(e)
}

// isolate sends the records once more, over a client that nobody else uses at
// that time, and as long as some are refused, in halves: so the guilty one is
// found, and the others arrive. They were not written before, for a batch is
// taken or refused as a whole.
func (s *Sink) isolate(ctx context.Context, all *flight, out *verdicts) {
	stack := [][]int{indexes(len(all.records))}
	select {
	case s.alone <- struct{}{}:
		defer func() { <-s.alone }()
	case <-ctx.Done():
		s.giveUp(ctx, all, stack, out)
		return
	}
	for len(stack) > 0 {
		if ctx.Err() != nil {
			s.giveUp(ctx, all, stack, out)
			return
		}
		which := stack[len(stack)-1]
		stack = stack[:len(stack)-1]

		p, err := s.lonely.get(&s.cfg, s.log)
		if err == nil {
			err = p.reach(ctx)
		}
		if err != nil {
			for _, i := range which {
				out.set(all.messages[i], s.unreachable(ctx, err))
			}
			continue
		}
		f := all.only(which)
		p.fly(ctx, f)
		var suspects []int
		for i := range f.records {
			switch err := f.error(i); {
			case err == nil:
			case spoilsBatch(err) && len(which) > 1:
				suspects = append(suspects, which[i])
			default:
				out.set(f.messages[i], s.verdict(ctx, p, &f.records[i], err))
			}
		}
		if half := len(suspects) / 2; half > 0 {
			stack = append(stack, suspects[half:], suspects[:half])
		} else if len(suspects) > 0 {
			stack = append(stack, suspects)
		}
	}
}

func (s *Sink) giveUp(ctx context.Context, all *flight, stack [][]int, out *verdicts) {
	for _, i := range slices.Concat(stack...) {
		out.set(all.messages[i], s.unanswered(ctx, all.records[i].Topic))
	}
}

func indexes(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
