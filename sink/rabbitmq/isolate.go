package rabbitmq

import "context"

// isolate finds the message over which the broker closes channels, and delivers the others. It
// sends them all on a channel that no other call uses. While that also closes, it sends each half
// alone: the last one left is guilty.
//
// The broker may have taken some of them before it closed the first channel,
// so they may arrive twice; at-least-once allows that.
func isolate(ctx context.Context, conn *connection, out outgoing) {
	var alone shared[*channel] // for its way of waiting
	ch, err := alone.get(ctx, conn.open)
	if err != nil {
		out.errs.setAll(out.todo, conn.explainOpen(ctx, err))
		return
	}
	suspects := ch.send(ctx, out)
	switch len(suspects) {
	case 0:
		ch.leave()
	case 1:
		// All others had their answer, so it is this one.
		out.errs.set(suspects[0], explainGuilty(ch.err))
	default:
		half := len(suspects) / 2
		isolate(ctx, conn, out.only(suspects[:half]))
		isolate(ctx, conn, out.only(suspects[half:]))
	}
}
