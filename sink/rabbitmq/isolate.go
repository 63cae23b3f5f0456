package rabbitmq

import "context"

// isolate finds the message over which the broker closes channels, and delivers
// the others. It sends them all on a channel that nobody else uses, and as long
// as that closes too, each half by itself: the last one left is guilty.
//
// The broker may have taken some of them before it closed the first channel,
// so they may arrive twice; that is what at-least-once allows.
func (s *Sink) isolate(ctx context.Context, conn *connection, out outgoing) {
	var alone shared[*channel]
	ch, err := alone.get(ctx, conn.open)
	if err != nil {
		out.errs.setAll(out.todo, s.explainOpen(ctx, conn, err))
		return
	}
	suspects := ch.send(ctx, s, out)
	switch len(suspects) {
	case 0:
		go ch.amqp.Close() // nothing depends on the broker's goodbye
	case 1:
		// The messages before it on the channel had their answers, those behind
		// it would have none.
		out.errs.set(suspects[0], explainGuilty(ch.err))
	default:
		half := len(suspects) / 2
		s.isolate(ctx, conn, out.only(suspects[:half]))
		s.isolate(ctx, conn, out.only(suspects[half:]))
	}
}

// only is the part of the messages with these indices, which are in order.
func (o outgoing) only(which []int) outgoing {
	part := o
	part.todo, part.keys = which, make([]string, 0, len(which))
	n := 0
	for _, i := range which {
		for o.todo[n] != i {
			n++
		}
		part.keys = append(part.keys, o.keys[n])
	}
	return part
}
